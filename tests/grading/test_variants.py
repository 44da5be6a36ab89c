"""Variants: the same for the same seed, consistent in text, cases and truth, and not the course's.

For each exercise that has variants: its public solution fails, as it stands and with the
variant's given lines around it, and the variant's own solution passes.
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Callable
from typing import Any

import pytest

from course_lib.authoring.files import read_notebook
from course_lib.authoring.regions import learners_text, regions
from course_lib.authoring.source import Course, read_chapter
from course_lib.diagnostics import CourseError
from course_lib.exercises import all_exercises, check, get, judge, variations
from course_lib.grading.skeletons import ABOUT_HINTS, skeleton, with_variant
from tests.grading.variant_answers import answered, edited

pytestmark = pytest.mark.timeout(900)

VARIED = [e.id for e in all_exercises() if variations.of(e)]
QUICK = ("transforms.addresses", "transforms.swap_axes", "asynchronous_copies.triple")
JUDGED = [pytest.param(e, marks=() if e in QUICK else pytest.mark.slow) for e in VARIED]


@functools.cache
def solution(exercise_id: str) -> str:
    """The text of an exercise's cell in the source, solution regions included."""
    title = exercise_id.split(".")[0]
    [source] = Course().solutions.glob(f"??_{title}.md")
    chapter = read_chapter(source)
    return next(c.text for c in chapter.exercises if c.exercise == exercise_id)


def function_of(exercise_id: str, text: str) -> Callable[..., Any]:
    """The function that a cell's text defines, with what its chapter imports and defines."""
    namespace: dict[str, Any] = {}
    exec(given_above(exercise_id), namespace)
    exec(compile(text, f"<{exercise_id}>", "exec"), namespace)
    return namespace[get(exercise_id).function]


@functools.cache
def given_above(exercise_id: str) -> str:
    """The chapter's first cell, and what an exercise uses of the given cells above it.

    Statements that nothing needs, what these cells run above all, are left out.
    """
    title = exercise_id.split(".")[0]
    [source] = Course().solutions.glob(f"??_{title}.md")
    cells = [c for c in read_chapter(source).code if {"given", "exercise"} & set(c.tags)]
    place = next(i for i, c in enumerate(cells) if c.exercise == exercise_id)
    setup = next(c.text for c in cells if c.id == "setup")
    given = [c.text for c in cells[:place] if "given" in c.tags and c.id != "setup"]
    parsed = [s for text in given if text[0] != "%" for s in ast.parse(text).body]
    needed = used_by(cells[place].text)
    kept: list[str] = []
    for statement in reversed(parsed):
        text = ast.unparse(statement)
        if needed & defined_by(statement):
            needed |= used_by(text)
            kept.insert(0, text)
    return "\n".join([setup, *kept])


def used_by(text: str) -> set[str]:
    """The names that a text uses and that come from outside of its functions."""
    tables, names = [symtable.symtable(text, "cell", "exec")], set[str]()
    for table in tables:
        tables += table.get_children()
        outer = table.get_type() == "module"
        symbols = table.get_symbols()
        names |= {s.get_name() for s in symbols if s.is_global() or (outer and s.is_referenced())}
    return names


def defined_by(statement: ast.stmt) -> set[str]:
    """The names that a statement defines: a function, a class, imports, variables."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in statement.names}
    nodes = ast.walk(statement) if isinstance(statement, ast.Assign) else ()
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def given_with(exercise_id: str, values: variations.Values, *, own: bool) -> str:
    """The variant's given lines around the public solution, or around the variant's own."""
    text = solution(exercise_id)
    given = learners_text(text)
    for old, new in variations.edits(get(exercise_id), values):
        given = given.replace(old, new)
    lines, out = text.splitlines(), given
    answers: list[str] = []
    for region in regions(text):
        body = "\n".join(lines[region.begin : region.end - 1])
        out = out.replace("\n".join(region.stub), f"@region{len(answers)}@", 1)
        answers.append(body)
    whole = "\n@next@\n".join(answers)
    whole = edited(exercise_id, values, whole) if own else whole
    for n, body in enumerate(whole.split("\n@next@\n")):
        out = out.replace(f"@region{n}@", body)
    return out


def drawn(exercise_id: str, seed: int) -> variations.Values:
    return variations.draw(get(exercise_id), seed=seed)


def test_every_exercise_has_variants_but_the_mojo_programs() -> None:
    assert {e.id for e in all_exercises() if e.program is None} == set(VARIED)
    assert answered() == set(VARIED)


@pytest.mark.parametrize("exercise_id", JUDGED)
def test_the_public_solution_fails_a_variant(exercise_id: str) -> None:
    values = drawn(exercise_id, seed=11)
    text = variations.to_text(values)
    for answer in (solution(exercise_id), given_with(exercise_id, values, own=False)):
        verdict = judge(exercise_id, function_of(exercise_id, answer), variant=text, native=False)
        assert not verdict.ok, verdict


@pytest.mark.parametrize("exercise_id", JUDGED)
def test_the_variants_own_solution_passes(exercise_id: str) -> None:
    values = drawn(exercise_id, seed=11)
    answer = function_of(exercise_id, given_with(exercise_id, values, own=True))
    verdict = judge(exercise_id, answer, variant=variations.to_text(values), native=False)
    assert verdict.ok, verdict


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("exercise_id", VARIED)
def test_so_do_others(exercise_id: str, seed: int) -> None:
    values = drawn(exercise_id, seed=seed)
    text = variations.to_text(values)
    own = function_of(exercise_id, given_with(exercise_id, values, own=True))
    public = function_of(exercise_id, given_with(exercise_id, values, own=False))
    assert judge(exercise_id, own, variant=text, native=False).ok
    assert not judge(exercise_id, public, variant=text, native=False).ok


@pytest.mark.parametrize("exercise_id", VARIED)
def test_a_seed_always_draws_the_same_and_seeds_differ(exercise_id: str) -> None:
    draws = [variations.to_text(drawn(exercise_id, seed=s)) for s in range(40)]
    assert draws == [variations.to_text(drawn(exercise_id, seed=s)) for s in range(40)]
    assert len(set(draws)) > 1


@pytest.mark.parametrize("exercise_id", VARIED)
def test_every_variant_fits_the_text_of_the_notebook(exercise_id: str) -> None:
    title = exercise_id.split(".")[0]
    [path] = Course().notebooks.glob(f"??_{title}.ipynb")
    notebook = read_notebook(path)
    for seed in range(12):
        text = variations.to_text(drawn(exercise_id, seed=seed))
        cells = skeleton(notebook, {exercise_id: text}).cells
        changed = [
            c.id for c, old in zip(cells, notebook.cells, strict=True) if c.source != old.source
        ]
        assert len(changed) in (
            2,
            3,
        )  # the statement, the check, and the cell where it has given code
        assert sum(f'variant="{text}"' in c.source for c in cells) == 1
        assert sum(ABOUT_HINTS in c.source for c in cells) == 1


@pytest.mark.parametrize("exercise_id", VARIED)
def test_a_variant_says_its_numbers(exercise_id: str) -> None:
    values = drawn(exercise_id, seed=5)
    varied = variations.apply(get(exercise_id), values)
    assert varied.id == exercise_id
    assert varied.statement != get(exercise_id).statement
    for value in values.values():
        assert str(value) in varied.statement


def test_a_text_names_a_variant_and_back() -> None:
    exercise = get("asynchronous_copies.triple")
    values = variations.from_text(exercise, " slots=4,factor=7 ")
    assert variations.to_text(values) == "factor=7, slots=4"
    assert variations.exercise(exercise.id) is exercise


@pytest.mark.parametrize(
    ("exercise_id", "text", "says"),
    [
        ("asynchronous_copies.triple", "factor=5", "says factor and slots"),
        ("asynchronous_copies.triple", "factor=3, slots=3", "factor may be: 5"),
        ("asynchronous_copies.triple", "fast", '"name=number, ..."'),
        ("mojo_tiles.load", "factor=5", "has no variants"),
    ],
)
def test_a_variant_that_does_not_exist_is_refused(exercise_id: str, text: str, says: str) -> None:
    with pytest.raises(CourseError, match=says):
        check(exercise_id, lambda x: x, variant=text)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('check("a.b", f)', 'check("a.b", f, variant="k=1")'),
        ('check("a.b", f, expects={"é": 1})', 'check("a.b", f, expects={"é": 1}, variant="k=1")'),
        ('check(\n    "a.b",\n    f,\n)', 'check(\n    "a.b",\n    f,\nvariant="k=1")'),
        ('check("a.c", f)', 'check("a.c", f)'),
    ],
)
def test_a_check_is_told_its_variant(source: str, wanted: str) -> None:
    assert with_variant(source, "a.b", "k=1") == wanted
