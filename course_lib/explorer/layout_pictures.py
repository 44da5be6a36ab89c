"""The layout views without a browser: their sentence, and their picture as a figure.

What is computed here with numpy is what the views compute on the client; the tests
compare both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from course_lib.diagnostics import CourseError
from course_lib.figures import style
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

    def figure(self) -> Figure:
        """Both panels side by side, or one above the other; the sentence above."""
        rows = max((p.values.shape[0] for p in self.panels if p.numbered), default=0)
        height = 8.4 if rows > 24 else 4.4
        fig = Figure(figsize=(style.WIDTH_IN, height), layout="constrained")
        fig.suptitle(self.sentence, fontsize=9, x=0.01, ha="left", wrap=True)
        axes = fig.subplots(2, 1) if self.stacked else fig.subplots(1, 2)
        for ax, panel in zip(axes, self.panels, strict=True):
            _draw(ax, panel)
        patches = [Patch(facecolor=colour, label=words) for colour, words in self.legend]
        fig.legend(handles=patches, loc="outside lower left", ncols=4, fontsize=8, frameon=False)
        return fig


def _draw(ax: Axes, panel: Panel) -> None:
    colours = ListedColormap([EMPTY, *panel.palette])
    shown = panel.values.astype(np.int64) + 1
    ax.imshow(
        shown, cmap=colours, vmin=-0.5, vmax=len(panel.palette) + 0.5, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    if panel.numbered:
        _write_labels(ax, panel)
    if panel.marked is not None:
        for r, c in np.argwhere(panel.marked).tolist():
            corner = (c - 0.5, r - 0.5)
            ax.add_patch(
                Rectangle(corner, 1, 1, facecolor="none", edgecolor="#c2185b", linewidth=1.5)
            )
    ax.set_title(panel.title, fontsize=9, loc="left")
    ax.set_xlabel(panel.columns_are, fontsize=8)
    ax.set_ylabel(panel.rows_are, fontsize=8)
    ax.tick_params(labelsize=7)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    if panel.row_names:
        ax.set_yticks(range(len(panel.row_names)), panel.row_names)
    if panel.step != 1:
        ax.xaxis.set_major_formatter(lambda at, _: f"{panel.origin + at * panel.step:.0f}")


def _write_labels(ax: Axes, panel: Panel) -> None:
    assert panel.labels is not None
    size = min(7.0, 440 / panel.labels.shape[0])
    for (r, c), number in np.ndenumerate(panel.labels):
        value = int(panel.values[r, c])
        light = value < 0 or sum(to_rgb(panel.palette[value])) > 1.4
        ink = "black" if light else "white"
        ax.text(c, r, str(number), fontsize=size, color=ink, ha="center", va="center")


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
    left = Panel(title, turns, CONFLICT_COLOURS, "bank", "turn")
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
        *(("of another array", "of another") if len(refs) > 1 else ()),
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
    meanings = ("loading", "full, waits", "being computed on")
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
