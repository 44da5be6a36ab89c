"""Pictures of Hopper's TensorCore: what one call of wgmma is made of, and when it runs.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" (shapes; registers and
shared memory belong to the instruction until wgmma.wait_group); the K of an instruction is 32
bytes of a row.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

_ROWS = 64  # of one instruction
_K_BYTES = 32  # of one instruction
_A_X, _D_X, _D_Y, _B_Y = 9.0, 28.0, 3.0, 28.5
_A_W, _D_W, _D_H, _B_H = 14.0, 26.0, 21.0, 10.5

_LEFT, _RIGHT = 13.0, 75.0
_THREAD_Y, _TENSOR_Y, _HEIGHT = 21.5, 9.0, 5.4
# start, end, text, colour; in tenths of an inch from the left edge
_THREAD = (
    (_LEFT, 22.0, "barrier_wait", style.GREY),
    (22.0, 27.5, "wgmma", style.BLUE),
    (27.5, 42.0, "other work", "white"),
    (42.0, 57.0, "acc[...] waits", style.GREY),
    (57.0, _RIGHT, "uses the result", style.GREEN),
)
_TENSOR = ((27.5, 57.0, "reads A and B from SMEM,\nadds to the registers of D", style.SKY),)


def one_call(m: int = 128, n: int = 128, k: int = 64, *, itemsize: int = 2) -> Figure:
    """D += A @ B as one call of `plgpu.wgmma`, cut into the instructions that it issues.

    Args:
      m, n, k: the call's shape; 64 divides m.
      itemsize: bytes of an element of A and B; a row of A is a multiple of 32 bytes.
    """
    bands, steps = m // _ROWS, k * itemsize // _K_BYTES
    depth = _K_BYTES // itemsize
    fig, ax = canvas(4.2)
    here = (bands - 1, min(1, steps - 1))  # the instruction that is picked out
    _cut(ax, (_A_X, _D_Y, _A_W, _D_H), (bands, steps), here)
    _cut(ax, (_D_X, _B_Y, _D_W, _B_H), (steps, 1), (here[1], 0))
    _cut(ax, (_D_X, _D_Y, _D_W, _D_H), (bands, 1), (here[0], 0))
    for x, y, name, where in (
        (_A_X + _A_W / 2, _D_Y + _D_H + 1.2, f"A: {m} x {k}", "in SMEM"),
        (_D_X + _D_W / 2, _B_Y + _B_H + 1.4, f"B: {k} x {n}", "in SMEM"),
        (_D_X + _D_W / 2, _D_Y + _D_H + 1.2, f"D: {m} x {n}", "in registers"),
    ):
        label(ax, (x, y), f"{name}, {where}", size=9.5, weight="bold")
    _notes(ax, (bands, steps), (n, depth))
    fig.set_label(
        f"One call of wgmma adds A, {m} by {k}, times B, {k} by {n}, to D, {m} by {n}. A is cut "
        f"into {bands} bands of 64 rows and {steps} pieces of {depth} columns, B into {steps} "
        f"pieces of {depth} rows, D into {bands} bands. Each instruction takes one piece of A and "
        f"one of B and adds their product to one band of D: {bands * steps} instructions of shape "
        f"m64n{n}k{depth}. One of them is picked out in orange."
    )
    return fig


def life_of_a_call() -> Figure:
    """A call over time: the thread issues it and goes on; the TensorCore works meanwhile."""
    fig, ax = canvas(3.4)
    for y, name, what in (
        (_THREAD_Y, "your thread", "128 lanes"),
        (_TENSOR_Y, "TensorCore", "async proxy"),
    ):
        label(ax, (0.6, y + 3.6), name, size=10, ha="left", weight="bold")
        label(ax, (0.6, y + 1.5), what, size=9, ha="left", color=style.MUTED)
    for y, spans in ((_THREAD_Y, _THREAD), (_TENSOR_Y, _TENSOR)):
        for start, end, text, colour in spans:
            box(ax, (start, y, end - start, _HEIGHT), text, fill=colour, size=9)
    begin, end = _TENSOR[0][:2]
    _arrow(ax, begin, down=True, text="1")
    _arrow(ax, end, down=False, text="2")
    ax.plot([begin, begin, end, end], [7.6, 6.6, 6.6, 7.6], color=style.LINE)
    label(ax, ((begin + end) / 2, 5.0), "do not touch A, B or D", size=9.5)
    _brace(ax)
    label(ax, ((_LEFT + _RIGHT) / 2, 0.9), "time", size=9, color=style.MUTED)
    arrow = {"arrowstyle": "-|>", "color": style.LINE, "lw": 1}
    ax.annotate("", xy=(_RIGHT, 2.6), xytext=(_LEFT, 2.6), arrowprops=arrow)
    fig.set_label(
        "Two lanes over time. Your thread waits for the operands, issues wgmma (1), does other "
        "work, and waits when it reads acc[...], until the TensorCore is done (2); then it uses "
        "the result. From (1) to (2) the TensorCore reads A and B from SMEM and adds to the "
        "registers of D. In that time nobody may touch A, B or D."
    )
    return fig


def _cut(
    ax: Axes,
    xywh: tuple[float, float, float, float],
    parts: tuple[int, int],
    picked: tuple[int, int],
) -> None:
    """A matrix cut into parts (down, across), one of them picked out."""
    x, y, w, h = xywh
    down, across = parts
    for i in range(down):
        for j in range(across):
            left, bottom = x + j * w / across + 0.2, y + h - (i + 1) * h / down + 0.2
            fill = style.ORANGE if (i, j) == picked else style.SKY
            box(ax, (left, bottom, w / across - 0.4, h / down - 0.4), fill=fill)


def _notes(ax: Axes, parts: tuple[int, int], shape: tuple[int, int]) -> None:
    """Beside the matrices: how many instructions, and of which shape."""
    (bands, steps), (n, depth) = parts, shape
    x = 57.0
    label(ax, (x, 36), f"{bands} x {steps} = {bands * steps} instructions", size=10.5, ha="left",
          weight="bold")  # fmt: skip
    label(ax, (x, 33.4), f"each of shape m64n{n}k{depth}", size=9.5, ha="left")
    label(ax, (x, 19.5), "orange:", size=9.5, ha="left", weight="bold")
    label(ax, (x, 17.2), "what one of them", size=9.5, ha="left")
    label(ax, (x, 15.2), "reads and adds to", size=9.5, ha="left")
    label(ax, (_A_X - 0.8, _D_Y + _D_H - _D_H / bands / 2), "64\nrows", size=9, ha="right",
          color=style.MUTED)  # fmt: skip
    label(ax, (_A_X + _A_W / steps / 2, _D_Y - 1.4), f"{depth} columns", size=9, color=style.MUTED)


def _arrow(ax: Axes, x: float, *, down: bool, text: str) -> None:
    """From the one who speaks to the one who hears it."""
    top, bottom = _THREAD_Y, _TENSOR_Y + _HEIGHT
    start, end = (top, bottom) if down else (bottom, top)
    arrow = {"arrowstyle": "-|>", "color": style.INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=(x, end), xytext=(x, start), arrowprops=arrow)
    label(ax, (x - 1.5, (top + bottom) / 2), text, size=10, weight="bold")


def _brace(ax: Axes) -> None:
    y = _THREAD_Y + _HEIGHT
    ax.plot([_LEFT, _LEFT, 22.0, 22.0], [y + 0.8, y + 1.6, y + 1.6, y + 0.8], color=style.LINE)
    label(ax, ((_LEFT + 22.0) / 2, y + 3.6), "the operands\nmust be there", size=9)
