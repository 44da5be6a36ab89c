"""What a learner has tried, done and predicted, and which hints they have seen.

It is kept in the workspace, `workspace/.course/progress.json`. The workspace is
the folder that `COURSE_WORKSPACE` names, else the nearest folder from the
current one upwards that holds `.course/`. Where there is none, as in a build or
a test of the notebooks, and under `COURSE_MODEL_ONLY=1`, it is kept in memory only, so that
nothing is written and every run prints the same.

Several notebooks may be open at once: each change reads the file anew, under a
lock, and replaces it in one step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from course_lib.diagnostics import CourseError
from course_lib.exercises import registry

FOLDER = ".course"
FILE = "progress.json"
UNATTENDED = "COURSE_UNATTENDED"  # "1" where cells run and nobody reads what they print
_VERSION = 1
_LOCK_PATIENCE_S = 2.0


@dataclasses.dataclass(frozen=True)
class Record:
    """One exercise's progress.

    Attributes:
      tries: how often it was checked while it held an answer.
      hints: how many hints were asked for.
      done: whether a check found it correct, ever.
    """

    tries: int = 0
    hints: int = 0
    done: bool = False

    @property
    def state(self) -> str:
        """ "done", "tried" or "open"."""
        return "done" if self.done else "tried" if self.tries else "open"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a prediction, or of a part of one, when it was first revealed.

    Attributes:
      answer: the answer as text, "" if there was none.
      right: whether it is what the run gave.
    """

    answer: str
    right: bool


Records = dict[str, Record]
Predictions = dict[str, dict[str, Outcome]]


@dataclasses.dataclass
class _Progress:
    """All that is kept: exercises by id, and the parts of predictions by the question's id."""

    exercises: Records = dataclasses.field(default_factory=dict)
    predictions: Predictions = dataclasses.field(default_factory=dict)


_in_memory = _Progress()


def note_check(exercise_id: str, *, fault: str) -> None:
    """Notes a check and what came of it; one of an untouched stub does not count.

    Args:
      exercise_id: the exercise's id.
      fault: the verdict's fault, "" if it was right.
    """
    if fault != "not-done":
        _change_record(
            exercise_id,
            lambda old: dataclasses.replace(old, tries=old.tries + 1, done=old.done or not fault),
        )


def note_hint(exercise_id: str, *, of: int) -> int:
    """Notes that a hint was asked for; returns which one is due, from 1 to `of`."""
    changed = _change_record(
        exercise_id, lambda old: dataclasses.replace(old, hints=min(old.hints + 1, of))
    )
    return changed.hints


def note_prediction(question: str, parts: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Notes what came of a prediction, unless it was revealed before: the first time counts.

    Args:
      question: the question's id.
      parts: what came of it now, by the part's name.

    Returns:
      What came of each part when it was first revealed.
    """
    if os.environ.get(UNATTENDED) == "1":  # nobody has seen what was revealed
        return dict(parts)

    def note(kept: _Progress) -> dict[str, Outcome]:
        first = {**parts, **kept.predictions.get(question, {})}
        kept.predictions[question] = first
        return first

    return _change(note)


def records(folder: Path | None = None) -> Records:
    """Progress by exercise id, of the workspace `folder` or else of the one around here.

    Raises:
      CourseError: the file is there and may not be read.
    """
    return dict(_progress(folder).exercises)


def predictions(folder: Path | None = None) -> Predictions:
    """What came of the predictions revealed so far, by question and part; as `records`."""
    return dict(_progress(folder).predictions)


def _progress(folder: Path | None) -> _Progress:
    folder = folder or workspace()
    if folder is None:
        return _in_memory
    try:
        return _read(folder / FOLDER / FILE)
    except OSError as error:
        raise CourseError(f"Your progress cannot be read: {_reason(error)}.") from None


def progress_table(folder: Path | None = None) -> str:
    """A table of all exercises as text, and how many predictions were right.

    Its columns: chapter, exercise, state, tries, hints used.

    Args:
      folder: the workspace; by default the one around the current folder.
    """
    known = records(folder)
    rows = [("chapter", "exercise", "state", "tries", "hints")]
    for exercise in registry.all_exercises():
        r = known.get(exercise.id, Record())
        hints = f"{r.hints} of {len(exercise.hints)}"
        chapter = registry.chapter_name(exercise.chapter)
        rows.append((chapter, exercise.name, r.state, str(r.tries), hints))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    done = sum(row[2] == "done" for row in rows[1:])
    summary = [f"{done} of {len(rows) - 1} exercises done.", *_tally(predictions(folder))]
    return "\n".join([*lines, "", *summary])


def _tally(revealed: Predictions) -> Iterator[str]:
    """How many predictions were right, all together and by chapter, part by part."""
    chapters: dict[str, list[Outcome]] = {}
    for question in sorted(revealed, key=lambda q: registry.chapter_name(q.partition(".")[0])):
        outcomes = chapters.setdefault(registry.chapter_name(question.partition(".")[0]), [])
        outcomes += revealed[question].values()
    everything = [outcome for outcomes in chapters.values() for outcome in outcomes]
    if not everything:
        return
    each = ", ".join(f"{name} {_score(outcomes)}" for name, outcomes in chapters.items())
    yield f"{_score(everything)} predictions right ({each})."
    missed = sum(not outcome.answer for outcome in everything)
    if missed:
        yield f"{missed} more {'was' if missed == 1 else 'were'} shown before you predicted."


def _score(outcomes: list[Outcome]) -> str:
    made = [outcome for outcome in outcomes if outcome.answer]
    return f"{sum(outcome.right for outcome in made)} of {len(made)}"


def workspace() -> Path | None:
    """The learner's workspace, or None where there is none or nothing may be kept."""
    if os.environ.get("COURSE_MODEL_ONLY") == "1":
        return None
    named = os.environ.get("COURSE_WORKSPACE")
    if named:
        return Path(named)
    here = Path.cwd()
    return next((p for p in (here, *here.parents) if (p / FOLDER).is_dir()), None)


def _change_record(exercise_id: str, change: Callable[[Record], Record]) -> Record:
    """Applies `change` to one exercise's record, where it is kept, and returns the new one."""

    def one(kept: _Progress) -> Record:
        kept.exercises[exercise_id] = change(kept.exercises.get(exercise_id, Record()))
        return kept.exercises[exercise_id]

    return _change(one)


def _change[T](change: Callable[[_Progress], T]) -> T:
    """Lets `change` change what is kept, where it is kept, and returns what it returns."""
    folder = workspace()
    if folder is None:
        return change(_in_memory)
    file = folder / FOLDER / FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            kept = _read(file)
            result = change(kept)
            _write(file, kept)
    except OSError as error:  # a full disk or a read-only folder must not cost the verdict
        print(f"Your progress could not be saved: {_reason(error)}.")
        return change(_in_memory)
    return result


def _read(file: Path) -> _Progress:
    """What `file` keeps; one that cannot be understood is put aside, with a sentence."""
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return _Progress()
    except UnicodeDecodeError:
        text = ""
    try:
        return _parse(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        aside = _free_name(file)
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            file.rename(aside)
            print(
                f"The record of your progress, {file}, could not be read. It is kept as"
                f" {aside.name}; a new one begins."
            )
        return _Progress()


def _parse(data: Any) -> _Progress:
    if data["version"] != _VERSION:
        raise ValueError("an unknown version")
    exercises = {str(i): _parse_record(r) for i, r in data["exercises"].items()}
    revealed = data.get("predictions", {})  # older files have none
    parts = {
        str(question): {str(name): _parse_outcome(o) for name, o in outcomes.items()}
        for question, outcomes in revealed.items()
    }
    return _Progress(exercises, parts)


def _parse_record(data: Any) -> Record:
    tries, hints, done = data["tries"], data["hints"], data["done"]
    numbers = all(type(n) is int and n >= 0 for n in (tries, hints))
    if not numbers or type(done) is not bool:
        raise TypeError("a record of the wrong types")
    return Record(tries, hints, done)


def _parse_outcome(data: Any) -> Outcome:
    answer, right = data["answer"], data["right"]
    if type(answer) is not str or type(right) is not bool:
        raise TypeError("an outcome of the wrong types")
    return Outcome(answer, right)


def _write(file: Path, kept: _Progress) -> None:
    """Replaces the file in one step: a reader sees the old one or the new one, whole."""
    sorted_kept = {name: dict(sorted(part.items())) for name, part in vars(kept).items()}
    data = {"version": _VERSION, **sorted_kept}
    text = json.dumps(data, default=dataclasses.asdict, indent=1)
    handle, name = tempfile.mkstemp(prefix=file.name, suffix=".new", dir=file.parent)
    try:
        with open(handle, "w", encoding="utf-8") as new:
            new.write(text + "\n")
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _reason(error: OSError) -> str:
    return f"{error.strerror or error} ({error.filename})" if error.filename else str(error)


def _free_name(file: Path) -> Path:
    names = (file.with_name(f"{file.stem}.unreadable-{n}{file.suffix}") for n in range(1, 10_000))
    return next(name for name in names if not name.exists())


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Holds a lock that other processes respect; goes on without it where that fails.

    Some network file systems have no locks, and a suspended process may hold one: an
    attempt that is counted twice is better than a notebook that waits.
    """
    with open(file, "a") as handle:
        _lock(handle.fileno())
        yield  # closing the file gives the lock back


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # not POSIX
        return
    give_up = time.monotonic() + _LOCK_PATIENCE_S
    while time.monotonic() < give_up:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return
