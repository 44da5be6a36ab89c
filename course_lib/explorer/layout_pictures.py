"""The layout views without a browser: their sentence, and their picture as a PNG.

What is computed here with numpy is what the views compute on the client; the tests
compare both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from course_lib.diagnostics import CourseError
from course_lib.explorer.sheet import (
    FRAME,
    INK,
    MUTED,
    WIDTH,
    Sheet,
    is_light,
    text_width,
    wrapped,
)
from course_lib.layouts import registers
from course_lib.layouts.banks import Transfer
from course_lib.layouts.pipeline import Pipeline
from course_lib.layouts.registers import CATALOG, named
from course_lib.layouts.smem import SmemRef, bank
from course_lib.layouts.tiling import Array, Shape, Tiling
from course_lib.layouts.tmem import ALIGNMENT, COLUMNS, TmemRef, allocate, allocated_columns

MAX_ELEMENTS = 65536
"""What the views draw at most."""

EIGHT = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7a7a7a")
EMPTY = "#e9ecef"
CONFLICT_COLOURS = ("#56b4e9", "#009e73", "#d55e00")
ROW_BYTES = 128


@dataclasses.dataclass(frozen=True)
class Panel:
    """A matrix of colour numbers, -1 for nothing; `rows_are` is what a row counts, in its unit.

    `labels` are numbers to write into the cells where they fit, `marked` cells to outline,
    `row_names` what to write beside the rows, `origin` and `step` what a column counts.
    """

    title: str
    values: npt.NDArray[np.int16]
    palette: tuple[str, ...]
    rows_are: str = "row"
    columns_are: str = "column"
    labels: Array | None = None
    marked: npt.NDArray[np.bool_] | None = None
    row_names: tuple[str, ...] = ()
    origin: float = 0
    step: float = 1

    @property
    def numbered(self) -> bool:
        """Whether there is room for the labels."""
        return self.labels is not None and max(self.labels.shape[0] / 4, self.labels.shape[1]) <= 16


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What a view shows: a sentence, two panels, and what their colours mean."""

    sentence: str
    panels: tuple[Panel, Panel]
    legend: tuple[tuple[str, str], ...]
    stacked: bool = dataclasses.field(default=False, kw_only=True)

    def png(self) -> bytes:
        """Both panels side by side, or one above the other, with the sentence and the legend."""
        lines = wrapped(self.sentence, 12.5, WIDTH - 20)
        rows = max((p.values.shape[0] for p in self.panels if p.numbered), default=0)
        top, body = 14 + 17 * len(lines), 700 if rows > 24 else 330
        legend = -(-len(self.legend) // _LEGEND_COLUMNS)
        sheet = Sheet(top + body + 20 * legend + 14)
        for i, line in enumerate(lines):
            sheet.text(10, 16 + 17 * i, line, 12.5)
        for i, panel in enumerate(self.panels):
            if self.stacked:
                _draw(sheet, panel, (10, top + i * body / 2, WIDTH - 20, body / 2))
            else:
                _draw(sheet, panel, (10 + i * WIDTH / 2, top, WIDTH / 2 - 20, body))
        draw_legend(sheet, self.legend, top + body + 14)
        return sheet.png()


_LEGEND_COLUMNS = 4
_Box = tuple[float, float, float, float]


def draw_legend(
    sheet: Sheet, legend: Sequence[tuple[str, str]], y: float, *, columns: int = _LEGEND_COLUMNS
) -> None:
    """Colours and their meanings, in columns, from `y` on."""
    for i, (colour, words) in enumerate(legend):
        x, at = 10 + i % columns * (WIDTH - 10) / columns, y + 20 * (i // columns)
        sheet.box(x, at - 6, 18, 12, colour, "#c8ced4")
        sheet.text(x + 24, at, words, 11)


def _draw(sheet: Sheet, panel: Panel, box: _Box) -> None:
    """A panel in a box: title above, ticks and what they count on the left and below."""
    x, y, w, h = box
    rows, columns = panel.values.shape
    names = max((text_width(name, 9.5) for name in panel.row_names), default=0.0)
    left = x + max(46.0, names + 10)
    cells = left, y + 26, x + w - left, h - 26 - 38
    size = min(12.5, 12.5 * w / text_width(panel.title, 12.5))
    sheet.text(min(left, x + w - text_width(panel.title, size)), y + 12, panel.title, size)
    sheet.matrix(*cells, panel.values.astype(np.int64) + 1, (EMPTY, *panel.palette))
    high, wide = cells[3] / rows, cells[2] / columns
    if panel.numbered:
        _write_labels(sheet, panel, (*cells[:2], wide, high))
    for r, c in np.argwhere(panel.marked).tolist() if panel.marked is not None else ():
        sheet.box(left + c * wide, cells[1] + r * high, wide, high, edge="#c2185b")
    sheet.box(*cells, edge=FRAME)
    _draw_ticks(sheet, panel, cells)


def _draw_ticks(sheet: Sheet, panel: Panel, cells: _Box) -> None:
    x, y, w, h = cells
    rows, columns = panel.values.shape
    names = panel.row_names or tuple(map(str, range(rows)))
    for r in range(0, rows, 1 if panel.row_names else _every(rows, 10)):
        sheet.text(x - 5, y + (r + 0.5) * h / rows, names[r], 9.5, anchor="rm")
    for at, words in _column_ticks(panel, columns):
        sheet.text(x + at * w / columns, y + h + 10, words, 9.5, anchor="mm")
    sheet.text(x + w / 2, y + h + 26, panel.columns_are, 11, ink=MUTED, anchor="mm")
    if panel.rows_are:
        sheet.upright(x - 36, y + h / 2, panel.rows_are, 11)


def _column_ticks(panel: Panel, columns: int) -> list[tuple[float, str]]:
    """Where numbers stand below the columns: in a column's middle, or at a time's beginning."""
    if panel.step == 1:
        return [(c + 0.5, f"{panel.origin + c:g}") for c in range(0, columns, _every(columns, 8))]
    span = columns * panel.step
    power = 10.0 ** math.floor(math.log10(span / 8))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= span / 8)
    first, last = math.ceil(panel.origin / step), math.floor((panel.origin + span) / step)
    ticks = (n * step for n in range(first, last + 1))
    return [((t - panel.origin) / panel.step, f"{t:,.0f}") for t in ticks]


def _every(count: int, most: int) -> int:
    """A power of two that leaves at most `most` of `count` ticks."""
    return int(1 << max(0, math.ceil(math.log2(count / most))))


def _write_labels(sheet: Sheet, panel: Panel, first: _Box) -> None:
    """Numbers in the cells, of which `first` is the first."""
    assert panel.labels is not None
    x, y, w, h = first
    size = min(9.5, 0.85 * h)
    inks = [INK, *(INK if is_light(colour) else "white" for colour in panel.palette)]
    for (r, c), number in np.ndenumerate(panel.labels):
        ink = inks[int(panel.values[r, c]) + 1]
        sheet.text(x + (c + 0.5) * w, y + (r + 0.5) * h, str(number), size, ink=ink, anchor="mm")


def ramp(count: int) -> tuple[str, ...]:
    """`count` colours from dark blue to yellow, as in `kit.mjs`."""
    stops = np.array(
        [[0, 32, 76], [63, 80, 109], [124, 123, 120], [188, 175, 111], [255, 233, 69]], float
    )
    at = np.linspace(0, len(stops) - 1, count) if count > 1 else np.zeros(1)
    mixed = [np.interp(at, np.arange(len(stops)), stops[:, k]) for k in range(3)]
    return tuple("#" + "".join(f"{round(v):02x}" for v in c) for c in np.transpose(mixed).tolist())


def check_size(*sizes: int) -> None:
    """Whether a view can draw it.

    Raises:
      CourseError: it has more than `MAX_ELEMENTS` elements.
    """
    count = int(np.prod(sizes, dtype=np.int64))
    if count > MAX_ELEMENTS:
        raise CourseError(f"{count:,} elements: at most {MAX_ELEMENTS:,} can be drawn here.")


# ---- shared memory ----


def memory_panel(ref: SmemRef, values: Array, palette: Sequence[str]) -> Panel:
    """Memory in rows of 128 bytes, with each slot's element's colour."""
    columns = ROW_BYTES * 8 // ref.bits
    rows = -(-ref.size // columns)
    shown = np.full(rows * columns, -1, np.int16)
    shown[: ref.size] = ref.memory(values)
    return Panel(
        "Shared memory, in rows of 128 bytes",
        shown.reshape(rows, columns),
        tuple(palette),
        "row of 128 bytes",
        f"element of {ref.bits} bits",
    )


def smem(ref: SmemRef, *, after: bool, colour: str) -> Drawing:
    """A ref and its memory image, with or without its swizzle."""
    check_size(*ref.shape)
    shown = ref if after else dataclasses.replace(ref, swizzle=None)
    values, palette = _smem_colours(shown, colour)
    left = Panel(f"The logical matrix, {ref.view_shape}", values.astype(np.int16), palette)
    right = memory_panel(shown, values, palette)
    sentence = _smem_sentence(ref, shown, after)
    return Drawing(sentence, (left, right), _smem_legend(colour, palette))


def _smem_legend(colour: str, palette: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if colour == "bank":
        return tuple((palette[b], f"bank {b}") for b in (0, 8, 16, 31))
    words = {"chunk": "16-byte chunk {}", "phase": "XORed with {}"}.get(colour, f"{colour} {{}}")
    return tuple((c, words.format(i)) for i, c in enumerate(palette))


def _smem_colours(ref: SmemRef, colour: str) -> tuple[Array, tuple[str, ...]]:
    byte = ref.byte_offsets()
    if colour == "bank":
        return bank(byte), ramp(32)
    if colour == "chunk":
        return byte // 16 % 8, EIGHT
    if colour == "phase":
        return ref.phases(), EIGHT
    if colour == "row":
        return np.broadcast_to(np.arange(ref.view_shape[0])[:, None] % 8, ref.view_shape), EIGHT
    per_tile = int(np.prod(ref.tiling.tiles[0])) if ref.tiling.tiles else ref.size
    return ref.element_offset(ref.indices()) // per_tile % 8, EIGHT


def _smem_sentence(ref: SmemRef, shown: SmemRef, after: bool) -> str:
    first = shown.byte_offsets()[:8, 0] // 16 % 8
    chunks = len(np.unique(first))
    tiles = f"tiles of {ref.tiling.tiles[0]}" if ref.tiling.tiles else "no tiling"
    swizzle = f"swizzle {ref.swizzle} bytes" if ref.swizzle else "no swizzle"
    off = " (shown without it)" if ref.swizzle and not after else ""
    turned = ", transposed" if ref.permutation else ""
    return (
        f"{ref.shape} of {ref.bits} bits, {tiles}, {swizzle}{off}{turned}: {ref.smem_bytes:,} "
        f"bytes. The first {len(first)} elements of column 0 lie in {chunks} different 16-byte "
        f"chunk{'' if chunks == 1 else 's'}."
    )


# ---- registers ----


def register_view(name: str, shape: Shape, bits: int, *, colour: str, lane: int = -1) -> Drawing:
    """An array coloured by who holds it first, and the 128 lanes; one of them may be isolated."""
    check_size(*shape)
    every_holder = named(name, shape, bits).holders(shape)
    holders = every_holder[:, 0]
    count = int(named(name, shape, bits).elements(shape).shape[1])
    by_colour = {"warp": holders[:, 0] // 32, "lane": holders[:, 0] % 32, "register": holders[:, 1]}
    threads = np.arange(128)
    of_threads = {"warp": threads // 32, "lane": threads % 32, "register": np.full(128, -1)}
    palette = EIGHT[:4] if colour == "warp" else ramp(32 if colour == "lane" else count)
    wide = shape[-1] if len(shape) == 2 else next(w for w in (16, 8, 4, 2, 1) if shape[0] % w == 0)
    what = "register" if colour == "register" else "lane"
    labels = by_colour["register" if colour == "register" else "lane"].reshape(-1, wide)
    vector = len(shape) == 1
    left = Panel(
        f"The array, {shape}; each element names its {what}",
        by_colour[colour].reshape(-1, wide).astype(np.int16),
        palette,
        f"element // {wide}" if vector else "row",
        f"element % {wide}" if vector else "column",
        labels=labels,
        marked=(every_holder[..., 0] == lane).any(axis=1).reshape(-1, wide),
    )
    right = Panel(
        "The 128 lanes of the Pallas thread",
        of_threads[colour].reshape(16, 8).astype(np.int16),
        palette,
        "4 rows a warp",
        "lane of the warp, modulo 8",
        labels=(threads % 32).reshape(16, 8),
        marked=(threads == lane).reshape(16, 8),
    )
    last = len(palette) - 1
    marked = range(4) if colour == "warp" else sorted({0, last // 3, 2 * last // 3, last})
    legend = tuple((palette[i], f"{colour} {i}") for i in marked)
    return Drawing(f"{name}: {CATALOG[name].what}.", (left, right), legend)


# ---- bank conflicts ----


def bank_view(name: str, ref: SmemRef, *, front: int, arch: str = "sm_90a") -> Drawing:
    """One wavefront of a transfer: the banks and the lanes they serve, and memory."""
    check_size(*ref.shape)
    transfer = Transfer(named(name, ref.view_shape, ref.bits), ref, arch)
    at = np.unravel_index(front % transfer.degrees.size, transfer.degrees.shape)
    warp, turn, part = map(int, at)
    uses = transfer.uses(warp, turn, part)
    turns = np.full((32, max(2, int(transfer.degrees[warp, turn, part]))), -1, np.int16)
    by_word: dict[int, int] = {}
    for use in uses:
        for place, (word, lanes) in enumerate(zip(use.words, use.lanes, strict=True)):
            by_word[word] = 2 if len(use.words) > 1 else int(len(lanes) > 1)
            turns[use.bank, place] = by_word[word]
    words = ref.bit_offset(ref.indices()) // 32
    table = np.full(int(words.max()) + 1, -1, np.int64)
    table[list(by_word)] = list(by_word.values())
    title = "Each bank gives one word at a time"
    left = Panel(title, turns, CONFLICT_COLOURS, "bank", "turn", origin=1)
    right = memory_panel(ref, table[words], CONFLICT_COLOURS)
    turned = transfer.form == "column"
    meanings = (
        "a word of one lane",
        "of several lanes' elements" if turned else "of several lanes: broadcast",
        "several words of a bank: conflict",
    )
    return Drawing(
        transfer.summary(), (left, right), tuple(zip(CONFLICT_COLOURS, meanings, strict=True))
    )


# ---- tensor memory ----


def tmem_view(refs: Sequence[TmemRef], *, shown: int = 0) -> Drawing:
    """An array and its place in tensor memory, coloured by the warp that may read it."""
    starts, allocated = allocate(refs), allocated_columns(refs)
    shown = max(0, min(len(refs) - 1, shown))
    ref = refs[shown]
    palette = (*EIGHT[:4], "#b9c0c8", EIGHT[6], EIGHT[4])
    left = Panel(
        f"{'The array' if len(refs) == 1 else f'Array {shown}'}, {ref.shape} of {ref.bits} bits",
        (ref.places()[..., 0] // 32).astype(np.int16),
        palette,
    )
    memory = np.full((128, COLUMNS), -1, np.int16)
    memory[:, :allocated] = 4
    for i, (one, start) in enumerate(zip(refs, starts, strict=True)):
        of_warp = np.arange(128)[:, None] // 32
        memory[:, start : start + one.columns] = of_warp if i == shown else 5 + i % 2
    title = "Tensor memory: 128 lanes x 512 columns of 32 bits"
    meanings = (
        *(f"warp {w} only" for w in range(4)),
        "allocated, not used",
        *(("of another array", "of the one next to that") if len(refs) > 1 else ()),
    )
    right = Panel(title, memory, palette, "lane", "column")
    legend = tuple(zip(palette, meanings, strict=False))
    return Drawing(_tmem_sentence(refs, starts, allocated), (left, right), legend)


def _tmem_sentence(refs: Sequence[TmemRef], starts: Sequence[int], allocated: int) -> str:
    kinds = [_tmem_kind(ref) for ref in refs]
    if len(refs) == 1:
        return f"{kinds[0]}: {refs[0].columns} of 512 columns; an allocation of {allocated}."
    end = starts[-1] + -(-refs[-1].columns // ALIGNMENT) * ALIGNMENT
    return f"{'; '.join(kinds)}: {end} of 512 columns together; one allocation of {allocated}."


def _tmem_kind(ref: TmemRef) -> str:
    packed = (", packed" if ref.packed else ", unpacked") if ref.bits < 32 else ""
    return f"{ref.shape} of {ref.bits} bits{packed}{', collective' if ref.collective else ''}"


# ---- pipelines ----


def pipeline_view(pipeline: Pipeline, *, work: str = "MMA") -> Drawing:
    """What each slot does over time, and when loads are issued and the tensor cores work."""
    slots = np.full((pipeline.stages, pipeline.total), -1, np.int16)
    units = np.full((2, pipeline.total), -1, np.int16)
    for k, (issued, arrived, begins, ends) in enumerate(pipeline.times.tolist()):
        slot = slots[k % pipeline.stages]
        slot[issued:arrived], slot[arrived:begins], slot[begins:ends] = 0, 1, 2
        units[0, issued : issued + pipeline.issue] = 0
        units[1, begins:ends] = 2
    palette = ("#e69f00", "#56b4e9", "#009e73")
    left = Panel("Slots of shared memory", slots, palette, "slot", "time")
    right = Panel(
        f"Loads issued, and {_plural(work)}", units, palette, f"0: TMA, 1: {work}", "time"
    )
    used = "being computed on" if work == "MMA" else f"in the {work}"
    meanings = ("loading", "full, waits", used)
    return Drawing(
        pipeline.summary(work=work), (left, right), tuple(zip(palette, meanings, strict=True))
    )


def _plural(work: str) -> str:
    return "MMAs" if work == "MMA" else f"the {work}"


def smem_ref(
    rows: int,
    columns: int,
    bits: int,
    tile: tuple[int, int] | None,
    swizzle: int | None,
    transposed: bool,
) -> SmemRef:
    """A ref from what the fields of the views hold."""
    return SmemRef(
        shape=(rows, columns),
        bits=bits,
        tiling=Tiling((tile,) if tile else ()),
        swizzle=swizzle,
        permutation=(1, 0) if transposed else None,
    )


def shape_of(name: str, rows: int, columns: int) -> Shape:
    """The shape of the array that a layout is shown for."""
    if name not in CATALOG:
        registers.named(name)  # raises, with the names that there are
    return (columns,) if CATALOG[name].rank == 1 else (rows, columns)
