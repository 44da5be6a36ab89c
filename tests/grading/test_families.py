"""Hidden shapes: every exercise has some, from a seed; a table of the public ones earns nothing.

The right twin is the course's own solution, which is right on all that is drawn. The wrong twin
is the same function with a table of the public shapes: anything else it fills with ones.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest

from course_lib.exercises import Case, all_exercises, get, judge, variations
from course_lib.exercises.registry import numpy_dtype
from course_lib.grading.families import DRAWN, FAMILIES, ORDER, Draw, around, hidden_cases
from tests.grading.answers import mark_all
from tests.grading.test_variants import function_of, solution

pytestmark = pytest.mark.timeout(900)

PALLAS = [e.id for e in all_exercises() if e.program is None]
CHAPTERS = list(dict.fromkeys(i.split(".")[0] for i in PALLAS))
SEEDS = (1, 20_260_930, 2**59 + 7)
QUICK = {
    "start_here.fill_iota",
    "start_here.reverse_rows",
    "start_here.double_through_smem",
    "grid_scheduling.snake",
    "asynchronous_copies.difference",
    "wgmma_pipelining.roofline",
    "debugging.gelu",
    "debugging.pull_back",
}
JUDGED = [pytest.param(i, marks=() if i in QUICK else pytest.mark.slow) for i in PALLAS]


def hidden(exercise_id: str, seed: int) -> tuple[Case, ...]:
    """All that an answer to the course's own exercise is marked on."""
    return hidden_cases(get(exercise_id), seed=seed, plain=get(exercise_id))


def drawn(exercise_id: str, seed: int) -> tuple[Case, ...]:
    """The cases among them that nobody has seen."""
    return hidden(exercise_id, seed)[len(get(exercise_id).cases) :]


# A function that has learnt the public cases by heart.

_IMPORTS = "import functools, math\nimport numpy as np\n"
_BY_HEART = """
_right_{name} = {name}

def {name}(*args, **numbers):
    shapes = tuple((a.shape, a.dtype.name) for a in args)
    if (shapes, numbers) in {known!r}:
        return _right_{name}(*args, **numbers)
    out = jax.eval_shape(functools.partial(_right_{name}, **numbers), *args)
    return {otherwise}
"""
_ONES = "jax.tree.map(lambda o: jnp.ones(o.shape, o.dtype), out)"
_KERNEL = """
def _ones_{name}(out):
    def kernel(*refs):
        for ref in refs:
            whole = math.prod(ref.shape) % 128 == 0  # that each lane has some
            for place in [...] if whole else np.ndindex(ref.shape):
                ref[place] = jnp.ones(ref.shape if whole else (), ref.dtype)

    return plgpu.kernel(kernel, out_type=out)()
"""


def by_heart(exercise_id: str) -> str:
    """The text of the wrong twin's cell: of the solution, with a table around it."""
    exercise = get(exercise_id)
    name = exercise.function
    known = [(tuple((a.shape, a.dtype) for a in c.args), dict(c.static)) for c in exercise.cases]
    otherwise = f"_ones_{name}(out)" if exercise.needs_kernel else _ONES
    twin = _BY_HEART.format(name=name, known=known, otherwise=otherwise)
    return f"{_IMPORTS}{solution(exercise_id)}\n{_KERNEL.format(name=name)}{twin}"


def test_every_exercise_in_pallas_has_a_family() -> None:
    assert set(PALLAS) <= set(FAMILIES) <= {e.id for e in all_exercises()}


def test_an_exercise_without_a_family_is_marked_on_what_it_shows() -> None:
    unknown = dataclasses.replace(get("start_here.fill_iota"), id="start_here.of_no_family")
    assert hidden_cases(unknown, seed=1, plain=unknown) == unknown.cases
    assert around(unknown.id) == ORDER


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exercise_id", PALLAS)
def test_what_is_drawn_is_new_and_of_the_exercises_form(exercise_id: str, seed: int) -> None:
    shown, new = get(exercise_id).cases, drawn(exercise_id, seed)
    assert hidden(exercise_id, seed)[: len(shown)] == shown
    assert len(new) == DRAWN
    assert len({str(c) for c in (*shown, *new)}) == len(shown) + DRAWN
    for case in new:
        assert set(case.static) == set(shown[0].static)
        assert [len(a.shape) for a in case.args] == [len(a.shape) for a in shown[0].args]
        assert all(n >= 1 for a in case.args for n in a.shape)
        assert all(numpy_dtype(a.dtype).itemsize <= 4 for a in case.args)


@pytest.mark.parametrize("exercise_id", PALLAS)
def test_a_seed_always_draws_the_same_and_seeds_differ(exercise_id: str) -> None:
    by_seed = [str(drawn(exercise_id, seed)) for seed in range(12)]
    assert by_seed == [str(drawn(exercise_id, seed)) for seed in range(12)]
    assert len(set(by_seed)) > 3


def test_two_exercises_of_one_family_are_drawn_apart() -> None:
    circles = [str(drawn(f"many_gpus.{n}", 3)) for n in ("pass_left", "neighbours", "fetch")]
    assert len(set(circles)) > 1


def test_a_negative_seed_is_a_seed() -> None:
    assert len(drawn("start_here.fill_iota", -5)) == DRAWN


def test_a_variant_is_of_the_family_unless_it_has_cases_of_its_own() -> None:
    plain = get("asynchronous_copies.triple")
    varied = variations.exercise(plain.id, "factor=7, slots=3")
    assert hidden_cases(varied, seed=3, plain=plain) == hidden(plain.id, 3)
    own = dataclasses.replace(varied, cases=plain.cases[:1])
    assert hidden_cases(own, seed=3, plain=plain) == plain.cases[:1]


def test_a_draw_keeps_its_bounds_and_reaches_them() -> None:
    r = Draw([7])
    assert {r(2, 4, 64) for _ in range(200)} == {128, 192, 256}
    assert {r.of("a", 3) for _ in range(100)} == {"a", 3}
    assert {r.half() for _ in range(100)} == {"float16", "bfloat16"}
    assert {r.float() for _ in range(100)} == {"float32", "float16", "bfloat16"}


# The right twin and the wrong one.


@pytest.mark.parametrize("exercise_id", JUDGED)
def test_the_courses_solution_is_right_on_what_is_drawn(exercise_id: str) -> None:
    answer = function_of(exercise_id, solution(exercise_id))
    # The first that is shown is the one whose instructions are counted, as marking does.
    shown = get(exercise_id).cases[:1]
    cases = [*shown, *(case for seed in SEEDS[:2] for case in drawn(exercise_id, seed))]
    verdict = judge(exercise_id, answer, cases=cases, native=False)
    assert verdict.ok, verdict


@pytest.mark.parametrize("exercise_id", sorted(QUICK))
def test_a_table_of_the_public_shapes_passes_these_and_no_others(exercise_id: str) -> None:
    answer = function_of(exercise_id, by_heart(exercise_id))
    assert judge(exercise_id, answer, native=False).ok
    verdict = judge(exercise_id, answer, cases=drawn(exercise_id, SEEDS[0]), native=False)
    assert verdict.fault in ("value", "means"), verdict


@functools.cache
def marked(chapter: str) -> dict[str, tuple[str, str, float, int, int]]:
    """What a chapter's wrong twins get: verdict, fault, points, cases passed, cases shown."""
    ids = [i for i in PALLAS if i.startswith(f"{chapter}.")]
    marks = mark_all(chapter, {i: (i, by_heart(i)) for i in ids})
    return {
        i: (m.verdict, m.fault, m.points, m.passed, len(get(i).cases)) for i, m in marks.items()
    }


@pytest.mark.needs("bubblewrap")
@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_marking_refuses_a_table_of_the_public_shapes(chapter: str) -> None:
    for exercise_id, (verdict, _, points, passed, shown) in marked(chapter).items():
        assert (verdict, points) == ("wrong", 0), exercise_id
        assert passed == shown, exercise_id
