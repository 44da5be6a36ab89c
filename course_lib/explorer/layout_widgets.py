"""The layout views as widgets: shared memory, registers, bank conflicts, tensor memory.

    from course_lib import explore
    explore.smem(64, 128, tile=(8, 64), swizzle=128)
    explore.registers("WGMMA", 64, 16, lane=5)

All is computed in the browser (`memory.mjs` and the view's own module); a saved
notebook shows the same from `course_lib.layouts`.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import anywidget
import traitlets

from course_lib.diagnostics import CourseError
from course_lib.explorer import layout_pictures as pictures
from course_lib.explorer.bundle import FOLDER, bundle
from course_lib.explorer.sheet import WIDTH
from course_lib.layouts.pipeline import Pipeline
from course_lib.layouts.smem import SmemRef
from course_lib.layouts.tiling import listed
from course_lib.layouts.tmem import TmemRef, parse

__all__ = [
    "Banks",
    "Pipelines",
    "Registers",
    "Smem",
    "Tmem",
    "banks",
    "pipeline",
    "registers",
    "smem",
    "tmem",
]


class LayoutView(anywidget.AnyWidget):
    """What the layout views share: a repr, and a picture for where there is no JavaScript."""

    _css = FOLDER / "explorer.css"

    def drawing(self) -> pictures.Drawing:
        """What is shown now.

        Raises:
          CourseError: the settings do not fit together; says what would.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        """What the view shows, in a sentence: the same for the same settings."""
        try:
            return self.drawing().sentence
        except CourseError as error:
            return str(error)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live view, and a PNG with its text."""
        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        data, metadata = dict(shown[0]), dict(shown[1])
        try:
            picture = self.drawing().png()
        except CourseError:
            return data, metadata  # a state that does not fit has a sentence and no picture
        data["image/png"] = base64.b64encode(picture).decode("ascii")
        metadata |= {
            "needs_background": "light",
            "image/png": {"width": WIDTH, "alt": repr(self)},
        }
        return data, metadata


class Smem(LayoutView):
    """Shared memory: the logical matrix beside its memory image.

    Attributes:
      rows, columns, bits: of the array, as allocated, and of an element.
      tile_rows, tile_columns: of the TilingTransform; 0 for none.
      swizzle: bytes of the SwizzleTransform; 0 for none.
      transposed: whether the view is `ref.transpose((1, 0))`.
      after: whether the swizzle is applied.
      colour: "bank", "chunk", "phase", "tile" or "row".
      element: the row-major number of the element that is marked; -1 for none.
    """

    _esm = bundle("smem_view.mjs")

    rows = traitlets.Int(64).tag(sync=True)
    columns = traitlets.Int(64).tag(sync=True)
    bits = traitlets.Int(16).tag(sync=True)
    tile_rows = traitlets.Int(8).tag(sync=True)
    tile_columns = traitlets.Int(64).tag(sync=True)
    swizzle = traitlets.Int(128).tag(sync=True)
    transposed = traitlets.Bool(False).tag(sync=True)
    after = traitlets.Bool(True).tag(sync=True)
    colour = traitlets.Unicode("bank").tag(sync=True)
    element = traitlets.Int(-1).tag(sync=True)

    def ref(self) -> SmemRef:
        """The ref that is set now."""
        return _ref_of(self, self.rows, self.columns)

    def drawing(self) -> pictures.Drawing:
        _one_of("colour", self.colour, ("bank", "chunk", "phase", "tile", "row"))
        return pictures.smem(self.ref(), after=self.after, colour=self.colour)


class Registers(LayoutView):
    """Register layouts: who holds what.

    Attributes:
      register_layout: a name of `course_lib.layouts.registers.CATALOG`.
      rows, columns, bits: of the array (of a vector: `columns`), and of an element.
      colour: "lane", "warp" or "register".
      lane: the lane of the Pallas thread that is isolated, 0 to 127; -1 for none.
    """

    _esm = bundle("register_view.mjs")

    register_layout = traitlets.Unicode("WGMMA").tag(sync=True)
    rows = traitlets.Int(64).tag(sync=True)
    columns = traitlets.Int(32).tag(sync=True)
    bits = traitlets.Int(16).tag(sync=True)
    colour = traitlets.Unicode("lane").tag(sync=True)
    lane = traitlets.Int(-1).tag(sync=True)

    def drawing(self) -> pictures.Drawing:
        _one_of("colour", self.colour, ("lane", "warp", "register"))
        shape = pictures.shape_of(self.register_layout, self.rows, self.columns)
        return pictures.register_view(
            self.register_layout, shape, self.bits, colour=self.colour, lane=self.lane
        )


class Banks(LayoutView):
    """Bank conflicts of a store from a register layout to a ref.

    Attributes:
      register_layout: a name of `course_lib.layouts.registers.CATALOG`.
      rows, columns, bits: of the array that is stored, and of an element.
      tile_rows, tile_columns, swizzle, transposed: of the ref, as in `Smem`. A transposed
        ref is allocated as (columns, rows).
      arch: "sm_90a" (Hopper) or "sm_100a" (Blackwell).
      front: the wavefront that is shown, over all warps and registers.
    """

    _esm = bundle("bank_view.mjs")

    register_layout = traitlets.Unicode("WGMMA").tag(sync=True)
    rows = traitlets.Int(64).tag(sync=True)
    columns = traitlets.Int(64).tag(sync=True)
    bits = traitlets.Int(16).tag(sync=True)
    tile_rows = traitlets.Int(8).tag(sync=True)
    tile_columns = traitlets.Int(64).tag(sync=True)
    swizzle = traitlets.Int(128).tag(sync=True)
    transposed = traitlets.Bool(False).tag(sync=True)
    arch = traitlets.Unicode("sm_90a").tag(sync=True)
    front = traitlets.Int(0).tag(sync=True)

    def ref(self) -> SmemRef:
        """The ref that is set now."""
        rows, columns = self.rows, self.columns
        return _ref_of(self, *((columns, rows) if self.transposed else (rows, columns)))

    def drawing(self) -> pictures.Drawing:
        return pictures.bank_view(
            self.register_layout, self.ref(), front=self.front, arch=self.arch
        )


class Tmem(LayoutView):
    """Tensor memory: an array and its lanes and columns.

    Attributes:
      rows: 128 or 64.
      columns, bits: of the array and of an element.
      packed: several elements of fewer than 32 bits in a column.
      collective: of an MMA that two blocks share.
      more: further arrays of the kernel: "128x64x32, 128x64x16p" (rows x columns x bits, p for
        packed).
      shown: the array on the left: 0 is the first.
      warp: only what this warp may read; -1 for all.
    """

    _esm = bundle("tmem_view.mjs")

    rows = traitlets.Int(128).tag(sync=True)
    columns = traitlets.Int(64).tag(sync=True)
    bits = traitlets.Int(16).tag(sync=True)
    packed = traitlets.Bool(True).tag(sync=True)
    collective = traitlets.Bool(False).tag(sync=True)
    more = traitlets.Unicode("").tag(sync=True)
    shown = traitlets.Int(0).tag(sync=True)
    warp = traitlets.Int(-1).tag(sync=True)

    def drawing(self) -> pictures.Drawing:
        first = TmemRef(
            shape=(self.rows, self.columns),
            bits=self.bits,
            packed=self.packed and self.bits < 32,
            collective=self.collective,
        )
        refs = [first, *parse(self.more, collective=self.collective)]
        return pictures.tmem_view(refs, shown=self.shown)


class Pipelines(LayoutView):
    """A software pipeline over time.

    Attributes:
      steps, stages, latency, issue, mma: as in `course_lib.layouts.pipeline.Pipeline`.
      work: what a step does with its load.
    """

    _esm = bundle("pipeline_view.mjs")

    steps = traitlets.Int(12).tag(sync=True)
    stages = traitlets.Int(3).tag(sync=True)
    latency = traitlets.Int(8).tag(sync=True)
    issue = traitlets.Int(2).tag(sync=True)
    mma = traitlets.Int(4).tag(sync=True)
    work = traitlets.Unicode("MMA").tag(sync=True)

    def drawing(self) -> pictures.Drawing:
        if not re.fullmatch(r"[\w -]{1,20}", self.work, re.ASCII):
            raise CourseError("A step's work: name it in 1 to 20 letters.")
        numbers = {n: getattr(self, n) for n in ("steps", "stages", "latency", "issue", "mma")}
        return pictures.pipeline_view(Pipeline(**numbers), work=self.work)


def pipeline(
    stages: int = 3,
    *,
    steps: int = 12,
    latency: int = 8,
    issue: int = 2,
    mma: int = 4,
    work: str = "MMA",
    timeline: Any = None,
) -> LayoutView:
    """A view of a software pipeline: what each slot does, and when the tensor cores work.

    Args:
      stages: slots of shared memory.
      steps: steps along K.
      latency: from the issue of a load to its arrival, in any unit of time.
      issue: between the issues of two loads, at least.
      mma: how long the work of a step takes.
      work: what that is, as "copy out".
      timeline: of a kernel of your own, `simulate(kernel, x, timeline=True).timeline`: shows
        that instead of a model, with your lines of code.

    Raises:
      CourseError: a number that does not fit, or no timeline.
    """
    if timeline is not None:
        from course_lib.explorer import timeline_widget

        return timeline_widget.view(timeline)
    numbers = {"steps": steps, "stages": stages, "latency": latency, "issue": issue, "mma": mma}
    return _checked(Pipelines(**numbers, work=work))


def smem(
    rows: int = 64,
    columns: int = 64,
    *,
    bits: int = 16,
    tile: tuple[int, int] | None = (8, 64),
    swizzle: int | None = 128,
    transposed: bool = False,
    after: bool = True,
    colour: str = "bank",
) -> Smem:
    """A view of shared memory: the logical matrix beside its memory image.

    Args:
      rows, columns, bits: of the array, as allocated, and of an element.
      tile: of the TilingTransform, None for none.
      swizzle: bytes of the SwizzleTransform, None for none.
      transposed: whether the view is `ref.transpose((1, 0))`.
      after: whether to begin with the swizzle applied.
      colour: "bank", "chunk", "phase", "tile" or "row".

    Raises:
      CourseError: the settings do not fit together; says what would.
    """
    return _checked(
        Smem(
            rows=rows,
            columns=columns,
            bits=bits,
            **_tile_traits(tile, swizzle),
            transposed=transposed,
            after=after,
            colour=colour,
        )
    )


def registers(
    layout: str = "WGMMA",
    rows: int = 64,
    columns: int = 32,
    *,
    bits: int = 16,
    colour: str = "lane",
    lane: int | None = None,
) -> Registers:
    """A view of a register layout: who holds what.

    Args:
      layout: a name, as "WGMMA" for `plgpu.Layout.WGMMA`.
      rows, columns, bits: of the array (a vector has `columns` elements), and of an element.
      colour: "lane", "warp" or "register".
      lane: the lane of the Pallas thread to isolate, 0 to 127.

    Raises:
      CourseError: the layout does not cover the array; says what it covers.
    """
    if lane is not None and not 0 <= lane < 128:
        raise CourseError(f"lane = {lane}: a Pallas thread has lanes 0 to 127.")
    return _checked(
        Registers(
            register_layout=layout,
            rows=rows,
            columns=columns,
            bits=bits,
            colour=colour,
            lane=-1 if lane is None else lane,
        )
    )


def banks(
    layout: str = "WGMMA",
    rows: int = 64,
    columns: int = 64,
    *,
    bits: int = 16,
    tile: tuple[int, int] | None = (8, 64),
    swizzle: int | None = 128,
    transposed: bool = False,
    arch: str = "sm_90a",
) -> Banks:
    """A view of the bank conflicts of a store from registers to shared memory.

    Args:
      layout: of the registers, a name, as "WGMMA".
      rows, columns, bits: of the array that is stored, and of an element.
      tile, swizzle, transposed: of the ref, as in `smem`.
      arch: "sm_90a" (Hopper) or "sm_100a" (Blackwell), whose stmatrix turns 8-bit elements.

    Raises:
      CourseError: the settings do not fit together; says what would.
    """
    return _checked(
        Banks(
            register_layout=layout,
            rows=rows,
            columns=columns,
            bits=bits,
            **_tile_traits(tile, swizzle),
            transposed=transposed,
            arch=arch,
        )
    )


def tmem(
    rows: int = 128,
    columns: int = 64,
    *,
    bits: int = 16,
    packed: bool = True,
    collective: bool = False,
    more: str = "",
) -> Tmem:
    """A view of an array in tensor memory.

    Args:
      rows, columns, bits: of the array: 128 or 64 rows; and of an element.
      packed: several elements of fewer than 32 bits in a column.
      collective: of an MMA that two blocks share.
      more: further arrays of the kernel, which share its allocation: "128x64x32, 128x64x16p"
        (rows x columns x bits, p for packed).

    Raises:
      CourseError: tensor memory cannot hold it; says what it could.
    """
    return _checked(
        Tmem(
            rows=rows,
            columns=columns,
            bits=bits,
            packed=packed,
            collective=collective,
            more=more,
        )
    )


def _checked[V: LayoutView](view: V) -> V:
    """The view, if its settings fit together; else it is closed."""
    try:
        view.drawing()
    except CourseError:
        view.close()
        raise
    return view


def _tile_traits(tile: tuple[int, int] | None, swizzle: int | None) -> dict[str, int]:
    rows, columns = tile or (0, 0)
    return {"tile_rows": rows, "tile_columns": columns, "swizzle": swizzle or 0}


def _ref_of(view: Smem | Banks, rows: int, columns: int) -> SmemRef:
    tiled = view.tile_rows > 0 and view.tile_columns > 0
    return pictures.smem_ref(
        rows,
        columns,
        view.bits,
        (view.tile_rows, view.tile_columns) if tiled else None,
        view.swizzle or None,
        view.transposed,
    )


def _one_of(name: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise CourseError(f"{name} = {value!r} is none of {listed(map(repr, values))}.")
