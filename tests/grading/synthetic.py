"""A class that does not exist: right, partly right, wrong, broken, honest, cheating.

    lay_out(folder)    writes everybody's work
    everybody()        name -> `Person`: what was handed in, and what it may earn

The chapter is 00: its exercises are the quickest to mark.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import itertools
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from nbformat import NotebookNode

from course_lib.exercises import all_exercises, get
from tests.grading.answers import wrong_answer
from tests.grading.cheating import CHEATS, papers
from tests.grading.classroom import handed_in, own_cell, release, solutions, to_bytes
from tests.grading.honest import ANSWERS, Honest
from tests.wrong_answers import Wrong

CHAPTER = "00_start_here"
EXERCISES = tuple(e.id for e in all_exercises() if e.chapter == "start_here")
FIRST, *OTHERS = EXERCISES


@dataclasses.dataclass(frozen=True)
class Person:
    """What somebody handed in.

    Attributes:
      data: the file's bytes.
      earns: the points of each exercise; what is missing earns its full point.
      name: the file's name.
      harms: whether they may spoil what else they handed in; never what others did.
    """

    data: bytes
    earns: Mapping[str, float] = dataclasses.field(default_factory=dict)
    name: str = f"{CHAPTER}.ipynb"
    harms: bool = False

    def points(self, exercise: str) -> float:
        return self.earns.get(exercise, 1.0)


NONE = dict.fromkeys(EXERCISES, 0.0)


def solved(change: Callable[[NotebookNode], None] | None = None) -> bytes:
    """The whole chapter, solved, with something about it changed."""
    notebook = handed_in(chapter=CHAPTER)
    if change is not None:
        change(notebook)
    return to_bytes(notebook)


def only(*exercises: str) -> Person:
    """Some exercises right, the others not done."""
    texts = {e: t for e, t in solutions(CHAPTER).items() if e in exercises}
    rest = {e: 0.0 for e in EXERCISES if e not in exercises}
    return Person(to_bytes(handed_in(texts, chapter=CHAPTER)), rest)


def instead(source: str, *, before: str = "", exercise: str = FIRST) -> Person:
    """Another text in the cell of one exercise, and perhaps a cell of one's own above it."""
    notebook = handed_in({**solutions(CHAPTER), exercise: source}, chapter=CHAPTER)
    if before:
        at = next(i for i, c in enumerate(notebook.cells) if c.metadata.get("exercise") == exercise)
        notebook.cells.insert(at, own_cell(before))
    return Person(to_bytes(notebook), {exercise: 0.0})


def _for_each(change: Callable[[NotebookNode], None]) -> Callable[[NotebookNode], None]:
    def all_cells(notebook: NotebookNode) -> None:
        for cell in notebook.cells:
            change(cell)

    return all_cells


def _windows(cell: NotebookNode) -> None:
    cell.source = cell.source.replace("\n", "\r\n")


def _without_id(cell: NotebookNode) -> None:
    cell["id"] = ""


def _own_cells(notebook: NotebookNode) -> None:
    for at in range(len(notebook.cells), 0, -5):
        notebook.cells.insert(at, own_cell(f"notes_{at} = 'what I tried'", f"note-{at}"))


def _import_in_setup(notebook: NotebookNode) -> None:
    next(c for c in notebook.cells if c.id == "setup").source += "\nimport math, functools"


def _helper_below(notebook: NotebookNode) -> None:
    """A helper in a cell of one's own, used by the first exercise."""
    at = next(i for i, c in enumerate(notebook.cells) if c.metadata.get("exercise") == FIRST)
    function = get(FIRST).function
    text = notebook.cells[at].source
    notebook.cells[at].source = f"{function} = mine"
    notebook.cells.insert(at, own_cell(text.replace(f"def {function}(", "def mine(")))


def _renamed(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.metadata.get("exercise") == FIRST)
    cell.source = cell.source.replace("_gmem", "_in_global_memory")


def _zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"homework/{CHAPTER}.ipynb", data)
    return packed.getvalue()


def _unusual(honest: Honest) -> Person:
    """The whole chapter with an answer of `honest` in it, and the cells that come with it."""
    texts = {**solutions(CHAPTER), honest.exercise: honest.answer}
    notebook = handed_in(texts, chapter=CHAPTER)
    at = next(
        i for i, c in enumerate(notebook.cells) if c.metadata.get("exercise") == honest.exercise
    )
    below = [own_cell(text, f"below-{n}") for n, text in enumerate(honest.below)]
    above = [own_cell(text, f"above-{n}") for n, text in enumerate(honest.above)]
    notebook.cells[at : at + 1] = [*above, notebook.cells[at], *below]
    return Person(to_bytes(notebook))


def answering(texts: Mapping[str, str]) -> Person:
    """These texts in the cells of their exercises, none of which earns anything; the rest right."""
    notebook = handed_in({**solutions(CHAPTER), **texts}, chapter=CHAPTER)
    return Person(to_bytes(notebook), dict.fromkeys(texts, 0.0))


def wrong_answers(exercise: str) -> tuple[str, ...]:
    """The names of an exercise's wrong answers."""
    wrong: Mapping[str, Wrong] = importlib.import_module(f"tests.wrong_answers.{exercise}").WRONG
    return tuple(wrong)


def _wrong() -> dict[str, Person]:
    """Every wrong answer of every exercise: one person has the first of each, and so on."""
    rows = itertools.zip_longest(*map(wrong_answers, EXERCISES))
    return {
        f"wrong {n}": answering(
            {e: wrong_answer(e, name) for e, name in zip(EXERCISES, row, strict=True) if name}
        )
        for n, row in enumerate(rows)
    }


def _known_cheats() -> dict[str, Person]:
    """The cheats of `cheating` that pretend to answer this chapter, several in a notebook."""
    mine = {n: c for n, c in CHEATS.items() if c.exercise in EXERCISES}
    people = {}
    for n, paper in enumerate(papers(mine)):
        person = answering({c.exercise: c.source for c in paper.values()})
        harms = any(c.alone for c in paper.values())
        people[f"cheat {n}"] = dataclasses.replace(person, harms=harms)
    return people


_SAYS_RIGHT = f'print("{FIRST}: correct on 3 shapes.")'
_FUNCTION = get(FIRST).function


def _cheats() -> dict[str, Person]:
    stub = next(
        c.source
        for c in release(CHAPTER).skeletons[CHAPTER].cells
        if c.metadata.get("exercise") == FIRST
    )
    returns = f"def {_FUNCTION}(*args, **kwargs):\n    "
    return {
        "cheat prints": instead(f"{stub}\n{_SAYS_RIGHT}"),
        "cheat replaces check": instead(stub, before=f"def check(*a, **k):\n    {_SAYS_RIGHT}"),
        "cheat reference": instead(
            f"{returns}from course_lib.exercises import get\n"
            f"    return get('{FIRST}').reference(*args, **kwargs)"
        ),
        "cheat library": instead(
            f"from course_lib.kernels import start_here\n"
            f"{returns}return start_here.{_FUNCTION}_reference(*args, **kwargs)"
        ),
        "cheat exits": instead(f"{returns}import os\n    os._exit(0)"),
        "cheat kills": instead(f"{returns}import os, signal\n    os.kill(os.getppid(), 9)"),
        "cheat forks": instead(f"{returns}import os\n    while True: os.fork()"),
        "cheat hungry": instead(f"{returns}return [bytearray(1 << 28) for _ in range(999)]"),
        "cheat skips": instead(f"# NBVAL_SKIP\n{stub}"),
        "cheat writes": instead(f"{returns}open('answer.json', 'w').write('right'); return 1"),
        "cheat equal": instead(
            f"class Yes(int):\n    __eq__ = lambda *a: True\n{returns}return Yes(1)"
        ),
    }


def _broken() -> dict[str, Person]:
    whole = solved()
    return {
        "broken empty": Person(b"", NONE),
        "broken cut": Person(whole[: len(whole) // 2], NONE),
        "broken picture": Person(b"\xff\xd8\xff\xe0", NONE),
        "broken json": Person(b'{"cells": 3, "nbformat": 4}', NONE),
        "broken zip": Person(b"PK\x03\x04 no", NONE, "work.zip"),
        "broken huge": Person(b'{"x": "' + b"a" * (60 << 20) + b'"}', NONE),
    }


def _honest() -> dict[str, Person]:
    return {
        "Ada Lovelace_1001_assignsubmission_file_": Person(solved()),
        "王芳_1002_assignsubmission_file_": Person(solved(_for_each(_windows))),
        "honest no ids": Person(solved(_for_each(_without_id))),
        "honest own cells": Person(solved(_own_cells)),
        "honest import": Person(solved(_import_in_setup)),
        "honest helper": Person(solved(_helper_below)),
        "honest names": Person(solved(_renamed)),
        "honest zip": Person(_zipped(solved()), name="work.zip"),
        **{f"honest {n}": _unusual(answer) for n, answer in enumerate(ANSWERS.values())},
        "partly none": only(),
        **{f"partly {e.split('.')[1]}": only(e) for e in EXERCISES},
        "partly all but one": only(*OTHERS),
    }


def cheated() -> int:
    """How many cheats there are in the class, some of them several in a notebook."""
    return len(_cheats()) + sum(c.exercise in EXERCISES for c in CHEATS.values())


@functools.cache
def everybody() -> dict[str, Person]:
    """The whole class, by the name of their folder."""
    return {**_honest(), **_wrong(), **_broken(), **_cheats(), **_known_cheats()}


def lay_out(folder: Path) -> Path:
    """Writes everybody's work into the folder of submissions."""
    for name, person in everybody().items():
        path = folder / name / person.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(person.data)
    return folder
