"""A timeline as a picture: a band per thread, and under it what its engines have under way.

Spans of an engine that overlap lie below each other, so that a reader can count what
is under way. Colours stay apart for colour-blind eyes (Okabe and Ito), and the panel
is white, so that it reads the same in a dark theme.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.simulator.timeline import Span, Timeline

_INK, _GREY = "#1b1f24", "#c9ced4"
# what a span is -> colour and the legend's word, in the legend's order
_STYLES = {
    "wait": (_GREY, "waits"),
    "issue": ("#3b7fb6", "starts something"),
    "memory": ("#56b4e9", "reads or writes memory"),
    "arithmetic": ("#f0b357", "computes"),
    "copy_gmem_to_smem": ("#009e73", "copy in"),
    "copy_smem_to_gmem": ("#e69f00", "copy out"),
    "in flight": ("#a05195", "tensor core or other engine"),
}
_WIDTH_IN, _LEFT_IN, _RIGHT_IN = 7.6, 1.25, 0.15
_CHARACTER_IN = 0.066  # of a lane's name, on average
_ROW_IN, _GAP_IN, _FOOT_IN, _PX_PER_INCH = 0.16, 0.10, 0.62, 200
_KINDS_IN_A_ROW = 5  # of the legend


def draw(timeline: Timeline, lanes: Sequence[str]) -> Figure:
    """The lanes named, from the first cycle to the last of them."""
    from matplotlib.figure import Figure

    packed = {lane: _pack([s for s in timeline.spans if s.lane == lane]) for lane in lanes}
    heights = [_ROW_IN * max(2, len(rows)) + _GAP_IN for rows in packed.values()]
    kinds = {_kind(s) for rows in packed.values() for row in rows for s in row}
    foot_in = _FOOT_IN + _ROW_IN * (len(kinds) > _KINDS_IN_A_ROW)
    height_in = sum(heights) + foot_in
    figure = Figure(figsize=(_WIDTH_IN, height_in))
    bottom = foot_in / height_in
    left_in = max(_LEFT_IN, 0.15 + _CHARACTER_IN * max(map(len, lanes), default=0))
    box = (left_in / _WIDTH_IN, bottom, 1 - (left_in + _RIGHT_IN) / _WIDTH_IN, 0.99 - bottom)
    axes = figure.add_axes(box)
    top = sum(heights)
    for (lane, rows), height in zip(packed.items(), heights, strict=True):
        _lane(axes, lane, rows, top, height)
        top -= height
    last = max((s.end for rows in packed.values() for row in rows for s in row), default=1.0)
    _frame(axes, last, sum(heights))
    _legend(axes, kinds)
    figure.set_label(describe(timeline, lanes))
    return figure


def describe(timeline: Timeline, lanes: Sequence[str]) -> str:
    """The picture in words: how busy each lane is."""
    sentences = [f"Timeline of {_count(len(lanes))} over {timeline.cycles:,.0f} cycles."]
    for lane in lanes:
        spans = [s for s in timeline.spans if s.lane == lane]
        waits = [s for s in spans if s.kind == "wait"]
        engine = all(s.kind == "in flight" for s in spans)
        share = covered(spans if engine else waits) / max(timeline.cycles, 1)
        verb = "is at work" if engine else "waits"
        most = f", with {len(_pack(spans))} at a time at most" if engine else ""
        sentences.append(f"{lane} {verb} for {share:.0%} of them{most}.")
    return " ".join(sentences)


def _count(lanes: int) -> str:
    return f"{lanes} lane{'' if lanes == 1 else 's'}"


def covered(spans: Iterable[Span]) -> float:
    """How many cycles lie in at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted((s.start, s.end) for s in spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def png(figure: Figure) -> bytes:
    """The picture's file."""
    data = io.BytesIO()
    figure.savefig(
        data, format="png", dpi=_PX_PER_INCH, facecolor="white", metadata={"Software": None}
    )
    return data.getvalue()


def bundle(figure: Figure) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a notebook shows: the picture with its words, and the metadata."""
    import base64

    text = str(figure.get_label())
    width = round(figure.get_size_inches()[0] * 100)
    data = {"image/png": base64.b64encode(png(figure)).decode("ascii"), "text/plain": text}
    return data, {"needs_background": "light", "image/png": {"width": width, "alt": text}}


def _pack(spans: Iterable[Span]) -> list[list[Span]]:
    """Rows in which no two spans overlap, as few as there can be."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        row = next((r for r in rows if r[-1].end <= span.start + 1e-6), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return rows or [[]]


def _kind(span: Span) -> str:
    """The key of a span's style: copies in flight by their name, all else by its kind."""
    return span.name if span.kind == "in flight" and span.name in _STYLES else span.kind


def _lane(axes: Axes, lane: str, rows: list[list[Span]], top: float, height: float) -> None:
    step = (height - _GAP_IN) / len(rows)
    for i, row in enumerate(rows):
        for span in row:
            axes.broken_barh(
                [(span.start, span.end - span.start)],
                (top - (i + 1) * step, 0.88 * step),
                facecolors=_STYLES[_kind(span)][0],
                edgecolors="white",
                linewidth=0.3,
            )
    middle = top - (height - _GAP_IN) / 2
    axes.text(
        -0.012, middle, lane, transform=axes.get_yaxis_transform(), ha="right", va="center",
        fontsize=9, color=_INK,
    )  # fmt: skip


def _frame(axes: Axes, last: float, height: float) -> None:
    axes.set_xlim(0, last)
    axes.set_ylim(0, height + 0.02)
    axes.set_yticks([])
    axes.tick_params(labelsize=8, colors=_INK)
    axes.set_xlabel("cycles", fontsize=8.5, color=_INK, labelpad=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _legend(axes: Axes, kinds: set[str]) -> None:
    from matplotlib.patches import Patch

    shown = [style for kind, style in _STYLES.items() if kind in kinds]
    axes.legend(
        handles=[Patch(color=colour, label=word) for colour, word in shown],
        loc="upper left", bbox_to_anchor=(-0.01, -0.28 / max(axes.get_ylim()[1], 0.5)),
        ncols=max(1, -(-len(shown) // (1 + (len(shown) > _KINDS_IN_A_ROW)))),
        fontsize=8, frameon=False, handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip
