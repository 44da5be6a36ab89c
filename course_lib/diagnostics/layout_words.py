"""Plain words for layout inference that has no solution: whose demands contradict each other.

Mosaic says only that there is none. The compiler finds the smallest set of
operations that have no layouts together; here that set becomes a sentence.
Each function takes Mosaic's reason ("" if it gives none) and the operations,
and returns `(what it means, what to change)`, or None if it is about
something else. The rules that they put into words are those of JAX's
`jax.experimental.mosaic.gpu.layout_inference`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.diagnostics.clinic import Place

type Words = tuple[str, str]
_CAST = re.compile(r" to (?P<layout>[A-Z]\w+(?:\.reduce\(\d\))?)")
_REDUCED = re.compile(r" (?P<axes>along axis \d+|over all axes)")
_TRANSFORMS = re.compile(r", (?P<transforms>(?:tiled|swizzled|row-major).*)")
_NO_PLAN = re.compile(r"for register layout (?P<layout>\S+) and ref with transforms \((?P<t>.*)\)$")
_NAME = r"\w+(?:\.reduce\(\d\))?"
_NO_RELAYOUT = re.compile(
    rf"cannot relayout from register layout (?P<a>{_NAME}).* to (?P<b>{_NAME})"
)
_NO_REASON = "This should only happen if user-provided layout casts are unsatisfiable"
_UNPROVED = re.compile(r"prove the divisibility of index (?P<index>\d+)")
_ELEMENTWISE_HINT = "plgpu.load(ref, layout=plgpu.Layout.WGMMA)"
_SPREAD = "Each array in registers is spread over the 128 lanes of the Pallas thread in one layout."
_OTHER_TRANSFORMS = (
    "leave transforms= out, then they are inferred; or add the SwizzleTransform that fits the "
    "tile; or accept the conflicts: plgpu.load(ref, layout=..., optimized=False)."
)
# How JAX names the layouts that have parameters.
_LONG_NAMES = {"WGStridedFragLayout": "WG_STRIDED", "WGSplatFragLayout": "WG_SPLAT"}


def explain(reason: str, places: Sequence[Place]) -> Words:
    """What a contradiction means, and what to change."""
    reason = "" if reason.startswith(_NO_REASON) else reason
    if len(_lines(places)) > 1 or len(places) > 1:
        for look in (_mma_shape, _tiles_missed, _wrong_transforms, *_REGISTERS):
            if words := look(reason, places):
                return words
    return _mma_shape(reason, places) or _alone(reason, places)


def _mma_shape(_: str, places: Sequence[Place]) -> Words | None:
    names = _operations(places)
    if not names or not all("mma" in name for name in names):
        return None
    if all("tcgen05" in name for name in names):
        return (
            "The tensor core has no instruction for operands of this shape, or for their layout "
            "in TMEM.",
            "M must be 64 or 128, N a multiple of 8 up to 256, or 512, and K a multiple of the "
            "swizzle's width (with M = 64 half of N, too); in TMEM an accumulator is never packed, "
            "and an operand A always is.",
        )
    return (
        "The tensor core has no instruction for operands of this shape.",
        "M must be a multiple of 64, N a multiple of 8 up to 256, and K a multiple of the "
        "swizzle's width: 64 float16 for 128 bytes, 32 for 64, 16 for 32.",
    )


def _tiles_missed(reason: str, places: Sequence[Place]) -> Words | None:
    """A copy alone: its slices do not fall on the buffer's tiles."""
    if not all(name.startswith("copy_") or name == "async_copy" for name in _operations(places)):
        return None
    transforms = next((t["transforms"] for p in places if (t := _TRANSFORMS.search(p.value))), "")
    tiles = f" ({transforms})" if transforms else ""
    if unproved := _UNPROVED.search(reason):
        return (
            f"The SMEM buffer of this copy is stored in tiles{tiles}, and nothing shows that "
            f"index {unproved['index']} of the slice is a multiple of the tile.",
            "build the offset as a product, pl.ds(i * 8, ...), or promise it: "
            "pl.multiple_of(offset, 8).",
        )
    return (
        f"The offsets or sizes of this copy do not fall on the tiles of its SMEM buffer{tiles}: "
        "the copy engine moves whole tiles.",
        "make every offset and size of the slice a multiple of the tile's side.",
    )


def _wrong_transforms(reason: str, places: Sequence[Place]) -> Words | None:
    """The transforms that the program gives a buffer do not suit who reads it."""
    given = {t["transforms"] for p in places if (t := _TRANSFORMS.search(p.value))}
    if not given:
        return _no_plan(reason)
    what = " and ".join(sorted(given))
    if any("mma" in name for name in _operations(places)):
        return (
            "The tensor core reads SMEM in tiles of 8 rows by the swizzle's width (128, 64 or 32 "
            f"bytes), both operands with the same swizzle. Given here: {what}.",
            "leave transforms= out, then they are inferred; or give both buffers the same, for 16 "
            "bits TilingTransform((8, 64)) and SwizzleTransform(128).",
        )
    return (
        f"The transforms that the program gives a buffer here ({what}) do not suit how it is read "
        "or written: every way to do it has bank conflicts.",
        _OTHER_TRANSFORMS,
    )


def _no_plan(reason: str) -> Words | None:
    plan = _NO_PLAN.search(reason)
    if plan is None:
        return None
    return (
        f"The buffer's transforms ({plan['t'].rstrip(',') or 'none'}) do not suit a transfer in "
        f"the layout {plan['layout']}: every way to do it has bank conflicts.",
        _OTHER_TRANSFORMS,
    )


def _cast_of_a_reduction(_: str, places: Sequence[Place]) -> Words | None:
    """What is left of one axis is to become what is left of the other."""
    for base in _layouts(places):
        for _place, axes in _reductions(places):
            before = f"{base}.reduce({axes[-1]})"
            for after in _layouts(places):
                if after.startswith(f"{base}.reduce(") and after != before:
                    return _impossible(before, after)
    return None


def _no_relayout(reason: str, places: Sequence[Place]) -> Words | None:
    """A value of one layout is cast to another; some JAX versions give it as the reason."""
    if found := _NO_RELAYOUT.search(reason):
        before, after = (_LONG_NAMES.get(found[i], found[i]) for i in "ab")
    elif set(_operations(places)) == {"layout_cast"} and len(layouts := _layouts(places)) == 2:
        before, after = layouts
    else:
        return None
    return _impossible(before, after)


def _impossible(before: str, after: str) -> Words:
    return (
        f"There is no way from the layout {before} to {after} inside the registers: values would "
        "change lanes all over the Pallas thread.",
        f"go through SMEM (store it, load it in {after}; if that is refused, with "
        "optimized=False), or load in that layout from the start.",
    )


def _reduction_without_tiles(_: str, places: Sequence[Place]) -> Words | None:
    """One axis of an array that no one asked a layout for."""
    # Where Mosaic names no operation, the program's own reductions are all that is known.
    unknown = [
        (p, "along one axis") for p in places if p.operation[:7] == "reduce_" and not p.value
    ]
    reduced = _reductions(places) or unknown
    if not reduced or _layouts(places):
        return None
    place, axes = reduced[0]
    if axes == "over all axes":
        return None
    return (
        f"{place.operation} {axes} needs a layout in tiles. Nothing here asks for one, so the "
        "array is WG_STRIDED, whose lanes cut across rows: it can only be reduced as a whole.",
        f"load it in such a layout: {_ELEMENTWISE_HINT}.",
    )


def _reduction_of_everything(_: str, places: Sequence[Place]) -> Words | None:
    sizes = {_elements(p.value) for p in places if _CAST.search(p.value)}
    flat = re.compile(r"\w+\[(\d+)\]")  # Mosaic lays the array out flat before it adds all of it
    whole = [
        p
        for p in places
        if p.operation.startswith("reduce_")
        and (
            p.value.endswith("over all axes")
            or ((m := flat.fullmatch(p.value)) and int(m[1]) in sizes)
        )
    ]
    if not whole or not (layouts := _layouts(places)):
        return None
    return (
        f"{whole[0].operation} over all axes at once needs WG_STRIDED, and the array is in "
        f"{layouts[0]}.",
        "reduce axis 1 first, and then the vector that is left: jnp.sum(jnp.sum(x, axis=1)); or "
        "load the array once more without a layout.",
    )


def _reductions_of_two_axes(_: str, places: Sequence[Place]) -> Words | None:
    axes = list(dict.fromkeys(axes for _, axes in _reductions(places)))
    if len(axes) < 2 or not _layouts(places):
        return None
    layout = next(iter(_layouts(places)), "the array's layout")
    one, other = (f"{layout}.reduce({a[-1]})" for a in axes[:2])
    return (
        f"The results of the two reductions lie differently, {one} and {other}, and one operation "
        "wants both.",
        "pass one of the two vectors through SMEM and load it in the other's layout.",
    )


def _reduced_meets_whole(_: str, places: Sequence[Place]) -> Words | None:
    """A vector in X.reduce(k) is spread along the axis that X.reduce(k) has no values for."""
    for layout in _layouts(places):
        base, _dot, axis = layout.partition(".reduce(")
        if axis and base in _layouts(places):
            other = f"{base}.reduce({1 - int(axis[0])})"
            has, wants = ("row", "column") if axis[0] == "1" else ("column", "row")
            return (
                f"A vector in {layout} has one value per {has} of {base}; here it is used as one "
                f"value per {wants}.",
                f"load it in {other}, or spread it along the other axis "
                f"([{':, None' if has == 'row' else 'None, :'}]).",
            )
    return None


def _vector_meets_tiles(_: str, places: Sequence[Place]) -> Words | None:
    """A vector in some other layout is spread over an array in tiles."""
    asked = [(m["layout"], p.value) for p in places if (m := _CAST.search(p.value))]
    tiles = next((name for name, array in asked if "," in _array(array)), "")
    vector = next((name for name, array in asked if "," not in _array(array)), "")
    if not tiles or not vector or vector.startswith(f"{tiles}.reduce("):
        return None
    return (
        f"A vector that is spread over an array in {tiles} must lie as its rows or its columns do; "
        f"this one is in {vector}.",
        f"load it in {tiles}.reduce(0) if it has one value per column ([None, :]), in "
        f"{tiles}.reduce(1) if it has one per row ([:, None]).",
    )


def _through_one_buffer(_: str, places: Sequence[Place]) -> Words | None:
    names = _operations(places)
    stores, loads = "store" in names, "load" in names
    if not (stores and loads and len(layouts := _layouts(places)) > 1):
        return None
    return (
        f"The store and the load want one SMEM buffer in two forms: {layouts[0]} and {layouts[1]} "
        "have no common tiling that both can use without bank conflicts.",
        "give up speed on one side (plgpu.load(ref, layout=..., optimized=False)), or use two "
        "buffers.",
    )


def _two_layouts(reason: str, places: Sequence[Place]) -> Words | None:
    """Anything else that brings two arrays together."""
    layouts, names = _layouts(places), _operations(places)
    if len(_lines(places)) < 2:
        return None
    who = _enumerate(f"{name}s" if names.count(name) > 1 else name for name in names)
    aside = "" if "layout_cast" in who else " A program can get here without any layout_cast."
    what = f" ({_enumerate(layouts)})" if len(layouts) > 1 else ""
    why = f": {reason.rstrip('.')}" if reason else ""
    return (
        f"{_SPREAD} Here {who} need layouts{what} that cannot be turned into each "
        f"other{why}.{aside}",
        f"load one in the other's layout, {_ELEMENTWISE_HINT}, or pass it through SMEM (store it, "
        "load it in that layout; if that is refused, with optimized=False).",
    )


_REGISTERS = (
    _cast_of_a_reduction,
    _no_relayout,
    _reduction_without_tiles,
    _reduction_of_everything,
    _reductions_of_two_axes,
    _reduced_meets_whole,
    _vector_meets_tiles,
    _through_one_buffer,
    _two_layouts,
)


def _alone(_: str, places: Sequence[Place]) -> Words:
    """One operation, or none that is known."""
    value = places[0].value if places else ""
    if places and places[0].operation in ("broadcast_in_dim", "iota"):
        return (
            "Nothing in the kernel says how this array lies in the registers of the 128 lanes.",
            "make it with plgpu.broadcasted_iota(dtype, shape, dimension, layout=plgpu.Layout."
            "WGMMA), or say it with plgpu.layout_cast(x, plgpu.Layout.WGMMA).",
        )
    if not value:  # the message alone: a run on a GPU does not say which operations it is about
        return (
            "Two operations need layouts that cannot be turned into each other, nothing tells how "
            "an array lies, or one in registers has no multiple of 128 elements.",
            "let compile_for(kernel, ...) name the operations. Say how arrays lie: "
            f"{_ELEMENTWISE_HINT}, plgpu.broadcasted_iota(..., layout=...).",
        )
    array = _array(value)
    if _elements(array) % 128 == 0:
        return (
            f"The array {array} has no layout here: arrays in a tensor core's layout come in whole "
            "tiles (64 rows by 8 columns for wgmma), and so must parts of them.",
            "slice the ref before loading it, or take multiples of 64 rows and 8 columns; what "
            "must be cut otherwise goes through SMEM.",
        )
    return (
        f"There is no way to spread the array {array} over the 128 lanes of a "
        "Pallas thread: what is loaded into registers must have a multiple of 128 elements (a "
        "'warpgroup multiple').",
        "make the block's shape a multiple of 128 elements (pad it, or give each block more rows), "
        "or move the data with copy_gmem_to_smem.",
    )


def _operations(places: Sequence[Place]) -> list[str]:
    """The operations' names as the reader writes them, in order."""
    names = {"get": "load", "swap": "store"}
    return [names.get(p.operation, p.operation) for p in places if p.operation]


def _layouts(places: Sequence[Place]) -> list[str]:
    """The layouts that the program asks for, each once."""
    found = (_CAST.search(p.value) for p in places)
    asked = [match["layout"] for match in found if match]
    return list(dict.fromkeys(asked + ["WGMMA"] * ("wgmma" in _operations(places))))


def _reductions(places: Sequence[Place]) -> list[tuple[Place, str]]:
    found = ((p, _REDUCED.search(p.value)) for p in places)
    return [(place, match["axes"]) for place, match in found if match]


def _array(value: str) -> str:
    """The array alone, of a value written as "float32[32, 64] to WGMMA"."""
    return value.partition("]")[0] + "]"


def _elements(array: str) -> int:
    """The number of elements of an array written as "float32[32, 64]"."""
    shape = _array(array).partition("[")[2]
    return math.prod(int(n) for n in re.findall(r"\d+", shape))


def _lines(places: Sequence[Place]) -> set[tuple[str, int]]:
    return {(p.where.file, p.where.line) for p in places}


def _enumerate(words: Iterable[str]) -> str:
    *head, last = dict.fromkeys(words)
    return f"{', '.join(head)} and {last}" if head else last
