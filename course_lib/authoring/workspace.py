"""The learner's own copies of the chapters, in the git-ignored `workspace/`.

    workspace/NN_title.ipynb                  the learner's; nobody else writes it but `update`
    workspace/.course/base/NN_title.ipynb     as the learner was given it: the base of the merge
    workspace/.course/backups/                every copy that `update` replaced, numbered

A copy comes without outputs: "predict, then run" is no fun with the answer below.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from nbformat import NotebookNode

from course_lib.authoring import canonical
from course_lib.authoring.files import keep_copy, read_notebook, write_whole
from course_lib.authoring.merge import issued, merge
from course_lib.authoring.source import CHAPTER_NAME, Course
from course_lib.diagnostics import CourseError

Say = Callable[[str], None]


def update(
    workspace: Path | None = None, *, course: Course | None = None, say: Say = print
) -> list[Path]:
    """Brings the chapters' newest versions into the workspace, and loses nothing of the learner's.

    Args:
      workspace: the folder with the learner's copies; by default the one that
        COURSE_WORKSPACE names, else `workspace/` in the course's folder.
      course: where the course is; this one by default.
      say: is told what happened, a sentence at a time.

    Returns:
      The copies that were made or changed.

    Raises:
      CourseError: a file cannot be read or written; everything before it is in place.
    """
    course = course or Course()
    folder = _folder(workspace, course)
    changed = []
    for chapter in _chapters(course):
        try:
            if _update_chapter(chapter, folder, say):
                changed.append(folder / chapter.name)
        except OSError as error:
            raise CourseError(f"{folder.name}/{chapter.name}: {error.strerror or error}") from error
    return changed


def reset(
    chapter: str,
    workspace: Path | None = None,
    *,
    course: Course | None = None,
    say: Say = print,
) -> Path:
    """Puts a fresh copy of a chapter into the workspace and keeps the old one beside it.

    Args:
      chapter: number, title, both, or file ("00", "start_here").
      workspace, course, say: as for `update`.

    Returns:
      The fresh copy.

    Raises:
      CourseError: there is no such chapter, or a file cannot be read or written.
    """
    course = course or Course()
    folder = _folder(workspace, course)
    source = _find(chapter, course)
    copy = folder / source.name
    try:
        if copy.exists():
            kept = keep_copy(copy, folder, "before-reset")
            say(f"Your {copy.name} is kept as {kept.name}.")
        _issue(_newest(source), copy)
    except OSError as error:
        raise CourseError(f"{folder.name}/{copy.name}: {error.strerror or error}") from error
    say(f"{folder.name}/{copy.name} is a fresh copy.")
    return copy


def _folder(workspace: Path | None, course: Course) -> Path:
    return workspace or Path(os.environ.get("COURSE_WORKSPACE") or course.workspace)


def _chapters(course: Course) -> list[Path]:
    """The learner's notebooks as the course has them now, in order."""
    return sorted(p for p in course.notebooks.glob("*.ipynb") if CHAPTER_NAME.match(p.stem))


def _find(name: str, course: Course) -> Path:
    stem = Path(name).stem
    stem = stem.zfill(2) if stem.isdigit() else stem
    chapters = _chapters(course)
    for path in chapters:
        if stem in (path.stem, path.stem[:2], path.stem[3:]):
            return path
    known = ", ".join(p.stem for p in chapters) or "none yet"
    raise CourseError(f'There is no chapter "{name}". The chapters are: {known}.')


def _newest(chapter: Path) -> NotebookNode:
    try:
        return issued(read_notebook(chapter))
    except ValueError as error:
        raise CourseError(
            f"{chapter.parent.name}/{chapter.name} cannot be read, {error}: get the course's files "
            "again, or run `course build`."
        ) from None


def _base(copy: Path) -> Path:
    return copy.parent / ".course" / "base" / copy.name


def _issue(new: NotebookNode, copy: Path) -> None:
    write_whole(copy, canonical.to_text(new))
    write_whole(_base(copy), canonical.to_text(new))


def _update_chapter(chapter: Path, folder: Path, say: Say) -> bool:
    """Updates one copy; True if it was made or changed."""
    new, copy = _newest(chapter), folder / chapter.name
    if not copy.exists():
        _issue(new, copy)
        say(f"{chapter.stem}: copied into {folder.name}/.")
        return True
    try:
        mine = read_notebook(copy)
    except ValueError as error:
        kept = keep_copy(copy, folder, "unreadable")
        _issue(new, copy)
        say(
            f"{chapter.stem}: your copy could not be read, {error}. It is kept as {kept.name}; "
            f"{copy.name} is a fresh copy."
        )
        return True
    return _merge_into(copy, mine, new, say)


def _merge_into(copy: Path, mine: NotebookNode, new: NotebookNode, say: Say) -> bool:
    merged = merge(mine, new, _stored_base(copy))
    if merged.changed:
        kept = keep_copy(copy, copy.parent / ".course" / "backups", "before-update")
        write_whole(copy, canonical.to_text(merged.notebook))
        say(f"{copy.stem}: updated; the copy before that is kept as .course/backups/{kept.name}.")
        for sentence in merged.sentences:
            say(f"  {sentence}")
    text = canonical.to_text(new)
    if not _base(copy).is_file() or _base(copy).read_text(encoding="utf-8") != text:
        write_whole(_base(copy), text)
    return merged.changed


def _stored_base(copy: Path) -> NotebookNode | None:
    """The version that the learner was given, or None where nobody knows it any more."""
    try:
        base = read_notebook(_base(copy))
    except (OSError, ValueError):
        return None
    return base if all(cell.get("id") for cell in base.cells) else None
