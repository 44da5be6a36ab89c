"""`course release` and `course grade`: from the command line to the rooms that do it."""

from __future__ import annotations

import argparse
import datetime
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.authoring.files import write_whole
from course_lib.diagnostics import CourseError

if TYPE_CHECKING:
    from course_lib.grading.release import Release

_UNSAFE = """\
--unsafe-no-sandbox: students' code will run as you, on this machine. It can read and delete
your files, use your network and your accounts, and change the marks of others. Do this on a
machine that you can throw away. Every report will say so."""


def release_command(options: argparse.Namespace) -> int:
    """Runs `course release`; returns the exit status."""
    from course_lib.grading.release import release

    keep = release(
        options.chapters,
        options.to,
        seed=options.seed,
        deadline=_deadline(options.deadline),
        rubric=options.rubric,
    )
    print(f"For your students: {options.to}. For you, to keep: {keep}.")
    print(f"Later: course grade submissions/ --release {keep} --out report/")
    return 0


def _deadline(text: str | None) -> datetime.datetime | None:
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise CourseError(
            f"--deadline {text!r} is no date: write it as 2026-05-04T23:59."
        ) from None
    if len(text) <= len("2026-05-04"):  # midnight would be the day's beginning
        raise CourseError(f"--deadline {text}: add the time of day, as 2026-05-04T23:59.")
    return moment if moment.tzinfo else moment.astimezone()


def grade_command(options: argparse.Namespace) -> int:
    """Runs `course grade`; returns the exit status."""
    from course_lib.grading import batch, overrides, reports
    from course_lib.grading.tasks import Options

    _check_folders(options.submissions, options.out)
    release = _release(options)
    exercises = _exercises(options.exercise, release.exercises)
    if options.unsafe_no_sandbox:
        print(_UNSAFE, file=sys.stderr)
    if not options.dask:  # a cluster's workers try their own
        _try(unsafe=options.unsafe_no_sandbox, gpu=options.gpu)
    records = batch.grade_class(
        options.submissions,
        release,
        options.out,
        options=Options(
            unsafe=options.unsafe_no_sandbox,
            run=not options.no_run,
            exercises=exercises,
            run_s=options.time_limit,
            gpu=options.gpu,
        ),
        jobs=options.jobs,
        dask=options.dask,
        students=options.student,
    )
    totals = reports.write(records, release, options.out, anonymous=options.anonymous)
    decided = overrides.read(options.out, exercises=release.exercises)
    names = {name for t in totals for name in (t.name, t.record.student)}
    for sentence in decided.strangers(names):
        print(sentence, file=sys.stderr)
    flagged = sum(bool(t.flags) for t in totals)
    failed = [t.name for t in totals if t.record.failed]
    print(f"{len(totals)} students, {flagged} flagged: {options.out / 'index.html'}")
    if failed:
        print(f"To grade by hand: {', '.join(failed)}.")
    return 0


def _check_folders(submissions: Path, out: Path) -> None:
    """Looks whether the reports have a place of their own.

    Raises:
      CourseError: a file is in the way, or the reports would be taken for work handed in.
    """
    for folder in (out, *out.parents):
        if folder.exists() and not folder.is_dir():
            raise CourseError(f"--out {out}: {folder} is a file. Choose another folder.")
    if out.resolve().is_relative_to(submissions.resolve()):
        raise CourseError(
            f"--out {out} is inside {submissions}: the next run would take it for a student's. "
            "Choose a folder beside it."
        )


def _try(*, unsafe: bool, gpu: bool) -> None:
    """Tries what this machine is asked for before anybody is graded.

    Raises:
      CourseError: there is no sandbox, or no card.
    """
    from course_lib.grading.sandbox import Sandbox

    sandbox = Sandbox.probe(unsafe=unsafe)
    if not gpu:
        return
    from course_lib.grading.card import Card

    card = Card(sandbox)
    if card.device is None:
        raise CourseError(
            f"--gpu: there is no card here that JAX can use in the sandbox: {card.why}. Without "
            "--gpu the same marks come out."
        )
    print(f"What is right also runs on {card.device.name}.", file=sys.stderr)


def _release(options: argparse.Namespace) -> Release:
    from course_lib.grading import release as releases

    chapters = [c.strip() for c in (options.chapters or "").split(",") if c.strip()]
    if options.release:
        if options.rubric:
            raise CourseError("With --release the rubric is the one in its folder: edit that.")
        whole = releases.read_release(options.release)
        return releases.only(whole, chapters) if chapters else whole
    if not chapters:
        raise CourseError(
            "What was given out? --release FOLDER, or --chapters 03,05 for the course's own."
        )
    return releases.unreleased(chapters, _secret(options.out), rubric=options.rubric)


def _secret(out: Path) -> str:
    """The secret of the hidden inputs of a class without a release, made at its first run."""
    from course_lib.grading.batch import STATE

    path = out / STATE / "secret"
    if not path.exists():
        write_whole(path, secrets.token_hex(16))
        path.chmod(0o600)
    return path.read_text(encoding="utf-8")


def _exercises(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    found = []
    for name in wanted:
        ids = [e for e in known if name in (e, e.split(".")[1])]
        if not ids:
            raise CourseError(f"There is no exercise {name!r} here; there are: {', '.join(known)}.")
        found += ids
    return tuple(found)
