"""Writes a class's reports into a folder.

    grades.csv  index.html  students/*.html  report.json  junit.xml  overrides.toml  stamp.json

The same work, graded with the same release, gives the same bytes; `stamp.json` alone says when.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from course_lib.authoring.files import write_whole
from course_lib.grading import overrides, similarity
from course_lib.grading.batch import STATE
from course_lib.grading.pages import class_page, student_page
from course_lib.grading.records import StudentRecord
from course_lib.grading.release import Release
from course_lib.grading.tables import grades_csv, junit_xml, report_json
from course_lib.grading.totals import Total, total


def write(
    records: Sequence[StudentRecord], release: Release, out: Path, *, anonymous: bool = False
) -> tuple[Total, ...]:
    """Writes all reports and returns what they say.

    Args:
      records: the class.
      release: what was given out.
      out: the folder.
      anonymous: whether students have a made-up id instead of their name.

    Raises:
      CourseError: overrides.toml is not right.
    """
    decided = overrides.read(out, exercises=release.exercises)
    names = {r.student: _id_of(r.student, release.secret) for r in records} if anonymous else {}
    flags, remarks = _similar(records, release, names)
    totals = tuple(
        total(
            r,
            release.rubric.late,
            decided,
            name=names.get(r.student, ""),
            flags=flags.get(r.student, ()),
        )
        for r in records
    )
    totals = tuple(sorted(totals, key=lambda t: t.name))
    _write_all(totals, title_of(release), remarks, out)
    if anonymous:
        lines = [f"{names[r.student]}\t{r.student}" for r in records]
        write_whole(out / STATE / "names.tsv", "\n".join(sorted(lines)) + "\n")
    return totals


def _similar(
    records: Sequence[StudentRecord], release: Release, names: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    try:
        return similarity.flags_of(records, release, names=names), []
    except ModuleNotFoundError:
        return {}, [similarity.MISSING]


def _id_of(student: str, secret: str) -> str:
    """An id that stays the same for a student, and that only the secret's owner can work out."""
    return f"s-{hmac.new(secret.encode(), student.encode(), hashlib.sha256).hexdigest()[:10]}"


def title_of(release: Release) -> str:
    """What was graded, for headings: "Chapters 03 transforms, 05 asynchronous copies"."""
    names = ", ".join(c.replace("_", " ") for c in release.chapters)
    return f"Chapter{'s' * (len(release.chapters) > 1)} {names}"


def _write_all(totals: Sequence[Total], title: str, remarks: Sequence[str], out: Path) -> None:
    files = {t.name: f"students/{_file_name(t.name)}.html" for t in totals}
    pages = out / "students"
    for stale in pages.glob("*.html") if pages.is_dir() else ():
        if f"students/{stale.name}" not in files.values():
            stale.unlink()
    for t in totals:
        write_whole(out / files[t.name], student_page(t, title=title))
    write_whole(out / "index.html", class_page(totals, title=title, files=files, remarks=remarks))
    write_whole(out / "grades.csv", "\ufeff" + grades_csv(totals))  # the mark tells Excel: UTF-8
    write_whole(out / "report.json", report_json(totals, title=title, remarks=remarks))
    write_whole(out / "junit.xml", junit_xml(totals))
    write_whole(out / "stamp.json", json.dumps(_stamp(totals), indent=1) + "\n")


def _file_name(name: str) -> str:
    """A student's name as a file's: letters of any script, and what tells like names apart."""
    plain = re.sub(r"[^\w]+", "-", name).strip("-")[:40] or "student"
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _stamp(totals: Sequence[Total]) -> dict[str, object]:
    return {
        "written": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "course": metadata.version("mosaic-gpu-hands-on"),
        "jax": metadata.version("jax"),
        "students": len(totals),
        "sandbox": not any(t.record.unsafe for t in totals),
    }
