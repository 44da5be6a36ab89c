"""The stored notebooks are what their sources say, and show every reader the same.

Running them again is `python -m course_lib.authoring.verification`'s work.
"""

from __future__ import annotations

import ast
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
    r"(?P=indent)(raise NotImplementedError\(|comptime assert False, )"
    r'"not done yet"\)?\n',
    re.MULTILINE,
)
OUTCOME = re.compile(r"^Prediction ([\w-]+)(?:, (\w+))?: the run gives (.*)\.$", re.MULTILINE)
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
    """Independent of the build: with regions, stubs and predictions cut out, the rest is equal."""
    solution, learners = (
        load(folder / f"{chapter}.ipynb")["cells"]
        for folder in (COURSE.solutions, COURSE.notebooks)
    )
    assert [c["id"] for c in solution] == [c["id"] for c in learners]
    for ours, theirs in zip(solution, learners, strict=True):
        assert ours["cell_type"] == theirs["cell_type"]
        assert ours["metadata"] == theirs["metadata"]
        if "predict" in ours["metadata"].get("tags", ()):
            assert asked(theirs) == {**asked(ours), "answers": set()}
            continue
        rest, cut = REGION.subn("", source(ours))
        assert (rest, cut) == STUB.subn("", source(theirs))
        assert bool(cut) == ("exercise" in ours["metadata"].get("tags", ()))
        if "SOLUTION" in source(theirs):
            pytest.fail(f"{chapter}, cell {theirs['id']}: a solution marker in learner's notebook")


def asked(cell: Any) -> dict[str, Any]:
    """A cell that predicts, without its answers: its question, parts and choices; the answers."""
    (call,) = (
        node
        for node in ast.walk(ast.parse(source(cell)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "predict"
    )
    first, *values = call.args
    parts = {k.arg: k.value for k in call.keywords if k.arg != "choices"}
    answers = {ast.unparse(v) for v in (*values, *parts.values())} - {"..."}
    choices = [ast.unparse(k.value) for k in call.keywords if k.arg == "choices"]
    return {
        "question": ast.literal_eval(first),
        "parts": sorted(parts) if parts else [""],
        "choices": choices,
        "answers": answers,
    }


def outcomes(cell: Any) -> list[tuple[str, str, str]]:
    """(question's name, part, what is said of it) for each line of `reveal` in a cell's output."""
    printed = ["".join(o["text"]) for o in cell.get("outputs", ()) if "text" in o]
    return [found for text in printed for found in OUTCOME.findall(text)]


@each_chapter
def test_the_sources_predictions_are_confirmed_by_the_run(chapter: str) -> None:
    """Each part of each question, in a cell below it, and nothing before that."""
    waiting: set[tuple[str, str]] = set()
    for cell in load(COURSE.solutions / f"{chapter}.ipynb")["cells"]:
        for name, part, verdict in outcomes(cell):
            assert ", as you predicted" in verdict, (cell["id"], name, part, verdict)
            assert (name, part) in waiting, (cell["id"], name, part)
            waiting.discard((name, part))
        if "predict" in cell["metadata"].get("tags", ()):
            question = asked(cell)
            assert question["answers"], cell["id"]
            waiting |= {(question["question"].split(".")[1], p) for p in question["parts"]}
    assert not waiting


@each_chapter
def test_the_learners_notebook_predicts_nothing_and_says_so(chapter: str) -> None:
    cells = load(COURSE.notebooks / f"{chapter}.ipynb")["cells"]
    solved = {c["id"]: c for c in load(COURSE.solutions / f"{chapter}.ipynb")["cells"]}
    for cell in cells:
        if "predict" in cell["metadata"].get("tags", ()):
            assert asked(cell)["answers"] == set()
            (output,) = cell["outputs"]
            assert "".join(output["text"]).startswith("Your prediction? Write it in place of")
        revealed = outcomes(cell)
        assert all(v.endswith("You made no prediction") for *_, v in revealed), cell["id"]
        assert [r[:2] for r in revealed] == [r[:2] for r in outcomes(solved[cell["id"]])]


@each_chapter
def test_given_cells_print_the_same_in_both_notebooks(chapter: str) -> None:
    solution, learners = (
        load(folder / f"{chapter}.ipynb")["cells"]
        for folder in (COURSE.solutions, COURSE.notebooks)
    )
    for ours, theirs in zip(solution, learners, strict=True):
        tags = set(ours["metadata"].get("tags", ()))
        if not tags & {"exercise", "check", "predict", "nbval-ignore-output"}:
            assert given_outputs(ours) == given_outputs(theirs), ours["id"]


def given_outputs(cell: Any) -> list[Any]:
    """What a cell prints, without what `reveal` says about predictions."""
    printed = []
    for output in cell.get("outputs", ()):
        text = "".join(output.get("text", ()))
        rest = re.sub(OUTCOME.pattern + r"\n?", "", text, flags=re.MULTILINE)
        printed += [{**output, "text": rest}] if rest or not text else []
    return printed


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
