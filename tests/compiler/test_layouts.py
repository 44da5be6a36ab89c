"""Layouts carry the names of `plgpu.Layout`, checked against the installed JAX."""

import pytest
from jax._src.interpreters import mlir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array, layouts, tcgen05
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir

from course_lib.compiler.layouts import LayoutDecision, decisions, describe

pytestmark = pytest.mark.two_jax

NAMED = ("WGMMA", "WGMMA_8BIT", "WGMMA_UPCAST_2X", "WGMMA_UPCAST_4X", "WGMMA_TRANSPOSED",
         "TCGEN05", "TCGEN05_TRANSPOSED", "TCGEN05_TMEM_NATIVE", "TMA_INDICES",
         "TMA_INDICES_4")  # fmt: skip


def attribute(layout) -> str:
    context = mlir.make_ir_context()  # a private name of JAX's, for this test only
    mgpu.dialect.register_dialect(context)
    with context, ir.Location.unknown():
        return str(layouts.to_layout_attr(layout))


def decision(**changes):
    raw = {
        "kind": "registers", "by": "add", "file": "/x/k.py", "line": 3, "shape": [64, 64],
        "dtype": "float32", "layout": "#mosaic_gpu.WGSplatFragLayout<[64, 64]>",
    }  # fmt: skip
    return {**raw, **changes}


@pytest.mark.parametrize("name", NAMED)
def test_layouts_that_plgpu_names(name):
    assert describe(attribute(plgpu.Layout[name].to_mgpu()))[0] == name


def test_layouts_of_reduced_values():
    assert describe(attribute(fragmented_array.WGMMA_ROW_LAYOUT))[0] == "WGMMA.reduce(1)"
    assert describe(attribute(fragmented_array.WGMMA_COL_LAYOUT))[0] == "WGMMA.reduce(0)"
    assert describe(attribute(fragmented_array.TCGEN05_ROW_LAYOUT))[0] == "TCGEN05.reduce(1)"


def test_the_default_layout_of_tmem():
    layout = tcgen05.tmem_default_layout().as_tiled_layout()
    assert describe(attribute(layout))[0] == "TMEM default"


def test_strided_and_splat():
    strided = fragmented_array.WGStridedFragLayout((128, 64), 2)
    assert describe(attribute(strided))[0] == "WG_STRIDED, vec_size=2"
    splat = fragmented_array.WGSplatFragLayout((128, 64))
    assert describe(attribute(splat)) == ("WG_SPLAT", "one value, the same in every lane")


def test_a_layout_without_a_name_is_written_out():
    body = "[[32, 16], [8, 16], [4]], warp_dims = [-6], lane_dims = [-4, -3], vector_dim = -1"
    name, words = describe(f"#mosaic_gpu.TiledLayout<{body}>")
    assert name == f"TILED {body}"
    assert "no name" in words


def test_transforms():
    text = "#mosaic_gpu.tile<[8, 64]> #mosaic_gpu.swizzle<128 : i32>"
    assert describe(text)[0] == "tiled (8, 64), swizzled 128 bytes"
    assert describe("#mosaic_gpu.tile<[8, 64]>")[0] == "tiled (8, 64)"
    assert describe("")[0] == "row-major"


def test_buffers_are_named_in_order_of_allocation():
    tile = "#mosaic_gpu.tile<[8, 64]>"
    smem = [decision(kind="SMEM", by="run_scoped", file="", layout=tile, shape=s) for s in
            ([64, 64], [64, 64], [8, 64])]  # fmt: skip
    buffers = [("a", "float32[64, 64]"), ("bar", "barrier[]"), ("b", "float32[64, 64]")]
    assert [d.name for d in decisions(smem, buffers)] == ["a", "b", "scratch"]


def test_conversions_say_from_what():
    [found] = decisions(
        [decision(kind="conversion", before="#mosaic_gpu.WGStridedFragLayout<[64, 64], 2>")], []
    )
    assert found.kind == "conversion"
    assert found.words.startswith("from WG_STRIDED, vec_size=2")
    assert str(found.where) == "k.py:3"


def test_equal_decisions_are_told_once():
    assert len(decisions([decision(), decision()], [])) == 1


def test_they_print_a_line_each():
    found = decisions([decision(), decision(line=4)], [])
    assert repr(found).count("\n") == 1
    assert repr(found).startswith("registers: add float32[64, 64] (k.py:3): WG_SPLAT")
    assert isinstance(found[0], LayoutDecision)
    assert "nothing to decide" in repr(decisions([], []))
