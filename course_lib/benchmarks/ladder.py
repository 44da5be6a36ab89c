"""The ladder of matmuls as chapter 08 shows it, from a record: its table, plot and roofline.

ladder.newest()              # the newest record: of the card here, else of any
ladder.table(record)         # each step's part of cuBLAS
ladder.plot(record)          # the same as a picture
ladder.roofline(record)      # three roofs, of the card here or of an H200, and the steps
ladder.power(record)         # clock and power while cuBLAS ran, and what they leave of the peak
ladder.on_this_card()        # measures some steps here and now
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from course_lib import runtime
from course_lib.benchmarks import card, records
from course_lib.benchmarks.records import Record
from course_lib.diagnostics import CourseError
from course_lib.figures import roofline as drawing
from course_lib.kernels import matmul_ladder
from course_lib.kernels.wgmma_pipelining import tile_intensity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHERS = ("JAX's own",)
_POWER_CAP = 0x4  # of the clock event reasons: the software power cap (NVML)
_H200_BOOST_MHZ = 1830.0
_FIRST_SIZE = "8192x8192x8192"


def newest() -> Record:
    """The newest record of the whole ladder: of the card in this machine, else of any card.

    Raises:
      CourseError: there is none; the sentence says how to make one.
    """
    device = runtime.device()
    whole = [r for r in records.all_records("matmul") if _last_of(r)]
    mine = [r for r in whole if device is not None and r.device == device.name]
    for record in mine or whole:
        return record
    raise CourseError("benchmarks/records holds no ladder. `course bench matmul` measures one.")


def _last_of(record: Record) -> bool:
    return any(row.name == matmul_ladder.step(matmul_ladder.LAST).name for row in record.rows)


def sizes(record: Record) -> list[str]:
    """The sizes of a record, in its order."""
    return list(dict.fromkeys(row.case for row in record.rows))


@dataclasses.dataclass(frozen=True, repr=False)
class Table:
    """Rows and columns for a notebook, and as text.

    Attributes:
      title: a line above.
      head: the columns' names; the first column is to the left, all others to the right.
      rows: the cells.
      notes: lines below.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        everything = [self.head, *self.rows]
        widths = [max(len(row[i]) for row in everything) for i in range(len(self.head))]
        lines = [
            "  ".join(
                f"{cell:{width}}" if i == 0 else f"{cell:>{width}}"
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in everything
        ]
        return "\n".join([self.title, *lines, *self.notes])

    def _repr_html_(self) -> str:
        def cells(row: Sequence[str], tag: str) -> str:
            left = '<{0} style="text-align:left">{1}</{0}>'
            return "".join(
                left.format(tag, escape(c)) if i == 0 else f"<{tag}>{escape(c)}</{tag}>"
                for i, c in enumerate(row)
            )

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<p><strong>{escape(self.title)}</strong></p><table><thead><tr>"
            f"{cells(self.head, 'th')}</tr></thead><tbody>{body}</tbody></table>{notes}"
        )


def table(record: Record) -> Table:
    """Each step's part of cuBLAS's speed at each size, and JAX's own matmul's."""
    columns = sizes(record)
    ratios = {case: record.ratios(case) for case in columns}
    rows = [(name, *(_percent(ratios[c].get(key)) for c in columns)) for key, name in _rows(record)]
    return Table(
        title=f"Part of {record.baseline}'s speed on {record.device}, {record.date[:10]}",
        head=("step", *columns),
        rows=tuple(rows),
        notes=(f"{record.baseline}: {', '.join(_rates(record))}. {_spread(record)}",),
    )


def _rows(record: Record) -> list[tuple[str, str]]:
    """Who is in the table: the row's name in the record, and what the reader sees."""
    names = {row.name for row in record.rows}
    steps = [(s.name, f"{s.number} {s.idea}") for s in matmul_ladder.STEPS if s.name in names]
    return [*steps, *((o, "JAX's own hopper_matmul_mgpu") for o in _OTHERS if o in names)]


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.1f} %"


def _rates(record: Record) -> list[str]:
    base = {row.case: row.rate for row in record.rows if row.name == record.baseline}
    return [f"{rate:.0f} {record.unit} at {case}" for case, rate in base.items()]


def _spread(record: Record) -> str:
    widest = max((row.high_us - row.low_us) / row.median_us for row in record.rows)
    launches = min(row.launches for row in record.rows)
    return f"Medians of {launches} launches; their quartiles are at most {widest:.1%} apart."


def variants(
    prefix: str = "", *, suite: str = "pipelining", names: Sequence[str] | None = None
) -> Table:
    """Variants of some steps, from the newest record of a suite of the chapter's own.

    Args:
      prefix: how the names of the rows begin that are shown.
      suite: "pipelining" (steps 0 and 2) or "epilogue" (step 5).
      names: the names of the rows that are shown, in this order, instead.

    Raises:
      CourseError: there is no such record, or it has no such row.
    """
    record = records.newest(suite)
    if record is None:
        raise CourseError(f"benchmarks/records holds no record of the suite {suite}.")
    known = dict.fromkeys(row.name for row in record.rows)
    names = [name for name in known if name.startswith(prefix)] if names is None else names
    if unknown := set(names) - set(known):
        raise CourseError(f"The record of the suite {suite} has no {', '.join(sorted(unknown))}.")
    columns = sizes(record)
    ratios = [record.ratios(case) for case in columns]
    rows = [(name, *(_percent(found.get(name)) for found in ratios)) for name in names]
    return Table(
        title=f"Part of {record.baseline}'s speed on {record.device}, {record.date[:10]}",
        head=("variant", *columns),
        rows=tuple(rows),
        notes=(_spread(record),),
    )


def plot(record: Record) -> Figure:
    """The table as a picture."""
    rows = _rows(record)
    series = {case: [record.ratios(case).get(key) for key, _ in rows] for case in sizes(record)}
    names = [name for _, name in rows]
    return drawing.ladder(names, series, device=record.device, date=record.date[:10])


def ceilings(record: Record) -> drawing.Ceilings:
    """Of the card in this machine, else of an H200; with the clock that `record` has seen."""
    roof, device = card.roofline(), runtime.device()
    if roof is None or device is None:
        return drawing.h200(clock_part=_clock_part(record, "NVIDIA H200", _H200_BOOST_MHZ))
    return drawing.of(
        device.name,
        flop_per_s=roof.flop_per_s,
        hbm=roof.bytes_per_s,
        sm_cycles_per_s=roof.sms * roof.clock_hz,
        clock_part=_clock_part(record, device.name, roof.clock_hz / 1e6),
    )


def _clock_part(record: Record, device: str, highest_mhz: float) -> float:
    """The part of the highest clock that was left under load, where the record has seen that."""
    loads = record.card.get("under load", {})
    if record.device != device or not loads:
        return 1.0
    first = next(iter(loads.values()))
    return min(1.0, float(first["sm_mhz"]) / highest_mhz)


# Steps in the panels: number, tile of a warpgroup, tile of a block.
_SHOWN = ((1, (128, 128), (128, 128)), (9, (128, 128), (128, 128)), (12, (64, 256), (128, 256)))


def points(record: Record) -> list[drawing.Point]:
    """Where steps stand: by their tiles for SMEM and L2, by the whole product for HBM."""
    case = next((c for c in sizes(record) if c.startswith(_FIRST_SIZE)), sizes(record)[0])
    rates = {row.name: row.rate * 1e12 for row in record.rows if row.case == case}
    m, n, k = (int(part) for part in case.split(" ")[0].split("x"))
    once = 2 * m * n * k / (2 * (m * k + k * n + m * n))  # each byte read or written once
    found = []
    for number, warpgroup, block in _SHOWN:
        rate = rates.get(matmul_ladder.step(number).name)
        if rate is not None:
            smem, l2 = tile_intensity(warpgroup, block)
            for memory, intensity in (("HBM", once), ("L2", l2), ("SMEM", smem)):
                found.append(drawing.Point(memory, f"step {number}", intensity, rate))
    return found


def roofline(record: Record) -> Figure:
    """Three roofs and the steps below them; no steps where the record is of another card."""
    here = ceilings(record)
    return drawing.roofline(here, points(record) if here.device == record.device else ())


def power(record: Record) -> Table:
    """Clock and power while the baseline ran, and its part of the peak at that clock."""
    loads: Mapping[str, Mapping[str, Any]] = record.card.get("under load", {})
    rates = {row.case: row.rate for row in record.rows if row.name == record.baseline}
    before = record.card.get("before", {})
    return Table(
        title=f"While {record.baseline} ran on {record.device}, {record.date[:10]}",
        head=(
            "size",
            "SM clock",
            "power",
            "held back by",
            "TFLOP/s",
            "peak at that clock",
            "of it",
        ),
        rows=tuple(
            _power_row(case, load, rates.get(case, 0.0), _peak(record.device, load))
            for case, load in loads.items()
        ),
        notes=(
            f"At rest: {before.get('sm_mhz', 0):.0f} MHz and {before.get('power_w', 0):.0f} W. "
            f"The limit is {before.get('power_limit_w', 0):.0f} W.",
        ),
    )


def _peak(device: str, load: Mapping[str, Any]) -> float | None:
    """TFLOP/s of a card's tensor cores at the clock that it had under a load."""
    here, roof = runtime.device(), card.roofline()
    if here is not None and roof is not None and here.name == device:
        return roof.flop_per_s * (float(load["sm_mhz"]) * 1e6 / roof.clock_hz) / 1e12
    known = drawing.h200()
    if device != known.device:
        return None
    return known.flop_per_s * float(load["sm_mhz"]) / _H200_BOOST_MHZ / 1e12


def _power_row(
    case: str, load: Mapping[str, Any], rate: float, peak: float | None
) -> tuple[str, ...]:
    return (
        case,
        f"{float(load['sm_mhz']):.0f} MHz",
        f"{float(load['power_w']):.0f} W",
        "power" if int(load["reasons"]) & _POWER_CAP else "nothing",
        f"{rate:.0f}",
        f"{peak:.0f}" if peak else "",
        f"{rate / peak:.0%}" if peak else "",
    )


def on_this_card(
    steps: Sequence[int] = (0, 3, matmul_ladder.LAST),
    *,
    size: str = "4096x4096x4096:float16",
    say: Callable[[str], None] = print,
) -> Table | None:
    """Measures some steps against cuBLAS here and now; says so where there is no GPU for that.

    Args:
      steps: their numbers.
      size: MxNxK[:dtype].
      say: is told what happens.
    """
    from course_lib.benchmarks import bench, suites

    try:
        cases = suites.matmul([size], steps=steps)
        record = bench.run_suite("matmul", "TFLOP/s", cases, rounds=3, anyway=True, say=say)
    except CourseError as error:
        say(str(error))
        return None
    return table(record) if record.rows else None
