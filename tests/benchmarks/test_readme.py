"""What benchmarks/README.md says of a ladder's steps is what the records say that it names."""

import re
from pathlib import Path

import pytest

from course_lib.benchmarks import records

ROOT = Path(__file__).resolve().parents[2] / "benchmarks"
TEXT = (ROOT / "README.md").read_text()
_STEP = re.compile(r"^\| (\d+) [^|]*\|(.*)\|[^|]*\|$", re.MULTILINE)  # without the reason
_NUMBER = re.compile(r"\d\.\d{3}")


def steps_of(suite: str) -> tuple[str, dict[int, list[str]]]:
    """The record that a ladder's table names, and the numbers in the row of each step."""
    (name,) = re.findall(rf"`records/(\S+-{suite}\.json)`", TEXT)
    table = next(part for part in TEXT[TEXT.index(name) :].split("\n\n") if part.startswith("|"))
    return name, {int(n): _NUMBER.findall(cells) for n, cells in _STEP.findall(table)}


@pytest.mark.parametrize(("suite", "count"), [("matmul", 13), ("attention", 9)])
def test_the_table_of_the_steps_is_its_record(suite, count):
    name, steps = steps_of(suite)
    record = records.read(ROOT / "records" / name)
    assert sorted(steps) == list(range(count))
    cases = list(dict.fromkeys(row.case for row in record.rows))
    for number, said in steps.items():
        of_cases = [record.ratios(c).get(f"{suite}{number}") for c in cases]
        assert said == [f"{ratio:.3f}" for ratio in of_cases if ratio is not None], number


def test_the_named_records_are_the_newest():
    for suite in ("matmul", "attention"):
        newest = sorted((ROOT / "records").glob(f"*-nvidia-h200-{suite}.json"))[-1]
        assert steps_of(suite)[0] == newest.name


def test_every_ratio_is_in_a_record():
    known = {
        f"{row.ratio:.3f}"
        for path in (ROOT / "records").glob("*.json")
        for row in records.read(path).rows
    }
    said = set(re.findall(r"(?<![\d.])[01]\.\d{3}(?!\d)", TEXT))
    assert len(said) > 100
    assert said <= known


def test_every_record_that_is_named_is_there():
    named = re.findall(r"`records/(\S+\.json)`", TEXT)
    assert len(set(named)) >= 6
    assert [name for name in named if not (ROOT / "records" / name).exists()] == []


def test_the_table_of_step_5_is_its_record():
    """Each row's numbers are those of one variant with three slots and one with four."""
    (name,) = set(re.findall(r"`records/(\S+-epilogue\.json)`", TEXT))
    record = records.read(ROOT / "records" / name)
    known = {
        f"{row.ratio:.3f} ({row.config['sustained_mhz']:.0f})": row.name
        for row in record.rows
        if "sustained_mhz" in row.config
    }
    table = next(part for part in TEXT[TEXT.index(name) :].split("\n\n") if part.startswith("|"))
    cells = [[c.strip() for c in ln.split("|")[2:4]] for ln in table.splitlines()[2:]]
    for three, four in cells:
        for cell, slots in ((three, "3 slots"), (four, "4 slots")):
            assert not re.match(r"\d", cell) or slots in known[cell], cell
