"""The chapters' pictures: one module per subject, one function per picture.

Each function returns a `matplotlib.figure.Figure` whose label (`set_label`) says what
it shows; `show` puts it into a notebook as a PNG, with that as alternative text.
Pictures stand on a white panel of their own, so that they read the same in a light
and in a dark theme, and use `style`'s colours, which stay apart for colour-blind eyes.
"""

from __future__ import annotations

import base64
import io

from matplotlib.figure import Figure

__all__ = ["png", "show"]

_CSS_PX_PER_INCH = 100
_DEVICE_PX_PER_INCH = 200


def png(fig: Figure) -> bytes:
    """The figure as a PNG: the same bytes for the same figure and matplotlib."""
    data = io.BytesIO()
    fig.savefig(
        data,
        format="png",
        dpi=_DEVICE_PX_PER_INCH,
        facecolor="white",
        metadata={"Software": None},  # else it names the version of matplotlib
    )
    return data.getvalue()


def show(fig: Figure, *, alt: str = "") -> None:
    """Shows a figure below the cell, as a PNG that says what it shows.

    Args:
      fig: the figure; its width in inches times 100 is the width in CSS pixels, and it
        shrinks with the page.
      alt: what a reader who cannot see the picture should know; by default the figure's
        label, which the course's own pictures have. It is the output's text/plain form, and
        the `alt` of its metadata.

    Raises:
      ValueError: there is no text, neither `alt` nor a label.
    """
    from IPython.display import display  # a notebook has it; who only draws does not need it

    text = alt.strip() or str(fig.get_label()).strip()
    if not text:
        raise ValueError("alt must say what the picture shows: this figure has no label")
    width_px = round(fig.get_size_inches()[0] * _CSS_PX_PER_INCH)
    display(
        {"image/png": base64.b64encode(png(fig)).decode("ascii"), "text/plain": text},
        raw=True,
        metadata={"needs_background": "light", "image/png": {"width": width_px, "alt": text}},
    )
