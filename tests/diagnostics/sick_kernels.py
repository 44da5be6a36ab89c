"""Small kernels with one mistake each, as learners make them: what the clinic is tested on.

`@sick(entry, *args)` says which entry of the clinic a kernel is for. The line
that the clinic must name ends in `# sick`; where only the launch can be named,
that is the launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

f16, bf16, f32 = jnp.float16, jnp.bfloat16, jnp.float32
TILED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
LANE = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)


@dataclasses.dataclass(frozen=True)
class Sick:
    """A kernel with a mistake.

    Attributes:
      entry: the id of the clinic's entry that must recognise it.
      function: the function that launches it.
      args: its arguments' shapes and dtypes.
      arch: the architecture to compile it for.
      says: words that the advice must contain.
    """

    entry: str
    function: Callable[..., Any]
    args: tuple[jax.ShapeDtypeStruct, ...]
    arch: str
    says: tuple[str, ...]


SICK: list[Sick] = []


def sick(entry: str, *args: Any, arch: str = "sm_90a", says: tuple[str, ...] = ()) -> Any:
    """Registers the function below it as a case."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        SICK.append(Sick(entry, function, args, arch, says))
        return function

    return register


def spec(*shape: int, dtype: Any = f32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def operands(m: int, n: int, k: int, dtype: Any = f16) -> tuple[jax.ShapeDtypeStruct, ...]:
    return spec(m, k, dtype=dtype), spec(k, n, dtype=dtype)


# --- layouts -------------------------------------------------------------------------------


def _mma_then(use, a, b, *, out, m=64, n=64, k=64):
    """Multiplies in SMEM and hands the accumulator's value to `use`."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, bar):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
        plgpu.barrier_wait(bar)

        def mma(acc):
            plgpu.wgmma(acc, a_smem, b_smem)  # sick
            return acc[...]

        o_gmem[...] = use(pl.run_scoped(mma, plgpu.ACC((m, n), f32)), a_gmem)

    scratch = dict(
        a_smem=plgpu.SMEM((m, k), f16),
        b_smem=plgpu.SMEM((k, n), f16),
        bar=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


@sick("layout-no-solution", *operands(64, 64, 64), says=("wgmma and reshape", "any layout_cast"))
def no_cast_in_sight(a, b):
    def use(acc, _):
        return acc.reshape(32, 128)  # sick

    return _mma_then(use, a, b, out=spec(32, 128))


@sick("layout-no-solution", *operands(64, 64, 64), says=("WGMMA.reduce(1) and WGMMA.reduce(0)",))
def sums_along_both_axes(a, b):
    def use(acc, _):
        return jnp.sum(acc, 1) + jnp.sum(acc, 0)  # sick

    return _mma_then(use, a, b, out=spec(64))


@sick("layout-no-solution", *operands(64, 64, 64), says=("wgmma and layout_cast",))
def two_layouts_meet(a, b):
    def use(acc, a_gmem):
        rows = plgpu.Layout.WG_STRIDED((64, 64), vec_size=2)
        return acc + plgpu.layout_cast(a_gmem[...], rows).astype(f32)  # sick

    return _mma_then(use, a, b, out=spec(64, 64))


@sick("layout-no-solution", *operands(64, 64, 64), says=("float32[32, 64]", "whole tiles"))
def half_an_accumulator(a, b):
    def use(acc, _):
        return acc[:32]  # sick

    return _mma_then(use, a, b, out=spec(32, 64))


@sick("layout-no-solution", spec(32), says=("float32[32]", "multiple of 128"))
def small_vector(x):
    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...] + 1  # sick

    return plgpu.kernel(body, out_type=spec(32))(x)


@sick("layout-no-solution", *operands(64, 64, 8), says=("tensor core has no instruction",))
def wgmma_k_8(a, b):
    return _mma_then(lambda acc, _: acc, a, b, out=spec(64, 64), k=8)


WGMMA = plgpu.Layout.WGMMA


def _values(body, x, out, **scratch):
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(x)


@sick("layout-no-solution", spec(64, 128), says=("reduce_max along axis 1", "plgpu.load(ref, la"))
def reduces_a_plain_load(x):
    def body(x_gmem, o_gmem):
        value = x_gmem[...]  # sick
        o_gmem[...] = value - jnp.max(value, axis=1)[:, None]  # sick

    return _values(body, x, x)


@sick("layout-no-solution", spec(128, 128), says=("WGMMA.reduce(1) and WGMMA.reduce(0)", "SMEM"))
def sums_of_rows_and_columns(x):
    def body(x_gmem, o_gmem):
        value = plgpu.load(x_gmem, layout=WGMMA)  # sick
        rows = jnp.sum(value, axis=1)  # sick
        o_gmem[...] = rows + jnp.sum(value, axis=0)  # sick

    return _values(body, x, spec(128))


@sick("layout-no-solution", spec(64, 128), says=("one SMEM buffer in two forms", "optimized=False"))
def stored_one_way_and_loaded_another(x):
    def body(x_gmem, o_gmem, smem):
        rows = plgpu.Layout.WG_STRIDED((64, 128), vec_size=2)
        smem[...] = plgpu.load(x_gmem, layout=rows)  # sick
        o_gmem[...] = plgpu.load(smem, layout=WGMMA)  # sick

    return _values(body, x, x, smem=plgpu.SMEM((64, 128), f32))


@sick("layout-no-solution", spec(64, 128), spec(128), says=("one value per row", "reduce(0)"))
def a_vector_along_the_wrong_axis(x, w):
    def body(x_gmem, w_gmem, o_gmem):
        value = plgpu.load(x_gmem, layout=WGMMA)  # sick
        scale = plgpu.load(w_gmem, layout=WGMMA.reduce(1))  # sick
        o_gmem[...] = value * scale[None, :]  # sick

    return plgpu.kernel(body, out_type=x)(x, w)


@sick("layout-no-solution", spec(64, 128), spec(128), says=("WGMMA.reduce(0)", "WG_STRIDED"))
def a_vector_in_a_layout_of_its_own(x, w):
    def body(x_gmem, w_gmem, o_gmem):
        value = plgpu.load(x_gmem, layout=WGMMA)  # sick
        scale = plgpu.load(w_gmem, layout=plgpu.Layout.WG_STRIDED((128,), vec_size=1))  # sick
        o_gmem[...] = value * scale[None, :]  # sick

    return plgpu.kernel(body, out_type=x)(x, w)


@sick("layout-no-solution", spec(128, 128), says=("from the layout WGMMA.reduce(1) to WGMMA.red",))
def a_cast_from_rows_to_columns(x):
    def body(x_gmem, o_gmem):
        value = plgpu.load(x_gmem, layout=WGMMA)  # sick
        rows = plgpu.layout_cast(jnp.sum(value, axis=1), WGMMA.reduce(0))  # sick
        o_gmem[...] = rows + jnp.sum(value, axis=0)  # sick

    return _values(body, x, spec(128))


@sick("layout-no-solution", spec(64, 128), says=("over all axes at once",))
def the_sum_of_a_tile(x):
    def body(x_gmem, o_gmem):
        value = plgpu.load(x_gmem, layout=WGMMA)  # sick
        o_gmem[...] = value - jnp.sum(value)  # sick

    return _values(body, x, x)


@sick("layout-no-solution", spec(64, 128), says=("from the layout WG_STRIDED to WGMMA", "SMEM"))
def a_cast_that_does_not_exist(x):
    def body(x_gmem, o_gmem):
        rows = plgpu.load(x_gmem, layout=plgpu.Layout.WG_STRIDED((64, 128), vec_size=2))  # sick
        o_gmem[...] = plgpu.layout_cast(rows, WGMMA)  # sick

    return _values(body, x, x)


@sick("layout-no-solution", spec(64, 128), says=("(WGMMA and WG_STRIDED)",))
def two_loads_in_two_layouts(x):
    def body(x_gmem, o_gmem):
        tiles = plgpu.load(x_gmem, layout=WGMMA)  # sick
        rows = plgpu.load(x_gmem, layout=plgpu.Layout.WG_STRIDED((64, 128), vec_size=2))  # sick
        o_gmem[...] = tiles + rows  # sick

    return _values(body, x, x)


def _tile_at(x, row, *, transforms=TILED, axis=None):
    def body(x_gmem, o_gmem, smem, bar):
        first = row if axis is None else row + lax.axis_index("block")
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(first, 16)], smem, bar)  # sick
        plgpu.barrier_wait(bar)
        plgpu.copy_smem_to_gmem(smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    out, grid = spec(16, 64, dtype=f16), dict(grid=(1,), grid_names=("block",))
    scratch = dict(smem=plgpu.SMEM((16, 64), f16, transforms=transforms), bar=plgpu.Barrier())
    return plgpu.kernel(body, out_type=out, scratch_types=scratch, **grid)(x)  # sick


@sick("layout-no-solution", spec(64, 64, dtype=f16), says=("do not fall on the tiles", "(8, 64)"))
def copies_from_half_a_tile(x):
    return _tile_at(x, 4)


@sick("layout-no-solution", spec(64, 64, dtype=f16), says=("nothing shows", "pl.multiple_of"))
def copies_from_an_unproved_offset(x):
    return _tile_at(x, 8, axis="block")


@sick("transforms-order", spec(64, 64, dtype=f16), says=("TilingTransform first",))
def swizzles_before_it_tiles(x):
    return _tile_at(x, 8, transforms=TILED[::-1])


@sick("layout-no-solution", spec(64, 64, dtype=bf16), says=("tiled (8, 64)", "conflicts"))
def tiles_without_a_swizzle(x):
    def body(x_gmem, o_gmem, smem, bar):
        plgpu.copy_gmem_to_smem(x_gmem, smem, bar)  # sick
        plgpu.barrier_wait(bar)
        o_gmem[...] = plgpu.load(smem, layout=WGMMA).astype(f32)  # sick

    smem = plgpu.SMEM((64, 64), bf16, transforms=TILED[:1])
    return _values(body, x, spec(64, 64), smem=smem, bar=plgpu.Barrier())


@sick("copy-not-contiguous", spec(64, 128, dtype=f16), says=("in one piece",))
def copies_a_part_of_a_row_of_tiles(x):
    def body(x_gmem, o_gmem, smem, bar):
        plgpu.copy_gmem_to_smem(x_gmem, smem, bar)
        plgpu.barrier_wait(bar)
        plgpu.copy_smem_to_gmem(smem.at[pl.ds(0, 16), pl.ds(64, 64)], o_gmem)  # sick
        plgpu.wait_smem_to_gmem(0)

    smem = plgpu.SMEM((64, 128), f16, transforms=TILED)
    return _values(body, x, spec(16, 64, dtype=f16), smem=smem, bar=plgpu.Barrier())


def _transposed(x, *, copies):
    def body(x_gmem, o_gmem, smem, other, bar):
        plgpu.copy_gmem_to_smem(x_gmem, smem, bar)  # sick
        plgpu.barrier_wait(bar)
        if copies:
            plgpu.copy_smem_to_gmem(smem.transpose((1, 0)), o_gmem)  # sick
        else:
            other.transpose((1, 0))[...] = smem[...]  # sick
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(other, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    tile = plgpu.SMEM((64, 64), f16)
    scratch = dict(smem=tile, other=tile, bar=plgpu.Barrier())
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)  # sick


@sick("copy-transposed", spec(64, 64, dtype=f16), says=("WGMMA_TRANSPOSED",))
def copies_through_a_transposed_ref(x):
    return _transposed(x, copies=True)


@sick("transposed-store", spec(64, 64, dtype=f16), says=("WGMMA_TRANSPOSED",))
def stores_into_a_transposed_ref(x):
    return _transposed(x, copies=False)


def _product_of(a, b, a_transforms, b_transforms):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, bar):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)  # sick
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)  # sick
        plgpu.barrier_wait(bar)

        def mma(acc):
            plgpu.wgmma(acc, a_smem, b_smem)  # sick
            return acc[...]

        o_gmem[...] = pl.run_scoped(mma, plgpu.ACC((64, 64), f32))

    scratch = dict(
        a_smem=plgpu.SMEM((64, 64), f16, transforms=a_transforms),
        b_smem=plgpu.SMEM((64, 64), f16, transforms=b_transforms),
        bar=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)(a, b)


@sick("layout-no-solution", *operands(64, 64, 64), says=("same swizzle", "swizzled 64 bytes"))
def two_swizzles_in_one_product(a, b):
    narrow = (plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(64))
    return _product_of(a, b, TILED, narrow)


@sick("layout-no-solution", says=("Nothing in the kernel says", "broadcasted_iota"))
def nobody_asks_for_a_layout():
    def body(o_gmem):
        o_gmem[...] = jnp.arange(64)[:, None] + jnp.arange(16)[None, :]  # sick

    return plgpu.kernel(body, out_type=spec(64, 16, dtype=jnp.int32))()  # sick


def many_arrays_that_nobody_asks_a_layout_for():
    """Takes Mosaic about 20 s: it tries layouts until its patience ends."""

    def body(o_gmem):
        rows, columns = jnp.arange(64)[:, None], jnp.arange(128)[None, :]
        for i in range(4):
            o_gmem[...] = ((rows + i) * (columns + i)).astype(f32)

    return plgpu.kernel(body, out_type=spec(64, 128))()


@sick("layout-shape", spec(32, 128), says=("(32, 128)", "64 rows"))
def a_layout_of_larger_tiles(x):
    def body(x_gmem, o_gmem):
        o_gmem[...] = plgpu.load(x_gmem, layout=WGMMA)  # sick

    return _values(body, x, x)


@sick("layout-strides", spec(64, 128), says=("side by side", "WGMMA_TRANSPOSED"))
def transposed_registers_into_plain_memory(x):
    def body(x_gmem, o_gmem):
        value = plgpu.load(x_gmem, layout=WGMMA, optimized=False)
        o_gmem[...] = plgpu.layout_cast(value, plgpu.Layout.WGMMA_TRANSPOSED)  # sick

    return _values(body, x, x)


@sick("warpgroup-multiple", spec(32), says=("32", "multiple of 128"))
def small_vector_by_lanes(x):
    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...] + 1  # sick

    return plgpu.kernel(body, out_type=spec(32), compiler_params=LANE)(x)


@sick("gmem-sectors", spec(64, 64, dtype=f16))
def f16_tile_through_registers(x):
    def body(x_gmem, o_gmem):
        tile = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA)  # sick
        o_gmem[...] = tile

    return plgpu.kernel(body, out_type=spec(64, 64, dtype=f16))(x)


# --- memory --------------------------------------------------------------------------------


def round_trip(x, smem, out=None, *, source=..., target=..., params=None):
    """Copies an array through SMEM by TMA."""

    def body(x_gmem, o_gmem, x_smem, bar):
        plgpu.copy_gmem_to_smem(x_gmem.at[source], x_smem.at[target], bar)  # sick
        plgpu.barrier_wait(bar)
        plgpu.copy_smem_to_gmem(x_smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    out = out or spec(*smem.shape, dtype=smem.dtype)
    options = dict(scratch_types=dict(x_smem=smem, bar=plgpu.Barrier()), compiler_params=params)
    return plgpu.kernel(body, out_type=out, **options)(x)  # sick


@sick("smem-capacity", spec(256, 256), says=("262152", "232448", "x_smem float32[256, 256]"))
def too_much_smem(x):
    return round_trip(x, plgpu.SMEM((256, 256), f32))


@sick("tiling-does-not-divide", spec(100, 64, dtype=f16))
def tiling_does_not_divide(x):
    return round_trip(x, plgpu.SMEM((100, 64), f16, transforms=TILED))


@sick("slice-across-tiles", spec(64, 64, dtype=f16), says=("start 4", "size 12"))
def slice_across_tiles(x):
    tiled = plgpu.SMEM((64, 64), f16, transforms=TILED)
    return round_trip(x, tiled, source=pl.ds(0, 12), target=pl.ds(4, 12))


@sick("swizzle-unknown", spec(64, 64, dtype=f16), says=("16",))
def swizzle_16(x):
    tiling = plgpu.TilingTransform((8, 8))
    transforms = (tiling, plgpu.SwizzleTransform(16))  # sick
    return round_trip(x, plgpu.SMEM((64, 64), f16, transforms=transforms))


@sick("swizzle-width", spec(64, 64, dtype=f16), says=("128 bytes", "64 elements"))
def swizzle_wider_than_tile(x):
    transforms = (plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(128))
    return round_trip(x, plgpu.SMEM((64, 64), f16, transforms=transforms))


@sick("swizzle-none-fits", spec(64, 12, dtype=f16), says=("192 bits",))
def no_swizzle_fits(x):
    swizzle = plgpu.find_swizzle(12 * 16)  # sick
    transforms = (plgpu.TilingTransform((8, 12)), plgpu.SwizzleTransform(swizzle))
    return round_trip(x, plgpu.SMEM((64, 12), f16, transforms=transforms))


def through_tmem(x, *shapes, write=plgpu.async_store_tmem, read=plgpu.async_load_tmem):
    def body(x_gmem, o_gmem, **buffers):
        for tmem in buffers.values():
            write(tmem, x_gmem[...])
        plgpu.commit_tmem()
        o_gmem[...] = sum(read(tmem) for tmem in buffers.values())
        plgpu.wait_load_tmem()

    scratch = {f"tmem_{i}": plgpu.TMEM(s, f32) for i, s in enumerate(shapes)}  # sick
    return plgpu.kernel(body, out_type=spec(*x.shape), scratch_types=scratch)(x)  # sick


@sick("tmem-capacity", spec(128, 512), arch="sm_100a", says=("1024 columns", "512"))
def too_much_tmem(x):
    return through_tmem(x, (128, 512), (128, 512))


@sick("tmem-rows", spec(32, 128), arch="sm_100a", says=("32 is neither",))
def tmem_of_any_height(x):
    return through_tmem(x, (32, 128))


@sick("tmem-indexed", spec(128, 128), arch="sm_100a", says=("async_load_tmem",))
def tmem_by_index(x):
    def write(tmem, value):
        tmem[...] = value

    return through_tmem(x, (128, 128), write=write, read=lambda tmem: tmem[...])


# --- tensor cores --------------------------------------------------------------------------


def multiply(a, b, *, m, n, acc=f32):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, o_smem, bar):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
        plgpu.barrier_wait(bar)

        def mma(acc_ref):
            plgpu.wgmma(acc_ref, a_smem, b_smem)  # sick
            return acc_ref[...]

        o_smem[...] = pl.run_scoped(mma, plgpu.ACC((m, n), acc))  # sick
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        o_smem=plgpu.SMEM((m, n), acc),
        bar=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=spec(m, n, dtype=acc), scratch_types=scratch)(a, b)


@sick("mma-rows", *operands(48, 64, 64), says=("48 rows",))
def wgmma_48_rows(a, b):
    return multiply(a, b, m=48, n=64)


@sick("mma-columns", *operands(64, 320, 64), says=("320",))
def wgmma_too_wide(a, b):
    return multiply(a, b, m=64, n=320)


@sick(
    "mma-inner-sizes",
    spec(64, 64, dtype=f16),
    spec(128, 64, dtype=f16),
    says=("A is (64, 64)", "B is (128, 64)"),
)
def wgmma_inner_sizes_differ(a, b):
    return multiply(a, b, m=64, n=64)


@sick("mma-turned", *operands(64, 64, 64, f32), says=("B as (N, K)",))
def wgmma_float32_as_k_n(a, b):
    return multiply(a, b, m=64, n=64)


@sick("mma-right-operand", *operands(64, 64, 64), says=("b_smem.at[...]",))
def wgmma_right_operand_in_registers(a, b):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, bar):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
        plgpu.barrier_wait(bar)

        def mma(acc_ref):
            plgpu.wgmma(acc_ref, a_smem, b_smem[...])
            return acc_ref[...]

        o_gmem[...] = pl.run_scoped(mma, plgpu.ACC((64, 64), f32))  # sick

    scratch = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        bar=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)(a, b)


@sick(
    "mma-mixed-dtypes",
    spec(64, 64, dtype=f16),
    spec(64, 64, dtype=bf16),
    says=("float16 and bfloat16",),
)
def wgmma_mixed_dtypes(a, b):
    return multiply(a, b, m=64, n=64)


@sick("mma-dtype", *operands(64, 64, 64, jnp.int32), says=("i32",))
def wgmma_integers(a, b):
    return multiply(a, b, m=64, n=64)


@sick("mma-accumulator-shape", *operands(64, 20, 64), says=("(64, 20)", "multiple of 8"))
def wgmma_20_columns(a, b):
    return multiply(a, b, m=64, n=20)


@sick("mma-accumulator", *operands(64, 64, 64, bf16), says=("bf16", "f32"))
def wgmma_bf16_into_f16(a, b):
    return multiply(a, b, m=64, n=64, acc=f16)


@sick("arch-lacks-wgmma", *operands(64, 64, 64), arch="sm_100a", says=("sm_100a",))
def hopper_only(a, b):
    return multiply(a, b, m=64, n=64)


@sick("mma-untiled", *operands(64, 64, 64), says=("TilingTransform",))
def wgmma_by_lanes_without_tiling(a, b):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, bar):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
        plgpu.barrier_wait(bar)

        def mma(acc_ref):
            plgpu.wgmma(acc_ref, a_smem, b_smem)  # sick
            return acc_ref[...]

        o_gmem[...] = pl.run_scoped(mma, plgpu.ACC((64, 64), f32))

    scratch = dict(
        a_smem=plgpu.SMEM((64, 64), f16),
        b_smem=plgpu.SMEM((64, 64), f16),
        bar=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch, compiler_params=LANE)(
        a, b
    )


def multiply_in_tmem(a, b, *, accumulate=False, orders=True):
    m, n = a.shape[0], b.shape[1]

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, bar, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)  # sick
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)  # sick
        plgpu.barrier_wait(bar)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=accumulate)  # sick
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)
        plgpu.wait_load_tmem()

    scratch = dict(
        a_smem=plgpu.SMEM(a.shape, f16),
        b_smem=plgpu.SMEM(b.shape, f16),
        acc=plgpu.TMEM((m, n), f32),
        bar=plgpu.Barrier(num_arrivals=2),
        done=plgpu.Barrier(orders_tensor_core=orders),
    )
    return plgpu.kernel(body, out_type=spec(m, n), scratch_types=scratch)(a, b)


@sick("arch-lacks-tcgen05", *operands(128, 128, 64), says=("sm_100a", "Blackwell"))
def blackwell_only(a, b):
    return multiply_in_tmem(a, b)


@sick(
    "tcgen05-barrier-unordered",
    *operands(128, 128, 64),
    arch="sm_100a",
    says=("orders_tensor_core=True",),
)
def tcgen05_on_a_plain_barrier(a, b):
    return multiply_in_tmem(a, b, orders=False)


@sick("tcgen05-accumulate", *operands(128, 128, 64), arch="sm_100a", says=("accumulate=False",))
def tcgen05_accumulate_by_number(a, b):
    return multiply_in_tmem(a, b, accumulate=0)


@sick("smem-no-tiling", *operands(128, 100, 64), arch="sm_100a", says=("(64, 100)",))
def tcgen05_100_columns(a, b):
    return multiply_in_tmem(a, b)


# --- copies, barriers, axes ----------------------------------------------------------------


@sick("arch-lacks-tma", spec(64, 64), arch="sm_89", says=("sm_90a",))
def tma_on_ada(x):
    return round_trip(x, plgpu.SMEM((64, 64), f32))


@sick("arch-lacks-instruction", spec(128), arch="sm_89", says=("barrier.cluster.arrive",))
def clusters_on_ada(x):
    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...]  # sick

    cluster = dict(cluster=(2,), cluster_names=("cluster",))
    return plgpu.kernel(body, out_type=spec(128), **cluster)(x)


@sick(
    "arch-lacks-gather",
    spec(64, 128),
    spec(16, dtype=jnp.int32),
    says=(".tile::gather4", "sm_100a"),
)
def gathers_on_hopper(x, rows):
    def body(x_gmem, rows_gmem, o_gmem, smem, bar):
        rows = plgpu.load(rows_gmem, layout=plgpu.Layout.TMA_INDICES, optimized=False)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], smem, bar)  # sick
        plgpu.barrier_wait(bar)
        plgpu.copy_smem_to_gmem(smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch = dict(smem=plgpu.SMEM((16, 128), f32), bar=plgpu.Barrier())
    return plgpu.kernel(body, out_type=spec(16, 128), scratch_types=scratch)(x, rows)


@sick("copy-shapes", spec(128, 64), says=("source is (128, 64)", "destination (64, 64)"))
def copy_into_other_shape(x):
    return round_trip(x, plgpu.SMEM((64, 64), f32))


@sick("copy-dtypes", spec(64, 64), says=("float32", "float16"))
def copy_into_other_dtype(x):
    return round_trip(x, plgpu.SMEM((64, 64), f16))


@sick("copy-bytes", spec(16), says=("64 bytes", "128"))
def small_copy_by_lanes(x):
    return round_trip(x, plgpu.SMEM((16,), f32), params=LANE)


@sick("copy-without-barrier", spec(64, 64))
def copy_without_barrier(x):
    def body(x_gmem, o_gmem, x_smem):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem)  # sick
        o_gmem[...] = x_smem[...]

    scratch = dict(x_smem=plgpu.SMEM((64, 64), f32))
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)(x)


@sick("tma-strides", spec(64, 30, dtype=f16), says=("16 bytes",))
def copy_of_odd_width(x):
    return round_trip(x, plgpu.SMEM((64, 30), f16))


@sick("barrier-not-indexed", spec(64, 64), says=("2 barriers",))
def several_barriers_no_index(x):
    def body(x_gmem, o_gmem, x_smem, bars):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, bars)  # sick
        plgpu.barrier_wait(bars)  # sick
        o_gmem[...] = x_smem[...]

    scratch = dict(x_smem=plgpu.SMEM((64, 64), f32), bars=plgpu.Barrier(num_barriers=2))
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)(x)


@sick("single-barrier-indexed", spec(2, 64, 64), says=("num_barriers=2",))
def one_barrier_for_two_slots(x):
    def body(x_gmem, o_gmem, x_smem, bar):
        for slot in range(2):
            plgpu.copy_gmem_to_smem(x_gmem.at[slot], x_smem.at[slot], bar.at[slot])  # sick
            plgpu.barrier_wait(bar.at[slot])
        o_gmem[...] = x_smem[...]

    scratch = dict(x_smem=plgpu.SMEM((2, 64, 64), f32), bar=plgpu.Barrier())
    return plgpu.kernel(body, out_type=spec(2, 64, 64), scratch_types=scratch)(x)


@sick("single-barrier-indexed", spec(64, 64), says=("plgpu.ClusterBarrier",))
def one_cluster_barrier_for_two_rounds(x):
    def body(x_gmem, o_gmem, met):
        for round_ in range(2):
            plgpu.barrier_arrive(met.at[round_])  # sick
            plgpu.barrier_wait(met.at[round_])
        o_gmem[...] = x_gmem[...]

    scratch = dict(met=plgpu.ClusterBarrier(collective_axes=("c",)))
    pair = dict(cluster=(2,), cluster_names=("c",))
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch, **pair)(x)


@sick("indices-too-many", spec(2, 64, 64), says=("(64, 64)",))
def indexed_twice(x):
    def body(x_gmem, o_gmem):
        tile = x_gmem.at[0]
        o_gmem[...] = tile[0, 0:64, 0:64]  # sick

    return plgpu.kernel(body, out_type=spec(64, 64))(x)


@sick("axis-unknown", spec(8, 128), says=("`rows`",))
def unknown_axis(x):
    def body(x_gmem, o_gmem):
        i = lax.axis_index("rows")  # sick
        o_gmem[i] = x_gmem[i]

    return plgpu.kernel(body, out_type=spec(8, 128), grid=(8,), grid_names=("i",))(x)


@sick("cluster-axis-unknown", spec(64, 64), says=("`cluster`",))
def collective_without_cluster(x):
    def body(x_gmem, o_gmem, x_smem, bar):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, bar, collective_axes="cluster")  # sick
        plgpu.barrier_wait(bar)
        o_gmem[...] = x_smem[...]

    scratch = dict(x_smem=plgpu.SMEM((64, 64), f32), bar=plgpu.Barrier())
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)(x)


def _of_a_pair(body, x, **scratch):
    pair = dict(cluster=(2,), cluster_names=("c",))
    return plgpu.kernel(body, out_type=spec(2, 8, 128), scratch_types=scratch, **pair)(x)


@sick("cluster-store", spec(2, 8, 128), says=("plgpu.async_store_smem",))
def writes_into_its_neighbour(x):
    def body(x_gmem, o_gmem, x_smem, met):
        rank = lax.axis_index("c")
        plgpu.cluster_ref(x_smem, {"c": 1 - rank})[...] = x_gmem[rank]  # sick
        plgpu.barrier_arrive(met)
        plgpu.barrier_wait(met)
        o_gmem[rank] = x_smem[...]

    met = plgpu.ClusterBarrier(collective_axes=("c",))
    return _of_a_pair(body, x, x_smem=plgpu.SMEM((8, 128), f32), met=met)


@sick("cluster-copy", spec(2, 8, 128), says=("collective_axes=",))
def copies_into_its_neighbour(x):
    def body(x_gmem, o_gmem, x_smem, bar):
        rank = lax.axis_index("c")
        there = plgpu.cluster_ref(x_smem, {"c": 1 - rank})
        plgpu.copy_gmem_to_smem(x_gmem.at[rank], there, bar)  # sick
        plgpu.barrier_wait(bar)
        o_gmem[rank] = x_smem[...]

    return _of_a_pair(body, x, x_smem=plgpu.SMEM((8, 128), f32), bar=plgpu.Barrier())


@sick("barrier-transformed", spec(2, 8, 128), says=("plgpu.ClusterBarrier",))
def arrives_at_its_neighbour(x):
    def body(x_gmem, o_gmem, x_smem, bar):
        rank = lax.axis_index("c")
        x_smem[...] = x_gmem[rank]
        plgpu.barrier_arrive(plgpu.cluster_ref(bar, {"c": 1 - rank}))  # sick
        plgpu.barrier_wait(bar)
        o_gmem[rank] = x_smem[...]

    return _of_a_pair(body, x, x_smem=plgpu.SMEM((8, 128), f32), bar=plgpu.Barrier())


@sick("scope-not-collective", spec(64, 64), says=("collective_axes",))
def scoped_by_each_thread(x):
    def body(x_gmem, o_gmem):
        def scope(x_smem, bar):
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, bar)
            plgpu.barrier_wait(bar)
            o_gmem[...] = x_smem[...]

        pl.run_scoped(scope, plgpu.SMEM((64, 64), f32), plgpu.Barrier())  # sick

    return plgpu.kernel(body, out_type=spec(64, 64), num_threads=2, thread_name="wg")(x)


def _product_of_a_pair(a, b, *, in_tmem, axis):
    """An MMA of a block or of a pair, into TMEM of either kind."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, bar, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
        plgpu.barrier_wait(bar)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False, **axis)  # sick
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    scratch = dict(
        a_smem=plgpu.SMEM((128, 64), f16),
        b_smem=plgpu.SMEM((64, 64), f16),
        acc=plgpu.TMEM((128, 64 if not axis else 128), f32, **in_tmem),
        bar=plgpu.Barrier(num_arrivals=2),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    pair = dict(cluster=(2,), cluster_names=("c",))
    out = spec(128, 64 if not axis else 128)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch, **pair)(a, b)


@sick("tmem-not-collective", *operands(128, 64, 64), arch="sm_100a", says=("collective=True",))
def collective_mma_into_a_blocks_own_tmem(a, b):
    return _product_of_a_pair(a, b, in_tmem={}, axis=dict(collective_axis="c"))


@sick(
    "tcgen05-collective-mixed", *operands(128, 64, 64), arch="sm_100a", says=("collective_axis=",)
)
def own_mma_into_a_pairs_tmem(a, b):
    return _product_of_a_pair(a, b, in_tmem=dict(collective=True), axis={})


@sick("tmem-packed", spec(128, 64, dtype=f16), arch="sm_100a", says=("packed=True",))
def tmem_that_does_not_say_how(x):
    def body(x_gmem, o_gmem, t_tmem):
        plgpu.async_store_tmem(t_tmem, x_gmem[...])
        plgpu.commit_tmem()
        o_gmem[...] = plgpu.async_load_tmem(t_tmem)

    scratch = dict(t_tmem=plgpu.TMEM((128, 64), f16))  # sick
    return plgpu.kernel(body, out_type=spec(128, 64, dtype=f16), scratch_types=scratch)(x)


@sick("tmem-dtype", spec(1, 1, 32, 16), arch="sm_100a", says=("float8_e8m0fnu", "32 bits"))
def scales_in_float32(scales):
    def body(s_gmem, o_gmem, s_smem, s_tmem, bar):
        plgpu.copy_gmem_to_smem(s_gmem, s_smem, bar)
        plgpu.barrier_wait(bar)
        plgpu.async_copy_scales_to_tmem(s_smem, s_tmem)

    scratch = dict(
        s_smem=plgpu.SMEM((1, 1, 32, 16), f32),
        s_tmem=plgpu.TMEM((128, 4), f32, layout=plgpu.TMEMLayout.SCALES_LAYOUT),
        bar=plgpu.Barrier(),
    )
    return plgpu.kernel(body, out_type=spec(1), scratch_types=scratch)(scales)  # sick


# --- JAX inside a kernel -------------------------------------------------------------------


def over_rows(x, body):
    """One block for each of the 8 rows."""
    return plgpu.kernel(body, out_type=spec(8, 128), grid=(8,), grid_names=("i",))(x)


def on_vector(x, use, out=f32):
    def body(x_gmem, o_gmem):
        o_gmem[...] = use(x_gmem)  # sick

    return plgpu.kernel(body, out_type=spec(128, dtype=out))(x)


@sick("no-such-operation", spec(64, 64), says=("`@`", "plgpu.wgmma"))
def matmul_operator(x):
    def body(x_gmem, o_gmem):
        x = x_gmem[...]
        o_gmem[...] = x @ x  # sick

    return plgpu.kernel(body, out_type=spec(64, 64))(x)


@sick("no-such-operation", spec(128), says=("`sort`",))
def sort_inside(x):
    return on_vector(x, lambda x_gmem: jnp.sort(x_gmem[...]))  # sick


@sick("no-such-operation", spec(128), says=("indexed by another array",))
def gather_by_array(x):
    def use(x_gmem):
        indices = lax.broadcasted_iota(jnp.int32, (128,), 0)
        return x_gmem[...][indices]  # sick

    return on_vector(x, use)


@sick("no-such-operation", spec(8, 128), says=("slice the ref",))
def row_of_a_value(x):
    def body(x_gmem, o_gmem):
        i = lax.axis_index("i")
        o_gmem[i] = x_gmem[...][i]  # sick

    return over_rows(x, body)


@sick("captured-array", spec(128), says=("f32[128]",))
def captured_array(x):
    table = jnp.asarray(np.arange(128, dtype=np.float32))

    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...] + table

    return plgpu.kernel(body, out_type=spec(128))(x)  # sick


@sick("python-if", spec(8, 128), says=("@pl.when",))
def python_if(x):
    def body(x_gmem, o_gmem):
        if lax.axis_index("i") == 0:  # sick
            o_gmem[0] = x_gmem[0]

    return over_rows(x, body)


@sick("store-dtype", spec(128), says=("float32 value", "float16 ref"))
def store_other_dtype(x):
    return on_vector(x, lambda x_gmem: x_gmem[...] * 2, out=f16)


@sick("store-shape", spec(8, 128), says=("(8, 128)", "(128,)"))
def store_other_shape(x):
    def body(x_gmem, o_gmem):
        o_gmem[lax.axis_index("i")] = x_gmem[...]  # sick

    return over_rows(x, body)


@sick("slice-outside", spec(128), says=("starts at 64", "dimension of 128"))
def slice_outside(x):
    return on_vector(x, lambda x_gmem: x_gmem[pl.ds(64, 128)])  # sick


@sick("scratch-names", spec(128), says=("`x_smem`",))
def forgotten_scratch(x):
    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...]

    scratch = dict(x_smem=plgpu.SMEM((128,), f32))
    return plgpu.kernel(body, out_type=spec(128), scratch_types=scratch)(x)  # sick


# --- names of older pages ------------------------------------------------------------------


def copy_body(x_gmem, o_gmem):
    o_gmem[...] = x_gmem[...]


@sick("old-keyword", spec(128), says=("out_type",))
def old_out_shape(x):
    return plgpu.kernel(copy_body, out_shape=spec(128))(x)  # sick


@sick("old-keyword", spec(128), says=("scratch_types",))
def old_scratch_shapes(x):
    return plgpu.kernel(copy_body, out_type=spec(128), scratch_shapes={})(x)  # sick


@sick("old-name", spec(128), says=("plgpu.TilingTransform",))
def old_tile_transform(x):
    return plgpu.TileTransform((8, 64))  # sick


@sick("old-name", spec(128), says=("plgpu.tcgen05_commit_arrive",))
def old_tcgen05_commit(x):
    return plgpu.tcgen05_commit(None)  # sick


@sick("old-pallas-call", spec(128), says=("plgpu.kernel",))
def old_pallas_call(x):
    return pl.pallas_call(copy_body, out_shape=spec(128), backend="mosaic_gpu")(x)  # sick


# --- what does not fail in the compiler ----------------------------------------------------


def uses_program_id(x):
    """Compiles, with a warning; in interpret mode every block is block 0."""

    def body(x_gmem, o_gmem):
        i = pl.program_id(0)
        o_gmem[i] = x_gmem[i]

    return over_rows(x, body)


def acc_beside_smem(a, b):
    """Compiles; JAX's interpret mode refuses it."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, bar):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
        plgpu.barrier_wait(bar)
        plgpu.wgmma(acc, a_smem, b_smem)
        o_gmem[...] = acc[...]

    scratch = dict(
        a_smem=plgpu.SMEM((64, 64), f16),
        b_smem=plgpu.SMEM((64, 64), f16),
        acc=plgpu.ACC((64, 64), f32),
        bar=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)(a, b)


def healthy(x):
    """A kernel with nothing wrong, to be called where there is no GPU."""
    return on_vector(x, lambda x_gmem: x_gmem[...] + 1)
