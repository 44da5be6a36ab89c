"""Wrong answers to two_languages.place."""

from __future__ import annotations

from tests.wrong_answers import Wrong, mojo_answer

_ID = "two_languages.place"
_ROW = "return lane // 32 * 16 + lane % 32 // 4 + i // 2 % 2 * 8"
_COL = "return lane % 4 * 2 + i % 2 + i // 4 * 8"

WRONG = {
    # A lane with a row and a half of its own: row-major, as one might think at first.
    "row-major": Wrong(
        mojo_answer(_ID, "return lane // 2", "return lane % 2 * 64 + i"), "value", ("[",)
    ),
    # Takes the second register of a pair for the one 8 rows further down.
    "pairs upright": Wrong(
        mojo_answer(_ID, _ROW.replace("i // 2 % 2", "i % 2"), _COL.replace("i % 2", "i // 2 % 2")),
        "value",
        ("[0, 1]",),
    ),
    # Nobody has the rows 8 to 15 of a warp.
    "no second half": Wrong(
        mojo_answer(_ID, _ROW.replace(" + i // 2 % 2 * 8", ""), _COL), "nan", ("[8, 0]",)
    ),
    "columns beside each other": Wrong(
        mojo_answer(_ID, _ROW, "return lane % 4 + i % 2 + i // 4 * 8"), "nan", ("[0, 5]",)
    ),
}
