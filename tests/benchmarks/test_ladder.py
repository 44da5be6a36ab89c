"""The ladder's table, plot and roofline; and that chapter 08's words fit the newest record."""

from __future__ import annotations

import dataclasses
import json
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


def test_another_cards_steps_are_not_drawn_under_the_roofs_of_this_one(record, monkeypatch):
    monkeypatch.setattr(ladder.runtime, "device", lambda: None)
    monkeypatch.setattr(card, "roofline", lambda: None)
    assert "step 12 at" in ladder.roofline(record).get_label()
    blackwell = card.Roofline(
        flop_per_s=2250e12, bytes_per_s=8e12, sms=148, l2_bytes=126 << 20, clock_hz=1.85e9
    )
    monkeypatch.setattr(ladder.runtime, "device", lambda: DEVICE)
    monkeypatch.setattr(card, "roofline", lambda: blackwell)
    figure = ladder.roofline(record)
    assert png(figure)
    assert "SMEM: no kernel." in figure.get_label()


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


def test_what_the_text_says_of_step_5_is_so():
    record = records.newest("epilogue", device=H200)
    assert record is not None
    ratio = record.ratios(LARGE)
    three, four = ratio["pieces, 3 slots"], ratio["pieces, 4 slots (step 5)"]
    assert three == pytest.approx(ratio["whole, 3 slots (step 4)"], abs=0.004)
    assert three == pytest.approx(ratio["pieces, 4 slots, delay 2"], abs=0.004)
    assert three - four == pytest.approx(0.01, abs=0.003)
    assert ratio["pieces, 4 slots, snake"] > ratio["pieces, 3 slots, snake"]
    same = "one tile for all, pieces, {} slots"
    assert ratio[same.format(3)] == pytest.approx(ratio[same.format(4)], abs=0.004)
    mhz = {r.name.split(" (")[0]: r.config["sustained_mhz"] for r in record.rows if r.case == LARGE}
    pairs = [(n, n.replace("4 slots", "3 slots")) for n in mhz if "4 slots" in n]
    slower = {a: mhz[b] - mhz[a] for a, b in pairs if b in mhz}
    assert slower.pop(same.format(4)) == 0
    assert len(slower) == 6
    assert all(15 <= difference <= 45 for difference in slower.values())


@pytest.mark.parametrize(
    ("what", "names", "instead"),
    [
        (
            "`wgmma_wait(1)`",
            ["wait 1, a slot released a step later"],
            "ring, 128 blocks, bands of 8",
        ),
        ("clusters of two", ["clusters of 2, B by multicast"], "ring, 128 blocks, bands of 8"),
        ("clusters of four", ["clusters of 2x2"], None),
        ("`tile_k` of 128", ["tile_k 128, 2 slots"], None),
        ("128 x 192", ["128x192 per warpgroup"], None),
        ("stream-K", ["stream-K, ragged wave last", "stream-K, ragged wave first"], None),
    ],
)
def test_what_the_text_says_did_not_pay(what, names, instead):
    (name,) = set(re.findall(r"`(\S+-matmul-variants\.json)`", CHAPTER))
    record = records.read(records.FOLDER / name)
    [cell] = [ln.split("|")[2] for ln in CHAPTER.splitlines() if ln.startswith(f"| {what}")]
    large, *smaller = (record.ratios(case) for case in ladder.sizes(record))
    want = sorted(f"{large[n]:.2f}" for n in names) + ([f"{large[instead]:.2f}"] if instead else [])
    if len(found := re.findall(r"\d\.\d\d", cell)) > len(want):
        others = [f"{ratio[n]:.2f}" for ratio in smaller for n in names]
        want += [min(others), max(others)]
    assert found == want


def test_variants_that_are_not_in_the_record_are_named():
    with pytest.raises(CourseError, match=r"suite epilogue has no pieces, 9 slots"):
        ladder.variants(suite="epilogue", names=["pieces, 9 slots"])
    with pytest.raises(CourseError, match="no record of the suite nothing"):
        ladder.variants(suite="nothing")


# --- each step has all four: a prediction, a timeline, the compiler's counts, a measurement ------

CELLS = dict(re.findall(r"^:id: (\S+)\n.*?\n(.*?)^```$", CHAPTER, flags=re.MULTILINE | re.DOTALL))
STEPS = range(matmul_ladder.LAST + 1)
EVERY_STEP = "for number in range(matmul_ladder.LAST + 1):"


@pytest.fixture(scope="module")
def outputs():
    """What the solved notebook printed, by the cells' ids."""
    [cells] = [
        json.loads(path.read_text())["cells"] for path in Course().solutions.glob("08_*.ipynb")
    ]
    return {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}


def printed(outputs, cell: str) -> list[str]:
    lines = "".join("".join(o.get("text", "")) for o in outputs[cell]).splitlines()
    return [line for line in lines if re.match(r" *\d+ ", line)]


@pytest.mark.parametrize("number", STEPS)
def test_each_step_has_a_timeline(number, outputs):
    code = CELLS[f"timeline-{number}"]
    assert f"simulate(kernels.step_on({number}, sms=" in code
    assert 'timeline="detailed"' in code
    assert ".show(" in code
    assert any("image/png" in output.get("data", {}) for output in outputs[f"timeline-{number}"])


@pytest.mark.parametrize("number", STEPS[1:])
def test_each_step_is_shown_as_a_diff(number):
    assert re.search(rf"^changes\({number}\b", CELLS[f"diff-{number}"], flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("predicted", ("kernels.roofline_reference(", "model(number).bottleneck")),
        ("ptx", ("compiled(number)", "UTMALDG*", "setmaxnreg*")),
    ],
)
def test_each_step_is_predicted_and_its_instructions_are_counted(cell, words, outputs):
    assert EVERY_STEP in CELLS[cell]
    assert all(word in CELLS[cell] for word in words)
    assert [int(line.split()[0]) for line in printed(outputs, cell)] == [*STEPS]


def test_each_step_is_measured(record):
    assert {f"matmul{n}" for n in STEPS} <= set(record.ratios(LARGE))
    assert (
        "Step 0 has one slot and waits for every copy, and yet it is at three quarters." in CHAPTER
    )
    assert record.ratios(LARGE)["matmul0"] == pytest.approx(0.75, abs=0.02)


def test_what_the_text_says_of_the_l2_cache_is_so():
    record = records.newest("clusters-stream", device=H200)
    assert record is not None
    [load] = record.card["under load"].values()
    per_clock = {r.name: r.rate * 1e9 / (132 * load["sm_mhz"] * 1e6) for r in record.rows}
    alone = max(rate for name, rate in per_clock.items() if name.startswith("no cluster"))
    assert "the most that we have measured is 58, for chapter" in CHAPTER
    assert (int(max(per_clock.values())), int(alone)) == (58, 52)
