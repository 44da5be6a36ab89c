"""A release: what a class gets gives nothing away, and grading finds what was given out."""

from __future__ import annotations

import ast
import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib import cli
from course_lib.authoring.files import read_notebook
from course_lib.authoring.regions import regions
from course_lib.authoring.source import Course, find_sources, read_chapter
from course_lib.diagnostics import CourseError
from course_lib.exercises import get, variations
from course_lib.grading import release as releases
from course_lib.grading.skeletons import exercises_of
from course_lib.setup_env import ROOT

CHAPTERS = ("03", "05")
DEADLINE = datetime.datetime(2026, 5, 4, 23, 59, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    return releases.release(CHAPTERS, folder / "handout", seed=7, deadline=DEADLINE)


@pytest.fixture
def handout(kept: Path) -> Path:
    return kept.with_name("handout")


def packed(text: str) -> str:
    """A text without its layout."""
    return "".join(text.split())


def strings(data: object) -> Iterator[str]:
    """Every string in what was JSON; the lines of a cell are a list of them."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, list | dict):
        for part in data.values() if isinstance(data, dict) else data:
            yield from strings(part)


def content(path: Path) -> str:
    """What a file says, packed: of a notebook all texts, without the quotes that JSON has."""
    text = path.read_text(encoding="utf-8")
    return packed("".join(strings(json.loads(text))) if path.suffix == ".ipynb" else text)


def solution_lines() -> Iterator[tuple[str, str]]:
    """Every line of every solution of the course that is long enough to say something."""
    for source in find_sources(Course()):
        for cell in read_chapter(source).exercises:
            lines = cell.text.splitlines()
            for region in regions(cell.text):
                body = "".join(lines[region.begin : region.end - 1])
                yield cell.exercise, packed(body)


def wrong_answers() -> Iterator[str]:
    for path in sorted((ROOT / "tests" / "wrong_answers").glob("*/*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                yield packed("".join(ast.unparse(s) for s in node.body))


def everything(folder: Path) -> str:
    return "".join(content(p) for p in folder.rglob("*") if p.is_file())


def test_the_handout_holds_no_solution(handout: Path) -> None:
    given = everything(handout)
    found = [name for name, body in solution_lines() if len(body) > 60 and body in given]
    assert found == []


def test_that_search_would_find_one(handout: Path) -> None:
    """The solved record holds every solution of its chapter."""
    solved = content(Course().solutions / "05_asynchronous_copies.ipynb")
    found = {name for name, body in solution_lines() if len(body) > 60 and body in solved}
    assert len(found) == 6
    assert len(everything(handout)) > 10_000


def test_the_handout_holds_no_wrong_answer_and_no_module(handout: Path) -> None:
    given = everything(handout)
    assert [w for w in wrong_answers() if len(w) > 120 and w in given] == []
    assert {p.suffix for p in handout.rglob("*") if p.is_file()} == {".ipynb", ".md"}


def test_the_handout_holds_no_output_and_no_answer_to_a_prediction(handout: Path) -> None:
    for path in handout.glob("*.ipynb"):
        for cell in read_notebook(path).cells:
            if cell.cell_type != "code":
                continue
            assert cell.outputs == []
            if "predict" in cell.metadata.get("tags", ()):
                assert "..." in cell.source


def test_the_handout_holds_neither_secret_nor_seed(kept: Path, handout: Path) -> None:
    released = releases.read_release(kept)
    assert len(released.secret) == 32
    assert released.secret not in everything(handout)
    assert "rubric" not in {p.stem for p in handout.rglob("*")}


def test_a_release_is_read_as_it_was_made(kept: Path) -> None:
    released = releases.read_release(kept / "release.toml")
    assert released.chapters == ("03_transforms", "05_asynchronous_copies")
    assert released.seed == 7
    assert released.rubric.late.deadline == DEADLINE
    assert len(released.exercises) == 11
    for exercise in released.exercises:
        text = variations.to_text(variations.draw(get(exercise), seed=7))
        assert released.variants[exercise] == text
    assert releases.read_release(kept).digest() == released.digest()


def test_a_variant_is_what_the_notebook_says(kept: Path, handout: Path) -> None:
    released = releases.read_release(kept)
    for path in handout.glob("*.ipynb"):
        notebook = read_notebook(path)
        text = "\n".join(c.source for c in notebook.cells)
        for exercise in exercises_of(notebook):
            assert f'variant="{released.variants[exercise]}"' in text


def test_seeds_draw_different_releases(tmp_path: Path) -> None:
    one, two, same = (
        releases.read_release(releases.release(["05"], tmp_path / f"{n}", seed=seed)).variants
        for n, seed in enumerate((1, 2, 1))
    )
    assert one == same
    assert one != two


def test_without_a_seed_it_is_the_courses_own(tmp_path: Path) -> None:
    released = releases.read_release(releases.release(["05"], tmp_path / "out"))
    assert released.variants == {}
    own = read_notebook(Course().notebooks / "05_asynchronous_copies.ipynb")
    given = read_notebook(tmp_path / "out" / "05_asynchronous_copies.ipynb")
    assert [c.source for c in given.cells] == [c.source for c in own.cells]


def test_what_a_class_has_got_is_not_written_over(kept: Path, handout: Path) -> None:
    with pytest.raises(CourseError, match="holds something already"):
        releases.release(CHAPTERS, handout, seed=8)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["release", "77", "--to", "out"], 'no chapter "77"'),
        (["release", "03", "--to", "out", "--deadline", "soon"], "is no date"),
        (["release", "03", "--to", "out", "--deadline", "2026-05-04"], "add the time of day"),
        (["release", "03", "--to", "out", "--rubric", "none.toml"], "none.toml cannot be read"),
        (["release", "03", "--to", "a_file/out"], "a_file is a file"),
        (["grade", "in", "--out", "out"], "What was given out?"),
        (["grade", "in", "--out", "a_file"], "a_file is a file"),
        (["grade", "in", "--out", "in/report"], "is inside in"),
        (["grade", "in", "--out", "out", "--release", "nowhere"], "There is no nowhere"),
        (["grade", "in", "--out", "out", "--chapters", "05", "--exercise", "x"], "no exercise 'x'"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    assert cli.main(arguments) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--jobs", "--time-limit"])
@pytest.mark.parametrize("number", ["0", "-3", "many"])
def test_a_number_of_things_is_at_least_one(
    option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["grade", "in", "--out", "out", f"{option}={number}"])
    assert "not a whole number from 1 up" in capsys.readouterr().err


def test_points_for_what_was_not_given_out_are_refused(tmp_path: Path) -> None:
    rubric = tmp_path / "mine.toml"
    rubric.write_text('[points]\n"asynchronous_copies.tripel" = 3')
    with pytest.raises(CourseError, match=r"tripel.*was not given out"):
        releases.release(["05"], tmp_path / "out", rubric=rubric)
    assert not list(tmp_path.glob("out*"))  # the next try meets nothing half done
    rubric.write_text('[points]\n"asynchronous_copies.triple" = 3')
    kept = releases.release(["05"], tmp_path / "out", rubric=rubric)
    assert releases.read_release(kept).rubric.of("asynchronous_copies.triple") == 3
    (kept / "rubric.toml").write_text('[points]\n"asynchronous_copies.tripel" = 3')
    with pytest.raises(CourseError, match=r"tripel.*was not given out"):
        releases.read_release(kept)


def test_only_some_chapters_of_a_release(kept: Path) -> None:
    released = releases.read_release(kept)
    assert releases.only(released, ["05"]).chapters == ("05_asynchronous_copies",)
    with pytest.raises(CourseError, match="was not released"):
        releases.only(released, ["06"])
