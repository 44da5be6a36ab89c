"""Finds who handed in what, in any of the shapes in which a class's work arrives.

    submissions/Ada Lovelace/03_transforms.ipynb
    submissions/Ada_Lovelace_03_transforms.ipynb
    submissions/Ada Lovelace_12345_assignsubmission_file_/...      Moodle
    submissions/lovelaceada_LATE_678_901_03_transforms-1.ipynb     Canvas
    submissions/Homework_ada01_attempt_2026-05-04-10-00-00_...     Blackboard
    submissions/class.zip, submissions/Ada.zip, zips in zips

Folders may be nested, and names are in any script. A student is what the first folder,
or a loose file's name, says; a number that the platform put there tells two of one name apart.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.diagnostics import CourseError
from course_lib.grading import archives
from course_lib.grading.model import Problem

MOODLE = re.compile(r"^(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+_?(?P<rest>.*)$")
CANVAS = re.compile(r"^(?P<name>[^\W\d_]+)(?:_(?:LATE|late))?_(?P<id>\d+)_\d+_(?P<rest>.+)$")
BLACKBOARD = re.compile(
    r"^.+?_(?P<name>[^_]+)_attempt_(?P<date>\d{4}(?:-\d\d){5})(?:_(?P<rest>.*))?$"
)
_SUFFIXES = (".ipynb", ".zip")
Owner = tuple[str, str]  # the student's name, and the platform's number
_SURROGATES = re.compile("[\ud800-\udfff]")
_MOST_PAPERS = 100  # of one student's
_MOST_BYTES = 200 << 20
_SPACES = re.compile("[\t-\r\x85\u2028\u2029]")
# What nobody sees in a name, or what turns around the text behind it; joiners and marks of
# direction belong to the spelling of some scripts.
_UNSEEN = re.compile(
    "[\0-\x1f\x7f-\x9f\u00ad\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


@dataclasses.dataclass(frozen=True)
class Paper:
    """A notebook that a student handed in.

    Attributes:
      place: where it was, for sentences.
      file: a copy of it, named by its digest; None where it is too large to be read.
      received: its date, None where that is unknown.
      size: its size in bytes.
    """

    place: str
    file: Path | None
    received: datetime.datetime | None
    size: int

    @property
    def digest(self) -> str:
        """The SHA-256 of its bytes, or its size where it was not read."""
        return self.file.stem if self.file else f"size-{self.size}"


@dataclasses.dataclass(frozen=True)
class Student:
    """Everything that one student handed in.

    Attributes:
      name: what the reports call them, unlike everybody else's.
      lms_id: the number that a platform put into the name, "" for none.
      papers: their notebooks, by place.
      problems: what could not be read.
    """

    name: str
    lms_id: str = ""
    papers: tuple[Paper, ...] = ()
    problems: tuple[Problem, ...] = ()


def collect(folder: Path, *, store: Path) -> tuple[Student, ...]:
    """The students whose work is in a folder (or a zip file), by name.

    Args:
      folder: the class's submissions.
      store: a folder for copies of the notebooks.

    Raises:
      CourseError: there is no such folder, or nothing in it.
    """
    if not folder.exists():
        raise CourseError(f"There is no {folder}: `course grade` takes the folder of submissions.")
    problems: list[tuple[str, Problem]] = []
    papers = [_stored(found, store) for found in _found(folder, problems)]
    empty = [place for place in _entries(folder) if not any(_under(p.place, place) for p in papers)]
    places = [p.place for p in papers] + empty + [place for place, _ in problems]
    if not places:
        raise CourseError(f"{folder} holds no notebook and no zip file.")
    known = [p.place for p in papers] + empty
    split = [place.split("/") for place in known]
    skip = _wrapping(split)
    by_blackboard = all(_is_blackboards(_own_part(p.place, skip)) for p in papers)
    papers = [_dated(p, _own_part(p.place, skip)) if by_blackboard else p for p in papers]
    owners = {
        place: _owner(_own_part(place, skip), place, _name(folder.absolute().stem))
        for place in places
    }
    return tuple(
        _student(
            owner,
            [p for p in papers if owners[p.place] == owner],
            [problem for place, problem in problems if owners[place] == owner],
        )
        for owner in sorted(set(owners.values()))
    )


def _student(owner: Owner, papers: Sequence[Paper], problems: Sequence[Problem]) -> Student:
    """A student with their papers; of too many the newest."""
    kept, size = list[Paper](), 0
    for paper in sorted(papers, key=_age):
        size += paper.size if paper.file else 0
        if len(kept) < _MOST_PAPERS and size <= _MOST_BYTES:
            kept.append(paper)
    said = list(problems)
    if left := len(papers) - len(kept):
        sentence = f"{len(papers)} notebooks were handed in; {left} of them were not read."
        said.append(Problem("too-many", sentence))
    name, lms_id = owner
    return Student(
        name=f"{name} ({lms_id})" if lms_id else name,
        lms_id=lms_id,
        papers=tuple(sorted(kept, key=lambda p: p.place)),
        problems=tuple(said),
    )


def _age(paper: Paper) -> tuple[float, str]:
    """For sorting: the newest first."""
    return -(paper.received.timestamp() if paper.received else 0.0), paper.place


def _under(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}/")


def _entries(folder: Path) -> list[str]:
    """The folders and zips directly in a folder: each may be a student's, with nothing in it."""
    if not folder.is_dir():
        return []
    return [
        _name(entry.name)
        for entry in sorted(folder.iterdir())
        if not archives.ignored(entry.name)
        and (entry.is_dir() or entry.suffix.lower() in _SUFFIXES)
        and not entry.is_symlink()
    ]


def _found(folder: Path, problems: list[tuple[str, Problem]]) -> Iterator[archives.Found]:
    files = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
    for path in files:
        inside = path.relative_to(folder) if folder.is_dir() else Path(path.name)
        place = _name(inside.as_posix())
        if path.suffix.lower() not in _SUFFIXES or archives.ignored(place):
            continue
        if (
            path != folder and path.is_symlink()
        ):  # also to a file of the folder: that is somebody else's
            sentence = f"{_name(path.name)} is a link; it was not read."
            problems.append((place, Problem("link", sentence)))
        elif path.is_file():
            yield from _read(path, place, problems)


def _read(path: Path, place: str, problems: list[tuple[str, Problem]]) -> Iterator[archives.Found]:
    """A notebook, or the notebooks of a zip file; a file that is too large is not read."""
    try:
        state = path.stat()
        zipped = path.suffix.lower() == ".zip"
        limit = archives.MAX_ARCHIVE_BYTES if zipped else archives.MAX_NOTEBOOK_BYTES
        data = path.read_bytes() if state.st_size <= limit else b""
    except OSError as error:
        sentence = f"{_name(path.name)} cannot be read: {error.strerror}."
        problems.append((place, Problem("unreadable", sentence)))
        return
    received = datetime.datetime.fromtimestamp(state.st_mtime).astimezone()
    if not zipped:
        yield archives.Found(place, data, received, state.st_size)
    elif data:
        yield from archives.notebooks_in(data, place, problems)
    else:
        sentence = f"{_name(path.name)} has {state.st_size >> 20} MB; it was not read."
        problems.append((place, Problem("too-large", sentence)))


def _stored(found: archives.Found, store: Path) -> Paper:
    if not found.data and found.size:
        return Paper(found.place, None, found.received, found.size)
    file = store / f"{hashlib.sha256(found.data).hexdigest()}.ipynb"
    if not file.exists():
        store.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_bytes(found.data)
        part.replace(file)
    return Paper(found.place, file, found.received, found.size)


# --- whose is it? --------------------------------------------------------------------------------


def _own_part(place: str, skip: int) -> tuple[str, bool]:
    """The part of a place that names its student, and whether that is a loose file's name.

    Args:
      place: of a notebook, or of what could not be read.
      skip: how many folders hold the class.
    """
    parts = place.split("/")
    parts = parts[skip:] if len(parts) > skip else parts[-1:]
    return parts[0], len(parts) == 1


def _owner(part: tuple[str, bool], place: str, default: str) -> Owner:
    """The student's name and number; `default` is the name of one whose files say none."""
    name, lms_id = owner_of(part[0], loose=part[1])
    return name or default, lms_id


def _wrapping(split: Sequence[Sequence[str]]) -> int:
    """How many folders around everything hold the class, rather than one student's files."""
    shared = 0
    while split and all(
        len(parts) > shared + 1 and parts[shared] == split[0][shared] for parts in split
    ):
        if _platform(split[0][shared]):
            break
        shared += 1
    for skip in range(shared, 0, -1):
        if len({_person(parts[skip:]) for parts in split} - {None}) > 1:
            return skip
    return 0


def _person(parts: Sequence[str]) -> Owner | None:
    """Who is named by the first of some parts, None where it may as well be a file of anybody's."""
    name, loose = parts[0], len(parts) == 1
    owner = owner_of(name, loose=loose)
    stem = _stem(name)
    sure = bool(_platform(stem)) or (_without_chapter(stem) != stem if loose else True)
    return owner if sure and owner[0] and not _is_about_a_chapter(owner[0]) else None


def _is_about_a_chapter(name: str) -> bool:
    return bool(
        re.match(r"^(chapter|ch|week|hw|homework|part)?[ _-]*\d{1,2}\b", name, re.IGNORECASE)
    )


def _platform(name: str) -> re.Match[str] | None:
    return MOODLE.match(name) or CANVAS.match(name) or BLACKBOARD.match(name)


def owner_of(name: str, *, loose: bool) -> Owner:
    """The student whom a folder's or a loose file's name names, and the platform's number.

    Args:
      name: one part of a place.
      loose: whether it is a file's name, which may hold a chapter's name too, or nothing else:
        then the student's name is "".
    """
    stem = _stem(name)
    if match := _platform(stem):
        return _tidy(match["name"]), match.groupdict().get("id") or ""
    return _tidy(_without_chapter(stem) if loose else stem), ""


def _stem(name: str) -> str:
    stem = _name(name)
    while stem.lower().endswith(_SUFFIXES):
        stem = stem.rsplit(".", 1)[0]
    return stem


def _without_chapter(stem: str) -> str:
    """A file's name without the chapter's: "03_transforms_Ada" and "Ada-03_transforms (1)"."""
    bare = re.sub(r"\(\d+\)|-\d+$|[ _-]?copy\d*$", "", stem, flags=re.IGNORECASE)
    for name in sorted(_chapter_names(), key=len, reverse=True):
        bare = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", "", bare, flags=re.IGNORECASE)
    return bare


def _chapter_names() -> list[str]:
    from course_lib.authoring.source import Course

    return [p.stem for p in Course().sources()]


def _tidy(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[_\s]+", " ", text)).strip(" -._()[]")


def _name(text: str) -> str:
    """A file's name as it is shown: text that can be written, and in which all is to be seen."""
    if _SURROGATES.search(text):  # bytes that are no UTF-8
        text = archives.decoded(os.fsencode(text))
    return _UNSEEN.sub("\ufffd", _SPACES.sub(" ", unicodedata.normalize("NFC", text)))


def _is_blackboards(part: tuple[str, bool]) -> bool:
    match = _platform(part[0])
    return match is not None and match.re is BLACKBOARD


def _dated(paper: Paper, part: tuple[str, bool]) -> Paper:
    """A paper with the date that Blackboard wrote into the name, which no student can choose."""
    return dataclasses.replace(paper, received=attempt_date(part[0]) or paper.received)


def attempt_date(part: str) -> datetime.datetime | None:
    """The date that Blackboard writes into a file's name, None where there is none."""
    match = BLACKBOARD.match(part)
    try:
        naive = datetime.datetime.strptime(match["date"], "%Y-%m-%d-%H-%M-%S") if match else None
        return naive.astimezone() if naive else None
    except (ValueError, OverflowError, OSError):
        return None
