"""The ladder's table, plot and roofline; and that chapter 08's words fit the newest record."""

from __future__ import annotations

import dataclasses
import re

import pytest

from course_lib.authoring import Course
from course_lib.benchmarks import card, ladder, records
from course_lib.diagnostics import CourseError
from course_lib.figures import png
from course_lib.kernels import matmul_ladder
from tests.benchmarks.fakes import DEVICE

H200 = "NVIDIA H200"
LARGE = "8192x8192x8192 bfloat16"


@pytest.fixture
def record():
    return next(r for r in records.all_records("matmul") if r.device == H200)


def test_the_table_has_every_step_and_jaxs_own(record):
    shown = ladder.table(record)
    names = [row[0].split(" ")[0] for row in shown.rows]
    assert names == [*map(str, range(matmul_ladder.LAST + 1)), "JAX's"]
    assert H200 in repr(shown)
    assert record.date[:10] in repr(shown)
    assert "<table>" in shown._repr_html_()


def test_a_step_that_was_not_measured_is_left_out(record):
    some = dataclasses.replace(record, rows=tuple(r for r in record.rows if r.name != "matmul3"))
    assert not any(row[0].startswith("3 ") for row in ladder.table(some).rows)


def test_what_a_size_lacks_is_an_empty_cell(record):
    rows = tuple(r for r in record.rows if (r.case, r.name) != (LARGE, "matmul3"))
    [row] = [r for r in ladder.table(dataclasses.replace(record, rows=rows)).rows if r[0][0] == "3"]
    assert row[1] == ""
    assert row[2].endswith("%")
    assert png(ladder.plot(dataclasses.replace(record, rows=rows)))


def test_the_record_of_the_card_in_the_machine_comes_first(record, monkeypatch):
    other = dataclasses.replace(record, card={"before": {"name": DEVICE.name}}, date="2020-01-01")
    monkeypatch.setattr(records, "all_records", lambda suite: iter([record, other]))
    monkeypatch.setattr(ladder.runtime, "device", lambda: None)
    assert ladder.newest() is record
    monkeypatch.setattr(ladder.runtime, "device", lambda: DEVICE)
    assert ladder.newest() is other


def test_a_record_of_a_part_of_the_ladder_is_not_the_newest(record, monkeypatch):
    part = dataclasses.replace(record, rows=record.rows[:3])
    monkeypatch.setattr(records, "all_records", lambda suite: iter([part, record]))
    assert ladder.newest() is record
    monkeypatch.setattr(records, "all_records", lambda suite: iter([part]))
    with pytest.raises(CourseError, match="course bench matmul"):
        ladder.newest()


def test_roofs_are_those_of_the_card_here_else_of_an_h200(record, monkeypatch):
    monkeypatch.setattr(ladder.runtime, "device", lambda: None)
    monkeypatch.setattr(card, "roofline", lambda: None)
    assert ladder.ceilings(record).device == H200
    assert ladder.ceilings(record).clock_part < 1  # the record has seen it under load
    roof = card.Roofline(
        flop_per_s=500e12, bytes_per_s=2e12, sms=100, l2_bytes=1 << 20, clock_hz=1e9
    )
    monkeypatch.setattr(ladder.runtime, "device", lambda: DEVICE)
    monkeypatch.setattr(card, "roofline", lambda: roof)
    here = ladder.ceilings(record)
    assert (here.device, here.flop_per_s, here.clock_part) == (DEVICE.name, 500e12, 1.0)
    assert here.bytes_per_s == {"HBM": 2e12, "L2": 64 * 100e9, "SMEM": 128 * 100e9}
    assert png(ladder.roofline(record))


def test_power_says_what_held_the_clock_back(record):
    shown = ladder.power(record)
    assert [row[0] for row in shown.rows] == ladder.sizes(record)
    assert {row[3] for row in shown.rows} == {"power"}
    quiet = {**record.card, "under load": {LARGE: {"sm_mhz": 1980, "power_w": 100, "reasons": 0}}}
    [row] = ladder.power(dataclasses.replace(record, card=quiet)).rows
    assert row[1:4] == ("1980 MHz", "100 W", "nothing")


def test_the_peak_of_an_unknown_card_is_not_made_up(record):
    unknown = {**record.card, "before": {**record.card["before"], "name": "Another card"}}
    for row in ladder.power(dataclasses.replace(record, card=unknown)).rows:
        assert row[-2:] == ("", "")


def test_variants_are_chosen_by_their_names():
    assert all(row[0].startswith("one slot") for row in ladder.variants("one slot").rows)
    assert len(ladder.variants("pipeline").rows) >= 3


def test_without_a_gpu_measuring_here_is_one_sentence(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(card.runtime, "device", lambda: None)
    assert ladder.on_this_card(say=said.append) is None
    assert len(said) == 1
    assert "no GPU" in said[0]


# --- the chapter's own words ------------------------------------------------------------------

CHAPTER = (Course().solutions / "08_wgmma_pipelining.md").read_text()
MEASURED = re.compile(r"\*\*Measured: (\d+) %")


def steps_measured() -> dict[int, float]:
    """What the text says of each step: the first number after its heading."""
    parts = re.split(r"^## Step (\d+)", CHAPTER, flags=re.MULTILINE)[1:]
    texts = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    return {n: int(MEASURED.search(text)[1]) / 100 for n, text in texts.items() if n}


def test_the_text_has_a_number_for_each_step():
    assert sorted(steps_measured()) == list(range(1, matmul_ladder.LAST + 1))


@pytest.mark.parametrize("number", range(1, matmul_ladder.LAST + 1))
def test_the_text_fits_the_newest_record_of_an_h200(number, record):
    ratio = record.ratios(LARGE)[f"matmul{number}"]
    assert steps_measured()[number] == pytest.approx(ratio, abs=0.015)


def test_what_the_text_calls_level_higher_or_lower_is_so(record):
    ratio = {n: record.ratios(LARGE)[f"matmul{n}"] for n in range(matmul_ladder.LAST + 1)}
    for n in (2, 4, 6):
        assert abs(ratio[n] - ratio[n - 1]) < 0.012, n
    for n in (1, 3, 7, 10, 11):
        assert ratio[n] > ratio[n - 1], n
    for n in (5, 9):
        assert ratio[n] < ratio[n - 1], n
    assert min(record.ratios(case)["matmul12"] for case in ladder.sizes(record)) > 1


def test_what_the_text_says_of_one_block_alone_is_so():
    record = records.newest("pipelining", device=H200)
    assert record is not None
    ratio = record.ratios(LARGE)
    said = {"64x64, alone": 0.10, "128x128, alone": 0.29, "128x128, 2 per SM": 0.56,
            "128x128, 3 per SM": 0.75}  # fmt: skip
    found = {name: ratio[f"one slot, {name}"] for name in said}
    assert found == pytest.approx(said, abs=0.015)
    waits = {n: ratio[f"pipeline, wait {n}"] for n in ("1, delay 1", "1, delay 2", "0, delay 0")}
    assert waits["1, delay 1"] > 1.1 * max(waits["1, delay 2"], waits["0, delay 0"])
