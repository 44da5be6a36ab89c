"""A record as a table of text."""

from __future__ import annotations

from course_lib.benchmarks.card import Roofline
from course_lib.benchmarks.records import Record, Row


def table(record: Record) -> str:
    """A table per size: rate, ratio to the baseline, and how far apart the quartiles are."""
    cases = list(dict.fromkeys(row.case for row in record.rows))
    return "\n\n".join(_case(record, case) for case in cases) or "Nothing was measured."


def _case(record: Record, case: str) -> str:
    rows = [row for row in record.rows if row.case == case]
    width = max(len(row.name) for row in rows)
    titles = (
        f"{'':{width}}  {record.unit:>9}  {'median':>11}  {'quartiles':>9}  of {record.baseline}"
    )
    return "\n".join([f"{case}, {record.device}", titles, *(_row(row, width) for row in rows)])


def _row(row: Row, width: int) -> str:
    apart = (row.high_us - row.low_us) / row.median_us
    return (
        f"{row.name:{width}}  {row.rate:9.1f}  {row.median_us:8.1f} µs  {apart:9.1%}"
        f"  {row.ratio:9.3f}"
    )


def roof(record: Record, ceilings: Roofline) -> str:
    """What this card could do at most, and the part of it that the fastest row has reached."""
    best = max(record.rows, key=lambda row: row.rate)
    tera = 1e12 if record.unit == "TFLOP/s" else 1e9
    limit = ceilings.flop_per_s if record.unit == "TFLOP/s" else ceilings.bytes_per_s
    return (
        f"The roof of {record.device}: {ceilings.flop_per_s / 1e12:.0f} TFLOP/s of 16-bit operands"
        f" at {ceilings.clock_hz / 1e6:.0f} MHz, its highest clock, and"
        f" {ceilings.bytes_per_s / 1e9:.0f} GB/s of memory; the ridge is at"
        f" {ceilings.ridge:.0f} FLOP per byte. {best.name} reaches"
        f" {best.rate * tera / limit:.0%} of it at {best.case}."
    )
