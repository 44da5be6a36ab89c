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
