"""What layout inference decided, in the course's words.

Mosaic writes a layout as an attribute of its module. The names here are those
of `plgpu.Layout` and of the transforms, so what the compiler chose can be
written down in a program as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from course_lib.diagnostics import Location, locate

# What the lanes of a Pallas thread hold, by the attribute without its name and spaces.
_TILED = {
    "[[64,8],[16,8],[8,8],[2]],warp_dims=[-7],lane_dims=[-3,-2],vector_dim=-1": (
        "WGMMA",
        "16 of every 64 rows per warp; a lane holds pairs of neighbouring columns",
    ),
    "[[64,16],[16,16],[8,16],[4]],warp_dims=[-7],lane_dims=[-3,-2],vector_dim=-1": (
        "WGMMA_8BIT",
        "16 of every 64 rows per warp; a lane holds four neighbouring columns",
    ),
    "[[64,16],[16,16],[8,16],[8],[4]],warp_dims=[-8],lane_dims=[-4,-2,-3],vector_dim=-1": (
        "WGMMA_UPCAST_2X",
        "as WGMMA wants it after the values have become twice as wide",
    ),
    "[[64,32],[16,32],[8,32],[8]],warp_dims=[-7],lane_dims=[-3,-2],vector_dim=-1": (
        "WGMMA_UPCAST_4X",
        "as WGMMA wants it after the values have become four times as wide",
    ),
    "[[64,8],[16,8],[8,8],[2,2],[2,1]],warp_dims=[-10],lane_dims=[-6,-3,-5],vector_dim=-2": (
        "WGMMA_TRANSPOSED",
        "WGMMA's layout with pairs of neighbouring rows in a lane, for transposing stores",
    ),
    "[[128,8],[32,8],[8,8],[2]],warp_dims=[-7],lane_dims=[-3,-2],vector_dim=-1": (
        "TCGEN05",
        "32 of every 128 rows per warp; a lane holds pairs of neighbouring columns",
    ),
    "[[128,8],[32,8],[8,8],[2,2],[2,1]],warp_dims=[-10],lane_dims=[-6,-3,-5],vector_dim=-2": (
        "TCGEN05_TRANSPOSED",
        "TCGEN05's layout with pairs of neighbouring rows in a lane, for transposing stores",
    ),
    "[[128,2],[32,2]],warp_dims=[-4],lane_dims=[-2],vector_dim=-1": (
        "TCGEN05_TMEM_NATIVE",
        "one row per lane, as TMEM stores it",
    ),
    "[[128,1],[32,1]],warp_dims=[-4],lane_dims=[-2],vector_dim=-1": (
        "TMEM default",
        "row i is TMEM lane i; one 32-bit column per element",
    ),
    "[[64],[16],[8],[1]],warp_dims=[-4],lane_dims=[-2,Replicated<times=4>],vector_dim=-1": (
        "WGMMA.reduce(1)",
        "one value per row of WGMMA's layout, the same in the four lanes of that row",
    ),
    "[[128],[32],[8],[1]],warp_dims=[-4],lane_dims=[-2,Replicated<times=4>],vector_dim=-1": (
        "TCGEN05.reduce(1)",
        "one value per row of TCGEN05's layout, the same in the four lanes of that row",
    ),
    "[[8],[2]],warp_dims=[Replicated<times=4>],lane_dims=[Replicated<times=8>,-2],vector_dim=-1": (
        "WGMMA.reduce(0)",
        "one value per column of WGMMA's layout, the same in every warp",
    ),
    "[[16],[4]],warp_dims=[-2],lane_dims=[Replicated<times=32>],vector_dim=-1": (
        "TMA_INDICES",
        "four indices per warp, the same in all of its lanes",
    ),
    "[[4]],warp_dims=[Replicated<times=4>],lane_dims=[Replicated<times=32>],vector_dim=-1": (
        "TMA_INDICES_4",
        "four indices, the same in every lane",
    ),
}
_ATTRIBUTE = re.compile(r"#mosaic_gpu\.(?P<name>\w+)<(?P<body>.*)>$")
_TILE = re.compile(r"#mosaic_gpu\.tile<\[([\d, ]+)\]>")
_SWIZZLE = re.compile(r"#mosaic_gpu\.swizzle<(\d+)")


@dataclasses.dataclass(frozen=True)
class LayoutDecision:
    """One decision of layout inference.

    Attributes:
      kind: "registers" (a value), "SMEM" or "TMEM" (a buffer), or "conversion" (a value that
        is rearranged between lanes on its way into an operation).
      name: the buffer's name in the kernel, or the operation that makes or wants the value.
      array: dtype and shape ("float16[128, 64]").
      layout: the layout's name ("WGMMA", "tiled (8, 64), swizzled 128 bytes").
      words: the same as a phrase.
      where: the line, None where the compiler does not say.
    """

    kind: str
    name: str
    array: str
    layout: str
    words: str
    where: Location | None = None

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.kind}: {self.name} {self.array}{place}: {self.layout}, {self.words}"


class Layouts(tuple[LayoutDecision, ...]):
    """The decisions, in the order of the program. Prints as one line for each."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "Layout inference had nothing to decide."


def decisions(raw: Iterable[Mapping[str, Any]], buffers: Iterable[tuple[str, str]]) -> Layouts:
    """Puts what the worker saw into words.

    Args:
      raw: one mapping per decision, as `jax_internals` makes them.
      buffers: `(name, array)` of the kernel's SMEM and TMEM buffers in order of allocation;
        Mosaic knows them by shape only.
    """
    unnamed = list(buffers)
    found = []
    for entry in raw:
        array = f"{entry['dtype']}[{', '.join(map(str, entry['shape']))}]"
        name = entry["by"]
        if entry["kind"] in ("SMEM", "TMEM"):
            if not entry["shape"]:  # the place where the address of a TMEM allocation is kept
                continue
            name = next((n for n, a in unnamed if a == array), "scratch")
            unnamed = _without(unnamed, (name, array))
        layout, words = describe(entry["layout"])
        if entry["kind"] == "conversion":
            words = f"from {describe(entry['before'])[0]}; {words}"
        where = locate(entry["file"], entry["line"]) if entry["file"] else None
        found.append(LayoutDecision(entry["kind"], name, array, layout, words, where))
    return Layouts(dict.fromkeys(found))


def _without(pairs: list[tuple[str, str]], gone: tuple[str, str]) -> list[tuple[str, str]]:
    return [p for i, p in enumerate(pairs) if p != gone or i != pairs.index(gone)]


def describe(attribute: str) -> tuple[str, str]:
    """The name of a layout and what it means, from Mosaic's attribute."""
    if match := _ATTRIBUTE.match(attribute):
        body = re.sub(r"\s|#mosaic_gpu\.", "", match["body"])
        if match["name"] == "WGSplatFragLayout":
            return "WG_SPLAT", "one value, the same in every lane"
        if match["name"] == "WGStridedFragLayout":
            width = body.rpartition(",")[2]
            return (
                f"WG_STRIDED, vec_size={width}",
                f"row-major: the lanes take turns, {width} neighbouring elements each",
            )
        if body in _TILED:
            return _TILED[body]
        if match["name"] == "TiledLayout":
            return f"TILED {match['body']}", "a layout that has no name of its own"
    return _transforms(attribute)


def _transforms(attribute: str) -> tuple[str, str]:
    tile, swizzle = _TILE.search(attribute), _SWIZZLE.search(attribute)
    tiled = f"tiled ({tile[1]})" if tile else ""
    swizzled = f"swizzled {swizzle[1]} bytes" if swizzle else ""
    if not tiled and not swizzled:
        return "row-major", "stored as it is, no tiles and no swizzle"
    name = ", ".join(filter(None, (tiled, swizzled)))
    words = ["each tile is stored in one piece"] if tiled else []
    if swizzle and swizzle[1] != "16":
        words.append("the 16-byte pieces of its rows are permuted so that columns meet all banks")
    return name, "; ".join(words)
