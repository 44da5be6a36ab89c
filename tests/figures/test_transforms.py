"""The pictures of chapter 03 say what the layout model says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from course_lib import figures
from course_lib.figures import transforms
from course_lib.layouts.swizzle import swizzle_bytes

FIGURES: dict[str, Any] = {
    "tiles": transforms.tiles_in_memory,
    "bits": lambda: transforms.address_bits(1702),
    "bits, 32": lambda: transforms.address_bits(1702, swizzle=32),
    "atom": transforms.atom,
    "atom, 64": lambda: transforms.atom(swizzle=64),
}


def texts(fig: Figure) -> list[str]:
    return [t.get_text() for t in fig.axes[0].texts]


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_can_be_shown_and_has_a_description(name: str) -> None:
    fig = FIGURES[name]()
    assert figures.png(fig)[:4] == b"\x89PNG"
    assert len(fig.get_label()) > 100


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_the_bits_are_those_of_the_address_and_of_what_the_swizzle_makes_of_it(
    swizzle: int,
) -> None:
    offset = int(np.random.default_rng().integers(0, 4096))
    digits = [t for t in texts(transforms.address_bits(offset, swizzle=swizzle)) if t in ("0", "1")]
    bits = "".join(d for d in digits)
    # the numbers of the bits, 0 and 1 among them, come before either row; rows begin with bit 0
    before, after = bits[2:14][::-1], bits[14:][::-1]
    assert int(before, 2) == offset
    assert int(after, 2) == int(swizzle_bytes(np.asarray(offset), swizzle))


def test_an_address_with_more_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="below 4096"):
        transforms.address_bits(4096)


@pytest.mark.parametrize(("swizzle", "rows"), [(128, 8), (64, 4), (32, 2)])
def test_a_swizzle_sends_a_chunk_to_as_many_places_as_it_has_chunks(
    swizzle: int, rows: int
) -> None:
    chunks = [
        (*t.get_position(), int(t.get_text()))
        for t in transforms.atom(swizzle=swizzle).axes[0].texts
        if re.fullmatch(r"[0-7]", t.get_text()) and t.get_position()[1] > 6  # above the axis
    ]
    plain = {(x, chunk) for x, _, chunk in chunks if x < 40}
    swizzled = {(x, chunk) for x, _, chunk in chunks if x > 40}
    assert (len(plain), len(swizzled)) == (8, 8 * rows)


def test_the_tiles_are_numbered_row_by_row() -> None:
    fig = transforms.tiles_in_memory(16, 256)
    assert [t for t in texts(fig) if t == "tile 7"] == ["tile 7"] * 2
    assert "tile 8" not in texts(fig)
