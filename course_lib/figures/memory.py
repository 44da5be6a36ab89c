"""One picture of the memory spaces: where each lies, how large, how fast, how far.

`SPACES` holds the numbers and where each is from; `memory_spaces()` draws them.
Where sources disagree, both ends are given; where none states a number, the
picture says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

# dark enough for text on white (7:1), apart for colour-blind eyes
_HOPPER, _BLACKWELL = "#0a4f94", "#8a3b00"
_COLUMNS = ((36.2, "size"), (49.4, "bandwidth"), (63.0, "latency"))


@dataclasses.dataclass(frozen=True)
class Number:
    """A figure as text, and where it is from.

    Attributes:
      text: the number with its unit.
      source: a key of `SOURCES`, or "computed from ..." where it is arithmetic.
    """

    text: str
    source: str


@dataclasses.dataclass(frozen=True)
class Space:
    """A memory space on two GPUs.

    Attributes:
      name: how the course calls it.
      place: where it lies and who shares it.
      size, bandwidth, latency: `(H200, B200)`; None where the GPU has no such space.
      colour: that of its box.
    """

    name: str
    place: str
    size: tuple[Number | None, Number]
    bandwidth: tuple[Number | None, Number]
    latency: tuple[Number | None, Number]
    colour: str


SOURCES = {
    "hopper-guide": "https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html",
    "blackwell-guide": "https://docs.nvidia.com/cuda/blackwell-tuning-guide/index.html",
    "programming-guide": (
        "https://docs.nvidia.com/cuda/archive/12.9.0/cuda-c-programming-guide/"
        "index.html#shared-memory-5-x"
    ),
    "ptx-isa": "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#tensor-memory",
    "h200": "https://www.nvidia.com/en-us/data-center/h200/",
    "dgx-b200": "https://www.nvidia.com/en-us/data-center/dgx-b200/",
    "xla-h200": "https://github.com/openxla/xla/blob/main/xla/backends/gpu/target_config/specs/h200.txtpb",
    "xla-b200": "https://github.com/openxla/xla/blob/main/xla/backends/gpu/target_config/specs/b200.txtpb",
    "mt4g": "https://github.com/caps-tum/mt4g/tree/main/sample_results",
    "gpu-benches": "https://github.com/RRZE-HPC/gpu-benches",
    "ai-kernels": "https://github.com/markdewing/AI_kernels/tree/main/latency",
}

_UNKNOWN = Number("unknown", "no source found")
_OPERAND = Number("none", "ptx-isa")

SPACES: Sequence[Space] = (
    Space(
        "registers",
        "private to each lane",
        (Number("256 KB per SM", "hopper-guide"), Number("256 KB per SM", "blackwell-guide")),
        (
            Number("over 500 TB/s", "computed from xla-h200"),
            Number("over 500 TB/s", "computed from xla-b200"),
        ),
        (_OPERAND, _OPERAND),
        style.VERMILION,
    ),
    Space(
        "TMEM",
        "for MMA; Blackwell only",
        (None, Number("256 KB per SM", "ptx-isa")),
        (None, _UNKNOWN),
        (None, _UNKNOWN),
        style.PURPLE,
    ),
    Space(
        "SMEM",
        "shared by a block",
        (Number("228 KB per SM", "hopper-guide"), Number("228 KB per SM", "blackwell-guide")),
        (
            Number("33 TB/s", "computed from programming-guide and xla-h200"),
            Number("37 TB/s", "computed from programming-guide and xla-b200"),
        ),
        (Number("30 cycles", "mt4g"), _UNKNOWN),
        style.ORANGE,
    ),
    Space(
        "L2 cache",
        "shared by all SMs",
        (Number("50 MB", "xla-h200"), Number("126 MB", "xla-b200")),
        (Number("4.9 to 9.8 TB/s", "mt4g and gpu-benches"), _UNKNOWN),
        (Number("220 to 290 cycles", "mt4g and ai-kernels"), Number("295 cycles", "ai-kernels")),
        style.GREEN,
    ),
    Space(
        "GMEM",
        "HBM beside the chip, shared by all SMs",
        (Number("141 GB", "h200"), Number("180 GB", "dgx-b200")),
        (Number("4.8 TB/s", "h200"), Number("8 TB/s", "dgx-b200")),
        (Number("690 to 830 cycles", "gpu-benches and mt4g"), Number("860 cycles", "ai-kernels")),
        style.BLUE,
    ),
)

ALT = (
    "Diagram of a GPU's memory spaces, from fast and small at the top to slow and large at the "
    "bottom. Inside each SM: registers (256 KB per SM, over 500 TB/s), on Blackwell TMEM (256 KB "
    "per SM), and SMEM (228 KB per SM, 33 TB/s on an H200, 30 cycles). Outside, shared by all SMs: "
    "the L2 cache (50 MB on an H200, 126 MB on a B200, 220 to 295 cycles), and GMEM (141 GB at "
    "4.8 TB/s on an H200, 180 GB at 8 TB/s on a B200, 690 to 860 cycles). Arrows: loads and "
    "stores, ref[...], go between registers and SMEM and between registers and GMEM; the copy "
    "engine (TMA) goes between SMEM and GMEM. Both pass through L2."
)


def memory_spaces() -> Figure:
    """The picture: the spaces from fastest to largest, with their numbers on H200 and B200."""
    fig, ax = canvas(5.5)
    fig.set_label(ALT)
    _headings(ax)
    box(ax, (0.6, 22.6, 33.2, 28.8), fill=style.PANEL)
    sm = "one SM (an H200 has 132, a B200 has 148)"
    label(ax, (1.8, 49.8), sm, size=9, ha="left", color=style.MUTED)
    for space, top in zip(SPACES, (48.2, 39.6, 31.0, 17.6, 8.8), strict=True):
        _row(ax, space, top)
    _arrow(ax, 24.6, 44.6, 27.4)
    _arrow(ax, 32.4, 44.6, 5.2)
    label(ax, (28.5, 36.0), "loads and\nstores:\nref[...]", size=9)
    _arrow(ax, 16.0, 23.8, 8.8)
    label(ax, (17.0, 20.1), "copy engine (TMA)", size=9, ha="left")
    return fig


def _headings(ax: Axes) -> None:
    for x, title in _COLUMNS:
        label(ax, (x, 53.0), title, size=10, ha="left", weight="bold")
    label(ax, (1.8, 53.0), "on an H200", size=10, ha="left", weight="bold", color=_HOPPER)
    label(ax, (12.6, 53.0), "on a B200", size=10, ha="left", weight="bold", color=_BLACKWELL)


def _row(ax: Axes, space: Space, top: float) -> None:
    """A space's box, `top` being its upper edge, and its numbers to the right of it."""
    in_sm = top > 20
    left, width = (1.8, 21.6) if in_sm else (0.6, 33.2)
    box(ax, (left, top - 7.2, width, 7.2), fill=space.colour)
    label(ax, (left + 1.0, top - 2.4), space.name, size=11, ha="left", weight="bold")
    label(ax, (left + 1.0, top - 5.2), space.place, size=9, ha="left")
    for (x, _), pair in zip(_COLUMNS, (space.size, space.bandwidth, space.latency), strict=True):
        _pair(ax, x, top, pair)
    ax.plot([36.0, 75.4], [top - 7.9] * 2, color=style.GREY, lw=0.8)


def _pair(ax: Axes, x: float, top: float, pair: tuple[Number | None, Number]) -> None:
    hopper, blackwell = pair
    if hopper is not None and hopper.text == blackwell.text:
        label(ax, (x, top - 3.6), blackwell.text, size=9, ha="left")
        return
    text = hopper.text if hopper else "\N{EN DASH}"
    label(ax, (x, top - 2.2), text, size=9, ha="left", color=_HOPPER)
    label(ax, (x, top - 5.0), blackwell.text, size=9, ha="left", color=_BLACKWELL)


def _arrow(ax: Axes, x: float, top: float, bottom: float) -> None:
    look = {"arrowstyle": "<|-|>", "color": style.INK, "lw": 1.4}
    ax.annotate("", xy=(x, top), xytext=(x, bottom), arrowprops=look)
