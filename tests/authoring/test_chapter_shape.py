"""Every chapter has the parts that a learner counts on, and cells that can be read at a glance.

Goal, picture, questions to predict, exercises, something to break, what the compiler
made of it, a recap with a table of names, and where it stands in the reference pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib import exercises
from course_lib.authoring.regions import regions
from course_lib.authoring.source import (
    MAX_CODE_LINES,
    Chapter,
    Course,
    read_chapter,
    registered_function,
)
from tests.authoring import tiny
from tests.authoring.tiny import code, md

SOURCES = Course().sources()
MIN_EXERCISES = 3
MIN_PREDICTIONS = 5
MEDIAN_CODE_LINES = 10

_HEADING = re.compile(r"^#{1,4}\s+(.*)$", re.MULTILINE)
_TABLE = re.compile(r"^\|.*\|\s*\n\|[\s:|-]+\|\s*$", re.MULTILINE)
_GOAL = re.compile(r"\byou(?: can|'ll be able| will be able| will know)\b", re.IGNORECASE)
_PICTURE = re.compile(r"\b(show|explore\.\w+)\(")


def prose(chapter: Chapter) -> list[str]:
    return [c.text for c in chapter.cells if c.kind == "markdown"]


def headings(chapter: Chapter) -> list[str]:
    return [h.strip().lower() for text in prose(chapter) for h in _HEADING.findall(text)]


def section(chapter: Chapter, word: str) -> str:
    """The prose from the first heading with `word` to the next heading of its rank or above."""
    text = "\n\n".join(prose(chapter))
    found = re.search(rf"^(#+)\s+[^\n]*{word}[^\n]*$", text, re.MULTILINE | re.IGNORECASE)
    if found is None:
        return ""
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}}\s", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def _has_goal(chapter: Chapter) -> bool:
    """What you will be able to do is said before the first code cell."""
    first = chapter.cells.index(chapter.code[0]) if chapter.code else len(chapter.cells)
    return any(_GOAL.search(c.text) for c in chapter.cells[:first])


def _has_picture(chapter: Chapter) -> bool:
    images = any("![" in text or "<img" in text for text in prose(chapter))
    return images or any(_PICTURE.search(c.text) for c in chapter.code)


def _breaks_something(chapter: Chapter) -> bool:
    told = any("break it" in h for h in headings(chapter))
    return told and any("break-it" in c.tags for c in chapter.code)


PARTS: dict[str, Callable[[Chapter], bool]] = {
    'a goal ("you can ...") above the first code cell': _has_goal,
    "a picture or a widget": _has_picture,
    f"{MIN_PREDICTIONS} predictions that are checked": lambda c: (
        sum("predict" in cell.tags for cell in c.code) >= MIN_PREDICTIONS
    ),
    "three exercises": lambda c: len(c.exercises) >= MIN_EXERCISES,
    'a heading "Break it" and a cell with the tag "break-it"': _breaks_something,
    'a heading "What the compiler made of it"': lambda c: any("compiler" in h for h in headings(c)),
    'a heading "Recap" with a table of names': lambda c: bool(_TABLE.search(section(c, "recap"))),
    'a heading "Where it stands in the reference ..."': lambda c: bool(section(c, "reference")),
    f"code cells of {MEDIAN_CODE_LINES} lines or fewer (median)": lambda c: (
        c.median_code_lines() <= MEDIAN_CODE_LINES
    ),
    f"no code cell above {MAX_CODE_LINES} lines": lambda c: all(
        len(cell.text.splitlines()) <= MAX_CODE_LINES for cell in c.code
    ),
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_chapter_has_all_its_parts(path: Path) -> None:
    chapter = read_chapter(path, registry=registered_function)
    missing = [part for part, has in PARTS.items() if not has(chapter)]
    if missing:
        pytest.fail(f"{path.stem} lacks: " + "; ".join(missing), pytrace=False)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_an_exercise_takes_about_as_many_lines_as_it_says(path: Path) -> None:
    for cell in read_chapter(path).exercises:
        said = exercises.get(cell.exercise).lines
        lines = sum(region.lines for region in regions(cell.text))
        assert abs(said - lines) <= max(1, lines // 4), (cell.exercise, said, lines)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_exercise_of_a_chapter_has_a_cell(path: Path) -> None:
    chapter = read_chapter(path)
    registered = [e.id for e in exercises.all_exercises() if e.chapter == chapter.title]
    assert sorted(registered) == sorted(c.exercise for c in chapter.exercises)


def answer(n: int) -> list[str]:
    text = tiny.DOUBLE.replace("double", f"double{n}")
    cell = code(f"double{n}", text, tags=["exercise"], exercise=f"tiny.double{n}")
    check = code(f"check{n}", f'check("tiny.double{n}", double{n})', tags=["check"])
    return [cell, check]


def question(n: int) -> list[str]:
    cell = code(f"predict{n}", f'predict("tiny.q{n}", {n})', tags=["predict"])
    return [cell, code(f"reveal{n}", f'reveal("tiny.q{n}", y[{n}])')]


WHOLE = {
    "title": md("title", "# 00 Tiny\n\nYou will be able to double."),
    "predict": "\n".join([md("ask", "**Predict.** What is printed?"), *question(9)]),
    **{f"question{n}": "\n".join(question(n)) for n in range(4)},
    "picture": code("picture", "show(sm.one_sm())"),
    "break": md("break", "## Break it: twice"),
    "broken": code("broken", "simulate(f)", tags=["given", "break-it"]),
    **{f"answer{n}": "\n".join(answer(n)) for n in range(3)},
    "compiler": md("compiler", "## What the compiler made of it\n\nNothing."),
    "recap": md("recap", "## Recap\n\n| name | what |\n|---|---|\n| double | twice |"),
    "reference": md("reference", "## Where it stands in the reference page\n\nNowhere."),
}


def missing_parts(root: Path, cells: dict[str, str]) -> list[str]:
    chapter = tiny.read(root, *cells.values())
    return [part for part, has in PARTS.items() if not has(chapter)]


def test_a_whole_chapter_lacks_nothing(tmp_path: Path) -> None:
    assert missing_parts(tmp_path, WHOLE) == []


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"title": md("title", "# 00 Tiny\n\nDoubling.")}, "a goal"),
        ({"title": code("first", "x = 1") + WHOLE["title"]}, "a goal"),
        ({"picture": code("picture", "draw()")}, "a picture"),
        ({"question3": md("question3", "And what then?")}, "5 predictions"),
        ({"answer2": md("answer2", "That was all.")}, "three exercises"),
        ({"break": md("break", "## Twice")}, '"Break it"'),
        ({"broken": code("broken", "simulate(f)")}, '"Break it"'),
        ({"compiler": md("compiler", "## What came out")}, "compiler"),
        ({"recap": md("recap", "## Recap\n\nAll is clear.")}, "table of names"),
        ({"recap": md("recap", "## Recap\n\n## Names\n\n| a |\n|---|\n| b |")}, "table of names"),
        ({"reference": md("reference", "## Where it stands")}, "reference"),
        ({f"long{n}": code(f"long{n}", f"x = {n}\n" * 11) for n in range(20)}, "median"),
        (
            {
                **{f"long{n}": code(f"long{n}", f"x = {n}\n" * 11) for n in range(18)},
                **{f"ask{n}": "\n".join(question(n)) for n in range(10, 14)},
            },
            "median",
        ),
    ],
)
def test_a_missing_part_is_named(tmp_path: Path, changes: dict[str, str], lacks: str) -> None:
    (missing,) = missing_parts(tmp_path, {**WHOLE, **changes})
    assert lacks in missing
