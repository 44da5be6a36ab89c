"""On a real GPU: `course grade --gpu` runs what is right natively, and only that; no mark changes.

python -m pytest tests/gpu/test_grading_on_the_card.py -m gpu
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import pytest

from course_lib import runtime
from course_lib.grading.card import Card
from course_lib.grading.marking import mark_submission
from course_lib.grading.model import ExerciseMark, Merged
from course_lib.grading.sandbox import NoSandbox, Sandbox
from tests.grading.answers import RUBRIC, SEED, solved, wrong_answer
from tests.grading.classroom import solutions

pytestmark = pytest.mark.gpu

CHAPTER = "asynchronous_copies"
HANG_S = 15.0
# Whoever is called with arrays, and not only traced, has them in files beside it.
_ON_CARD = 'import glob\nHERE = bool(glob.glob("in*.npy"))\n'


@functools.cache
def walled() -> Sandbox | None:
    """The sandbox, where this machine can have one."""
    try:
        return Sandbox.probe()
    except NoSandbox as why:
        print(f"no sandbox: {why}", flush=True)
        return None


@functools.cache
def card(box: Sandbox, limit_s: float = 60.0) -> Card:
    found = Card(box, limit_s=limit_s)
    assert found.device is not None, found.why
    print(f"the card: {found.device}; unsafe: {box.unsafe}", flush=True)
    return found


def answered(answers: Mapping[str, str]) -> Merged:
    """The solved chapter with other answers to some of its exercises."""
    merged = solved(CHAPTER)
    named = {f"{CHAPTER}.{name}": source for name, source in answers.items()}
    cells = (dataclasses.replace(c, source=named.get(c.exercise, c.source)) for c in merged.cells)
    return dataclasses.replace(merged, cells=tuple(cells))


def marks(merged: Merged, on: Card, box: Sandbox, *names: str) -> dict[str, ExerciseMark]:
    """The marks by the exercise's name, of those named or of all."""
    wanted = [f"{CHAPTER}.{n}" for n in names] or None
    found = mark_submission(merged, RUBRIC, seed=SEED, sandbox=box, exercises=wanted, card=on)
    for mark in found:
        print(f"{mark.exercise}: {mark.verdict}; {mark.card}; {mark.flags}", flush=True)
    return {m.exercise.split(".")[1]: m for m in found}


def test_the_solutions_of_a_chapter_are_right_on_the_card() -> None:
    box = walled() or Sandbox(unsafe=True)
    on = card(box)
    found = marks(solved(CHAPTER), on, box)
    assert {m.verdict for m in found.values()} == {"right"}
    assert not any(m.flags for m in found.values())
    kinds = {name: m.card.kind for name, m in found.items() if m.card}
    gathers = "right" if on.device and "tma gather" in on.device.features else "not-run"
    tma = "right" if on.device and "tma" in on.device.features else "not-run"
    assert kinds == {**dict.fromkeys(found, tma), "gather_rows": gathers}


# "walled" is how a class is graded; "open" is `--unsafe-no-sandbox`.
@pytest.mark.parametrize("kind", ["walled", "open"])
def test_what_is_not_clean_is_not_run_and_a_hang_costs_its_own_exercise(kind: str) -> None:
    box = walled() if kind == "walled" else Sandbox(unsafe=True)
    if box is None:
        pytest.skip("this machine can have no sandbox")
    on = card(box, HANG_S)
    if on.device is None or runtime.lacks(_TMA, on.device):
        pytest.skip("this card has no copy engine")
    own = solutions(f"05_{CHAPTER}")[f"{CHAPTER}.multiply_add"]
    hangs = own.replace("num_arrivals=3", "num_arrivals=4 if HERE else 3")
    merged = answered(
        {
            "multiply_add": _ON_CARD + hangs,
            "triple": "def triple(x):\n    return 3 * x\n",
            "sum_and_difference": wrong_answer(
                f"{CHAPTER}.sum_and_difference", "counts copies where there are groups"
            ),
        }
    )
    found = marks(merged, on, box, "multiply_add", "triple", "sum_and_difference", "difference")
    assert (found["triple"].verdict, found["triple"].card) == ("wrong", None)
    racy = found["sum_and_difference"]
    assert racy.finding is not None
    assert racy.finding.rule == "store-source-overwritten"
    assert (racy.ok, racy.card) == (False, None)
    hung = found["multiply_add"]
    assert (hung.verdict, hung.points) == ("right", RUBRIC.default_points)
    assert hung.card is not None
    assert hung.card.kind == "time"
    assert any("did not end within 15 s" in flag for flag in hung.flags)
    later = found["difference"]
    assert later.card is not None
    assert later.card.kind == "right", later.card


_TMA = runtime.Requirements(frozenset({"tma"}))
