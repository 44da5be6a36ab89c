"""Wrong answers to mojo_tiles.histogram."""

from __future__ import annotations

from tests.wrong_answers import Wrong, mojo_answer

_ID = "mojo_tiles.histogram"
_COUNT = "_ = Atomic.fetch_add(mine.unsafe_offset(Int(number & 15)), 1)"
_MERGE = """\
if tid < BINS:
    _ = Atomic.fetch_add(all.unsafe_offset(tid), mine[unsafe_offset=tid])
"""

WRONG = {
    # Right for one lane after the other; additions get lost where lanes run together.
    "a plain addition": Wrong(
        mojo_answer(_ID, "mine[unsafe_offset=Int(number & 15)] += 1", _MERGE), "means", ("atom",)
    ),
    "all lanes merge": Wrong(
        mojo_answer(_ID, _COUNT, _MERGE.partition("\n")[2].strip()), "out-of-bounds", ("beyond",)
    ),
    "merges lanes, not counts": Wrong(
        mojo_answer(_ID, _COUNT, _MERGE.replace("mine[unsafe_offset=tid]", "1")), "value", ("[0]",)
    ),
}
