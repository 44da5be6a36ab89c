"""The reports for other programs: `grades.csv`, `report.json`, `junit.xml`."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from course_lib.grading.pages import UNSAFE, fault_words
from course_lib.grading.records import to_data
from course_lib.grading.totals import Line, Total

_HALVES = re.compile("[\ud800-\udfff]")  # halves of characters, which no file can hold
# XML 1.0, section 2.2: the characters that a document may hold at all.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def grades_csv(totals: Sequence[Total]) -> str:
    """One row for each student, one column for each exercise; for a platform's import."""
    exercises = list(dict.fromkeys(x.answer.exercise for t in totals for x in t.lines))
    manual = list(dict.fromkeys(part for t in totals for part in t.manual))
    unsafe = any(t.record.unsafe for t in totals)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    head = ["student", "id", *exercises, *manual, "late_days", "penalty", "points", "of", "percent"]
    writer.writerow([*map(_cell, head), "flags", *(["sandbox"] if unsafe else [])])
    for t in totals:
        points = {x.answer.exercise: x.points for x in t.lines}
        row = [t.name, t.record.lms_id if t.name == t.record.student else ""]
        row += [_number(points.get(e, 0.0)) for e in exercises]
        row += [_number(t.manual.get(part, 0.0)) for part in manual]
        percent = 100 * t.points / t.of if t.of else 0.0
        sums = (t.late_days, t.penalty, t.points, t.of, round(percent, 1))
        row += [*map(_number, sums), str(len(t.flags))]
        writer.writerow([*map(_cell, row), *(["none"] if unsafe else [])])
    return table.getvalue()


def _cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    plain = text.replace("\r", " ").replace("\n", " ")
    first = unicodedata.normalize("NFKC", plain.lstrip())[:1]  # wide signs are signs, too
    dangerous = first in ("=", "+", "-", "@") and not _is_number(plain)
    return f"'{plain}" if dangerous else plain


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", text))


def _number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") or "0"


def report_json(totals: Sequence[Total], *, title: str, remarks: Sequence[str]) -> str:
    """Everything, for the instructor: hidden cases (`private`) and flags are in it."""
    students = [_student(t) for t in totals]
    data = {
        "title": title,
        "remarks": list(remarks),
        "sandbox": not any(t.record.unsafe for t in totals),
        "students": students,
    }
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return _HALVES.sub("\ufffd", text)


def _student(total: Total) -> dict[str, Any]:
    record = to_data(total.record)
    if total.name != total.record.student:
        record |= {"student": total.name, "lms_id": "", "key": ""}
        for chapter in record["chapters"]:
            chapter["file"] = ""
    return {
        "student": total.name,
        "points": total.points,
        "of": total.of,
        "late_days": total.late_days,
        "penalty": total.penalty,
        "manual": dict(total.manual),
        "notes": list(total.notes),
        "flags": list(total.flags),
        "exercises": {x.answer.exercise: x.points for x in total.lines},
        "record": record,
    }


def junit_xml(totals: Sequence[Total]) -> str:
    """A test suite for each student, a test case for each exercise."""
    root = ElementTree.Element("testsuites", name="course grade")
    for t in totals:
        wrong = [x for x in t.lines if x.answer.verdict != "right"]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_xml(t.name),
            tests=str(len(t.lines)),
            failures=str(sum(x.answer.verdict != "not-done" for x in wrong)),
            skipped=str(sum(x.answer.verdict == "not-done" for x in wrong)),
            errors=str(int(bool(t.record.failed))),
        )
        if t.record.unsafe:
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="sandbox", value=UNSAFE)
        for line in t.lines:
            _case(suite, t, line)
        if t.record.failed:
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(t.name), name="grading")
            ElementTree.SubElement(case, "error", message=_xml(t.record.failed))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, total: Total, line: Line) -> None:
    answer = line.answer
    case = ElementTree.SubElement(
        suite, "testcase", classname=_xml(total.name), name=_xml(answer.exercise)
    )
    if answer.verdict == "not-done":
        ElementTree.SubElement(case, "skipped", message="not done")
    elif answer.verdict != "right":
        failure = ElementTree.SubElement(
            case, "failure", type=_xml(answer.verdict), message=_xml(fault_words(answer.fault))
        )
        failure.text = _xml("\n".join((*answer.words, *answer.finding)))


def _xml(text: str) -> str:
    return _NO_XML.sub("", text)
