"""Chapter 12's words fit the records that it names, number by number."""

from __future__ import annotations

import re

import pytest

from course_lib.authoring import Course
from course_lib.benchmarks import records

CHAPTER = (Course().solutions / "12_flash_attention.md").read_text()
PROSE = re.sub(r"```.*?```", "", CHAPTER, flags=re.DOTALL)
TEXT = " ".join(PROSE.split())
SHORT, LONG, NARROW, CAUSAL = (
    f"{case} float16"
    for case in (
        "B4 S4096 H16 D128",
        "B1 S16384 H16 D128",
        "B4 S4096 H16 D64",
        "B4 S4096 H16 D128 causal",
    )
)


def named(suite: str) -> records.Record:
    (name,) = set(re.findall(rf"`(\d{{8}}T\d{{6}}-\S+-{suite}\.json)`", PROSE))
    return records.read(records.FOLDER / name)


STEPS, PARTS = named("attention"), named("attention-variants")


def step(number: int, case: str = SHORT) -> str:
    return f"{STEPS.ratios(case)[f'attention{number}']:.2f}"


def part(name: str, case: str = SHORT) -> str:
    return f"{PARTS.ratios(case)[name]:.2f}"


def test_the_records_are_the_newest_of_an_h200():
    for record in (STEPS, PARTS):
        assert record == records.newest(record.suite, device="NVIDIA H200")


def row(first: str) -> list[str]:
    """The cells of the table row that begins so."""
    [line] = [line for line in PROSE.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize("number", range(9))
def test_the_table_of_the_steps(number):
    alone = f"{part('step 8, two warpgroups, no turns')}*, three warpgroups {step(8)}"
    turns = "step 7, no turns"
    want = {5: (step(5), f"{part('step 5', CAUSAL)}*"),
            7: (f"{step(7)}, without turns {part(turns)}*",
                f"{step(7, CAUSAL)}, without turns {part(turns, CAUSAL)}*"),
            8: (alone, step(8, CAUSAL))}  # fmt: skip
    plain = (step(number), step(number, CAUSAL) if number > 5 else "")
    [line] = [ln for ln in PROSE.splitlines() if re.match(rf"\| {number} [a-z]", ln)]
    assert tuple(c.strip() for c in line.split("|")[2:4]) == want.get(number, plain)


@pytest.mark.parametrize(
    ("first", "cells"),
    [
        ("`wait_ahead=True`: all of the softmax beside its own P V",
         [part("step 6, all of the softmax beside P V", c) for c in (SHORT, LONG, CAUSAL)]),
        ("`wait_ahead=False`: what the compiler leaves there",
         [part("step 6", c) for c in (SHORT, LONG, CAUSAL)]),
        ("the same, no turns at all", [part("step 6, no turns", c) for c in (SHORT, LONG, CAUSAL)]),
        *((f"step 7 {w} turns", [part(f"step 7, {n}", c) for c in (SHORT, CAUSAL)])
          for w, n in (("without", "no turns"), ("with", "turns"))),
        *((f"step 8 {w} turns",
           [*(part(f"step 8, two warpgroups, {n}", c) for c in (SHORT, CAUSAL)),
            f"{part(f'step 8, three warpgroups, {n}', NARROW)} (three warpgroups)"])
          for w, n in (("without", "no turns"), ("with", "turns"))),
        ("step 6", [part("step 6"), part("step 6", CAUSAL)]),
        ("no turns", [part("step 6, no turns"), part("step 6, no turns", CAUSAL)]),
        ("all of the softmax beside P V",
         [part("step 6, all of the softmax beside P V", c) for c in (SHORT, CAUSAL)]),
        ("wait for all products, as in step 3", [part("step 6, wait for all products")]),
        ("132 blocks", [part("step 6, 132 blocks")]),
        ("three slots for K, the output where the queries were",
         [part("step 6, three slots for K, o over q")]),
        ("the longest tile first, no rounds",
         ["", part("step 6, the longest tile first", CAUSAL)]),
    ],
)  # fmt: skip
def test_the_tables_of_parts(first, cells):
    assert row(first)[: len(cells)] == cells


def rate(name: str, case: str = SHORT) -> float:
    return next(r.rate for r in STEPS.rows if (r.case, r.name) == (case, name))


def percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def sentences() -> list[str]:
    ratio = STEPS.ratios(SHORT)
    load = STEPS.card["under load"]
    time = {n: 1 / PARTS.ratios(SHORT)[n] for n in (
        "step 6", "no softmax (wrong)", "no products, no turns (wrong)",
        "no maximum, no rescaling (wrong)")}  # fmt: skip
    both, softmax, products, maximum = time.values()
    cudnn_ms = next(r.median_us for r in STEPS.rows if (r.case, r.name) == (LONG, "cuDNN")) / 1e3
    peak = 132 * 4096 * 1.98e9 / 1e12
    return [
        f"cuDNN needs {cudnn_ms:.1f} ms for everything",
        f"step 0 reached **{step(0)}** of cuDNN's speed, and step 1 **{step(1)}**",
        f"Measured: **{step(2)}**.",
        f"Measured: **{step(3)}** of cuDNN.",
        f"the card for {percent(rate('attention3') / peak)} ({rate('attention3'):.0f} TFLOP/s,"
        f" where 132 SMs at 1980 MHz could do {peak:.0f})",
        f"Step 4 as it is: **{step(4)}**. That is above cuDNN",
        f"slower than step 4**: {step(5)} against {step(4)} of cuDNN.",
        f"card lost {percent(1 - ratio['attention5'] / ratio['attention4'])}.",
        f"Causal, step 5 is at {part('step 5', CAUSAL)}.",
        f"128 blocks are at {part('step 6')} and 132 at {part('step 6, 132 blocks')}.",
        f"On the card that is {part('step 6', CAUSAL)}, and"
        f" {part('step 6, the longest tile first', CAUSAL)} for",
        f"Measured: **{step(6)}**, causal **{step(6, CAUSAL)}**.",
        f"with two computing warpgroups {part('step 8, two warpgroups, no turns')} of cuDNN,"
        f" causal **{step(8, CAUSAL)}**; with three of them and tiles of 64 keys **{step(8)}**,"
        f" and {step(8, LONG)} at B1 S16384.",
        "the third warpgroup does not help:"
        f" {part('step 8, three warpgroups, 64 keys, no turns', CAUSAL)}.",
        f"without the softmax {softmax:.2f}, without the products (and turns) {products:.2f}, with"
        f" both {both:.2f}. Had nothing overlapped it would be {softmax + products:.2f}, had"
        f" everything overlapped {max(softmax, products):.2f}.",
        f"maximum and the rescaling it was {maximum:.2f}: that is step 8",
        f"drew {load[SHORT]['power_w']:.0f} W at B4 S4096, D128, and {load[LONG]['power_w']:.0f} W"
        f" at B1 S16384, D128, of the {STEPS.card['before']['power_limit_w']:.0f} W",
        f"fell from {STEPS.card['before']['sm_mhz']:.0f} MHz to {load[SHORT]['sm_mhz']:.0f} and"
        f" {load[LONG]['sm_mhz']:.0f}",
        f"better* without turns, {part('step 6, no turns', LONG)} against {part('step 6', LONG)}.",
        f"can take there: {part('step 6, three warpgroups', NARROW)} against"
        f" {part('step 6, two warpgroups', NARROW)} with two",
    ]


@pytest.mark.parametrize("words", sentences(), ids=lambda words: words[:40])
def test_a_sentence_says_what_the_record_says(words):
    assert words in TEXT


def test_no_other_ratio_is_in_the_text():
    """Whoever writes a new number into the text writes it into this file, too."""
    known = {
        f"{r:.2f}" for record in (STEPS, PARTS) for x in record.rows for r in (x.ratio, 1 / x.ratio)
    }
    known.add(
        next(re.findall(r"would be (\d\.\d\d),", s)[0] for s in sentences() if "would be" in s)
    )
    assert set(re.findall(r"(?<![\d.])[01]\.\d\d(?![\d.])", PROSE)) <= known
    assert not re.findall(r"(?<![\d.])[01]\.\d{3}(?!\d)", PROSE)
