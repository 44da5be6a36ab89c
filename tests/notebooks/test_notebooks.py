"""The stored notebooks are what their sources say, and show every reader the same.

Running them again is `python -m course_lib.authoring.verification`'s work.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course_lib.authoring import BuildError, Course, build, read_chapter

COURSE = Course()
CHAPTERS = [path.stem for path in COURSE.sources()]
LISTED = tomllib.loads((Path(__file__).parent / "uncompared.toml").read_text())["cell"]
STUB = re.compile(
    r"^(?P<indent> +)# Your code here \(about \d+ lines?\)\.\n"
    r'(?P=indent)raise NotImplementedError\("not done yet"\)\n',
    re.MULTILINE,
)
REGION = re.compile(r"^ +### BEGIN SOLUTION\n.*?^ +### END SOLUTION\n", re.MULTILINE | re.DOTALL)
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS)
each_notebook = pytest.mark.parametrize(
    "path",
    [folder / f"{c}.ipynb" for c in CHAPTERS for folder in (COURSE.solutions, COURSE.notebooks)],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: Any) -> str:
    return "".join(cell["source"]) + "\n"


def test_there_are_chapters() -> None:
    assert CHAPTERS


@each_chapter
def test_the_notebooks_are_those_of_the_source(chapter: str) -> None:
    sentences: tuple[str, ...] = ()
    try:
        build([chapter], check=True)
    except BuildError as error:
        sentences = error.sentences
    if sentences:
        pytest.fail("\n".join(sentences), pytrace=False)


def test_no_notebook_is_left_over() -> None:
    for folder in (COURSE.solutions, COURSE.notebooks):
        assert sorted(p.stem for p in folder.glob("*.ipynb")) == CHAPTERS


@each_chapter
def test_the_learners_notebook_is_the_solution_without_the_solution_regions(chapter: str) -> None:
    """Independent of the build: with the regions and the stubs cut out, the rest is equal."""
    solution, learners = (
        load(folder / f"{chapter}.ipynb")["cells"]
        for folder in (COURSE.solutions, COURSE.notebooks)
    )
    assert [c["id"] for c in solution] == [c["id"] for c in learners]
    for ours, theirs in zip(solution, learners, strict=True):
        assert ours["cell_type"] == theirs["cell_type"]
        assert ours["metadata"] == theirs["metadata"]
        rest, cut = REGION.subn("", source(ours))
        assert (rest, cut) == STUB.subn("", source(theirs))
        assert bool(cut) == ("exercise" in ours["metadata"].get("tags", ()))
        if "SOLUTION" in source(theirs):
            pytest.fail(f"{chapter}, cell {theirs['id']}: a solution marker in learner's notebook")


@each_chapter
def test_given_cells_print_the_same_in_both_notebooks(chapter: str) -> None:
    solution, learners = (
        load(folder / f"{chapter}.ipynb")["cells"]
        for folder in (COURSE.solutions, COURSE.notebooks)
    )
    for ours, theirs in zip(solution, learners, strict=True):
        tags = set(ours["metadata"].get("tags", ()))
        if not tags & {"exercise", "check", "nbval-ignore-output"}:
            assert ours.get("outputs") == theirs.get("outputs"), ours["id"]


@each_notebook
def test_every_code_cell_has_been_run_and_none_has_raised(path: Path) -> None:
    """nbval passes over a cell that has no execution count."""
    code = [c for c in load(path)["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    kinds = {o["output_type"] for c in code for o in c["outputs"]}
    assert "error" not in kinds


@each_notebook
def test_a_notebook_is_valid_and_holds_nothing_of_one_machine_or_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    nbformat.validate(nbformat.reads(text, as_version=nbformat.NO_CONVERT))
    for trace in ("widget-view+json", '"widgets"', "ipykernel_", "/tmp/", str(COURSE.root) + "/"):
        assert trace not in text
    assert "version" not in load(path)["metadata"]["language_info"]


@each_notebook
def test_every_picture_has_a_description(path: Path) -> None:
    for cell in load(path)["cells"]:
        for output in cell.get("outputs", ()):
            for mime in output.get("data", {}):
                if mime in ("image/png", "image/jpeg"):
                    assert output["metadata"][mime]["alt"].strip(), cell["id"]


def test_every_cell_that_is_not_compared_is_listed_with_its_reason() -> None:
    tagged = [
        (path.stem, cell.id)
        for path in COURSE.sources()
        for cell in read_chapter(path).code
        if "nbval-ignore-output" in cell.tags
    ]
    assert sorted(tagged) == sorted((row["chapter"], row["cell"]) for row in LISTED)
    assert all(set(row) == {"chapter", "cell", "reason"} for row in LISTED)
    assert all(len(row["reason"].split()) >= 5 for row in LISTED)


def test_few_cells_are_not_compared() -> None:
    code = sum(len(read_chapter(path).code) for path in COURSE.sources())
    assert len(LISTED) <= max(2, code // 20)
