"""The model puts the steps of the ladder into the order that an H200 has them in."""

from __future__ import annotations

import pytest

from tests.simulator import against_h200
from tests.simulator.against_interpret_mode import DOC

CASES = ("4096x4096x4096 float16", "4096x8192x4096 bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_ladder_has_the_order_of_the_card(case) -> None:
    measured = against_h200.measured()[case]
    card = {name: time for name, (time, _) in measured.items()}
    model = {n: against_h200.predicted(case, n, config) for n, (_, config) in measured.items()}
    assert len(card) == 13
    assert against_h200.out_of_order(card, model) == []
    for name, time in card.items():
        assert model[name] == pytest.approx(time, rel=0.12), name


def test_the_document_has_both_columns() -> None:
    table = DOC.read_text().partition("<!-- ladder -->")[2].partition("<!-- end ladder -->")[0]
    for case in against_h200.measured():
        assert f"{case}: H200 | model" in table, "run python -m tests.simulator.against_h200"
    assert "Out of order: none." in table


def test_pairs_in_another_order_are_named_and_those_alike_are_not() -> None:
    card = {"a": 100.0, "b": 110.0, "c": 112.0}
    assert against_h200.out_of_order(card, {"a": 2.0, "b": 1.0, "c": 3.0}) == [("a", "b")]
    assert against_h200.out_of_order(card, {"a": 1.0, "b": 3.0, "c": 2.0}) == []
