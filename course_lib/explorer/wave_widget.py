"""The wave view as a widget: which tiles of A, B and C a wave of blocks touches.

    from course_lib import explore
    explore.waves(8, 16, order="tiled", width=4)

The picture, the counting and the L2 model run in the browser (`waves.mjs`,
`layouts.mjs`); what a saved notebook shows is the same from `layouts.grid`.
"""

from __future__ import annotations

import base64
from typing import Any

import anywidget
import traitlets

from course_lib.diagnostics import CourseError
from course_lib.explorer import wave_picture
from course_lib.explorer.bundle import FOLDER, bundle
from course_lib.explorer.sheet import WIDTH
from course_lib.layouts import grid

__all__ = ["Waves", "waves"]

MIB = 2**20
MAX_SIDE = 256
"""Tiles along M or N that the picture can still tell apart."""


class Waves(anywidget.AnyWidget):
    """Steps through the waves of blocks that compute C = A @ B.

    Attributes:
      m, n, k: output tile rows, output tile columns, steps along K.
      tile_m, tile_n, tile_k: elements of a tile along each of them.
      itemsize, out_itemsize: bytes of an element of A and B, and of C.
      order, width, minor_dim: as in `grid.Order`.
      persistent: one block per place, each looping over tiles, instead of one per tile.
      dynamic: such blocks take the next tile when they are free, instead of taking turns.
      spread: by how many percent the dearest tile costs more than the cheapest.
      concurrent: how many blocks run at a time: those on an SM times the SMs.
      per_sm: how many of them share an SM.
      cluster_m, cluster_n: blocks of a cluster above and beside each other.
      smem_bytes, threads, registers: of a block; of a lane: how many fit on an SM.
      l2_bytes: capacity of the L2 cache.
      count_c: whether tiles of C take room in it.
      wave: the wave that is shown, from 0.
    """

    _esm = bundle("waves.mjs")
    _css = FOLDER / "waves.css"

    m = traitlets.Int(8).tag(sync=True)
    n = traitlets.Int(16).tag(sync=True)
    k = traitlets.Int(64).tag(sync=True)
    tile_m = traitlets.Int(128).tag(sync=True)
    tile_n = traitlets.Int(128).tag(sync=True)
    tile_k = traitlets.Int(64).tag(sync=True)
    itemsize = traitlets.Int(2).tag(sync=True)
    out_itemsize = traitlets.Int(2).tag(sync=True)
    order = traitlets.Unicode("row-major").tag(sync=True)
    width = traitlets.Int(4).tag(sync=True)
    minor_dim = traitlets.Int(0).tag(sync=True)
    persistent = traitlets.Bool(False).tag(sync=True)
    dynamic = traitlets.Bool(False).tag(sync=True)
    spread = traitlets.Int(0).tag(sync=True)
    concurrent = traitlets.Int(16).tag(sync=True)
    per_sm = traitlets.Int(1).tag(sync=True)
    cluster_m = traitlets.Int(1).tag(sync=True)
    cluster_n = traitlets.Int(1).tag(sync=True)
    smem_bytes = traitlets.Int(0).tag(sync=True)
    threads = traitlets.Int(128).tag(sync=True)
    registers = traitlets.Int(0).tag(sync=True)
    l2_bytes = traitlets.Int(8 * MIB).tag(sync=True)
    count_c = traitlets.Bool(False).tag(sync=True)
    wave = traitlets.Int(0).tag(sync=True)

    def study(self) -> wave_picture.Study:
        """The numbers of what is set now.

        Raises:
          CourseError: the settings do not fit together; says what would.
        """
        for name in ("m", "n"):
            if getattr(self, name) > MAX_SIDE:
                raise CourseError(f"{name} = {getattr(self, name)}: at most {MAX_SIDE} fit here.")
        matmul = grid.Matmul(
            m=self.m,
            n=self.n,
            k=self.k,
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=self.tile_k,
            itemsize=self.itemsize,
            out_itemsize=self.out_itemsize,
        )
        return wave_picture.study(
            matmul=matmul,
            order=grid.Order(self.order, self.width, self.minor_dim),
            concurrent=self.concurrent,
            persistent=self.persistent,
            dynamic=self.dynamic,
            spread=self.spread,
            per_sm=self.per_sm,
            cluster=(self.cluster_m, self.cluster_n),
            resident=grid.residency(
                smem_bytes=self.smem_bytes, threads=self.threads, registers=self.registers
            ),
            l2_bytes=self.l2_bytes,
            count_c=self.count_c,
        )

    def _wave(self) -> int:
        return max(0, min(len(self.study().waves) - 1, self.wave))

    def __repr__(self) -> str:
        """What the view shows, in a few lines of text: the same for the same settings."""
        try:
            return self.study().text(self._wave())
        except CourseError as error:
            return str(error)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live view, and a PNG with its text for where there is no JavaScript."""
        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        data, metadata = dict(shown[0]), dict(shown[1])
        try:
            picture = wave_picture.png(self.study(), self._wave())
        except CourseError:
            return data, metadata  # a state that does not fit has a sentence and no picture
        data["image/png"] = base64.b64encode(picture).decode("ascii")
        metadata |= {
            "needs_background": "light",
            "image/png": {"width": WIDTH, "alt": repr(self)},
        }
        return data, metadata


def waves(
    m: int = 8,
    n: int = 16,
    k: int = 64,
    *,
    order: str = "row-major",
    width: int = 4,
    minor_dim: int = 0,
    concurrent: int = 16,
    persistent: bool = False,
    dynamic: bool = False,
    spread: int = 0,
    per_sm: int = 1,
    cluster: tuple[int, int] = (1, 1),
    smem_bytes: int = 0,
    threads: int = 128,
    registers: int = 0,
    tile: tuple[int, int, int] = (128, 128, 64),
    itemsize: int = 2,
    l2_bytes: int = 8 * MIB,
    count_c: bool = False,
    wave: int = 0,
) -> Waves:
    """A view that steps through the waves of blocks that compute C = A @ B.

    Args:
      m, n, k: output tile rows, output tile columns, steps along K.
      order: "row-major", "tiled" (grid `(m // width, n, width)`) or "snake"
        (`plgpu.planar_snake` with `minor_dim` and `width`).
      width: `mt` of "tiled", `tile_width` of "snake".
      minor_dim: along which axis "snake" cuts bands, 0 or 1.
      concurrent: how many blocks run at a time.
      persistent: launch `concurrent` blocks that loop over the tiles, as with
        `plgpu.nd_loop`, instead of one block per tile.
      dynamic: those blocks take the next tile when they are free, as with
        `plgpu.dynamic_scheduling_loop` (Blackwell).
      spread: by how many percent the dearest tile costs more than the cheapest.
      per_sm: how many blocks share an SM; `concurrent` is a multiple of it.
      cluster: blocks of a cluster above each other (along M) and beside each other (along N),
        which load together what several of them need. The order then deals out clusters, and
        `width` counts them; `concurrent` is a multiple of their blocks.
      smem_bytes, threads: shared memory and lanes of a block; with `registers` of a lane (0:
        not known) they say how many fit on an SM.
      tile: elements of a tile along M, N and K.
      itemsize: bytes per element: 2 for bfloat16.
      l2_bytes: capacity of the L2 cache; 50 * 2**20 on an H200.
      count_c: whether tiles of C take room in the L2 cache.
      wave: the wave to begin with, from 0.

    Raises:
      CourseError: the settings do not fit together; says what would.
    """
    view = Waves(
        m=m,
        n=n,
        k=k,
        **dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True)),
        itemsize=itemsize,
        out_itemsize=itemsize,
        order=order,
        width=width,
        minor_dim=minor_dim,
        concurrent=concurrent,
        persistent=persistent or dynamic,
        dynamic=dynamic,
        spread=spread,
        per_sm=per_sm,
        cluster_m=cluster[0],
        cluster_n=cluster[1],
        smem_bytes=smem_bytes,
        threads=threads,
        registers=registers,
        l2_bytes=l2_bytes,
        count_c=count_c,
        wave=wave,
    )
    try:
        study = view.study()
        last = len(study.traffic) - 1  # counts everything, and so finds what does not fit
        if not 0 <= wave <= last:
            raise CourseError(f"wave = {wave} does not exist: these are waves 0 to {last}.")
    except CourseError:
        view.close()
        raise
    return view
