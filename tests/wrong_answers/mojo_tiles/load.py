"""Wrong answers to mojo_tiles.load."""

from __future__ import annotations

from tests.wrong_answers import Wrong, mojo_answer

_ID = "mojo_tiles.load"
_SOLUTION = """\
if row < SIZE and col < SIZE:
    tile[ty, tx] = rebind[tile.ElementType](x[row, col])
else:
    tile[ty, tx] = 0
"""

WRONG = {
    # Reads on into the next row, and beyond the end.
    "no edges": Wrong(
        mojo_answer(_ID, "tile[ty, tx] = rebind[tile.ElementType](x[row, col])"), "nan", ("[",)
    ),
    # What the last tile left stands in the slots outside of the matrix.
    "no zeros": Wrong(mojo_answer(_ID, _SOLUTION.partition("else")[0]), "value", ("[",)),
    "transposes the tile": Wrong(
        mojo_answer(_ID, _SOLUTION.replace("tile[ty, tx]", "tile[tx, ty]")), "value", ("[",)
    ),
}
