"""The kernels of chapter 08 beside the ladder (`matmul_ladder`): what its steps are compared with.

`one_slot` is step 0 of the ladder with a word in who shares an SM; `pipelined` is step 2 with a
word in when a slot is released; the rest is what the exercises' answers are measured by.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels import matmul_ladder
from course_lib.kernels.matmul_ladder.shapes import count_tiles

TENSOR_FLOP_PER_CYCLE = 4096
"""Dense 16-bit FLOP per cycle and SM of an H100 or H200 (data sheet: 989 TFLOP/s, 1.83 GHz)."""
SMEM_BYTES_PER_CYCLE = 128
"""What SMEM delivers: 32 banks of 4 bytes (CUDA Programming Guide, shared memory)."""
L2_BYTES_PER_CYCLE = 64
"""What an SM gets from the L2 cache: assumed. Measured are 58, with multicast, and 52 without
(`benchmarks/records/20261130T041144-nvidia-h200-clusters-stream.json`, at 1980 MHz)."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how much SMEM to waste.

    Attributes:
      tile_m: rows of the result per block, a multiple of 64.
      tile_n: columns of it, a multiple of 8, at most 256.
      tile_k: how much of K the slot holds; 64 elements fill the 128-byte swizzle.
      spare_bytes: SMEM that nobody uses, so that fewer blocks share an SM.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    spare_bytes: int = 0


ALONE = Config(spare_bytes=128 * 1024)
"""One block per SM: two of these do not fit."""
SMALL_ALONE = Config(tile_m=64, tile_n=64, spare_bytes=128 * 1024)
"""The smallest tile, and one block per SM."""


def one_slot(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` through one slot, as step 0 of the ladder, with SMEM to spare.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      config: the tile sizes.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    m_iters, n_iters, k_iters = count_tiles(a, b, tile_m, tile_n, tile_k)

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, scratch: Any) -> None:
        a_smem, b_smem, o_smem, loaded = (scratch[n] for n in ("a", "b", "o", "loaded"))
        rows = pl.ds(lax.axis_index("m") * tile_m, tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)

        def mma_body(acc: Any) -> jax.Array:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                ks = pl.ds(ki * tile_k, tile_k)
                plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem, loaded)
                plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem, loaded)
                plgpu.barrier_wait(loaded)
                plgpu.wgmma(acc, a_smem, b_smem)
                plgpu.wgmma_wait(0)  # the next copy overwrites what wgmma reads

            return acc[...]

        acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
        o_smem[...] = acc.astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        a=plgpu.SMEM((tile_m, tile_k), a.dtype),
        b=plgpu.SMEM((tile_k, tile_n), b.dtype),
        o=plgpu.SMEM((tile_m, tile_n), a.dtype),
        loaded=plgpu.Barrier(num_arrivals=2),
    )
    if config.spare_bytes:
        scratch["spare"] = plgpu.SMEM((config.spare_bytes,), jnp.int8)
    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        scratch_types=[scratch],
    )(a, b)


@dataclasses.dataclass(frozen=True)
class PipelineConfig:
    """How a pipeline of 128x128 tiles keeps its slots.

    Attributes:
      max_concurrent_steps: the number of slots.
      delay_release: how many steps later a slot is released.
      unfinished: how many wgmmas may still run when a step ends.
    """

    max_concurrent_steps: int = 4
    delay_release: int = 1
    unfinished: int = 1


def pipelined(a: jax.Array, b: jax.Array, *, config: PipelineConfig | None = None) -> jax.Array:
    """`a @ b` by `emit_pipeline`, 128x128 per block; right if delay_release >= unfinished.

    Args:
      a: (m, k), float16 or bfloat16; m a multiple of 128, k of 64.
      b: (k, n), of the same dtype; n a multiple of 128.
      config: how it keeps its slots.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or PipelineConfig()
    m_iters, n_iters, k_iters = count_tiles(a, b, 128, 128, 64)
    delay = config.delay_release

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any) -> None:
        rows = pl.ds(lax.axis_index("m") * 128, 128)
        cols = pl.ds(lax.axis_index("n") * 128, 128)

        def mma_body(acc: Any) -> jax.Array:
            def step(_index: Any, a_smem: Any, b_smem: Any) -> None:
                plgpu.wgmma(acc, a_smem, b_smem)
                plgpu.wgmma_wait(config.unfinished)

            plgpu.emit_pipeline(
                step,
                grid=(k_iters,),
                in_specs=[
                    plgpu.BlockSpec((128, 64), lambda ki: (0, ki), delay_release=delay),
                    plgpu.BlockSpec((64, 128), lambda ki: (ki, 0), delay_release=delay),
                ],
                max_concurrent_steps=config.max_concurrent_steps,
            )(a_gmem.at[rows], b_gmem.at[:, cols])
            return acc[...]

        acc = pl.run_scoped(mma_body, plgpu.ACC((128, 128), jnp.float32))
        o_smem[...] = acc.astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        scratch_types=dict(o_smem=plgpu.SMEM((128, 128), a.dtype)),
    )(a, b)


def around(
    a: jax.Array,
    b: jax.Array,
    multiply: Callable[..., None],
    *,
    slots: int = 1,
    tile_n: int = 128,
    epilogue: Callable[..., None] | None = None,
    epi_tile_n: int | None = None,
) -> jax.Array:
    """All of a matmul but one part of it: 128 rows and `tile_n` columns of `a @ b` per block.

    Args:
      a: (m, k), float16 or bfloat16; m a multiple of 128, k of 64.
      b: (k, n), of the same dtype; n a multiple of `tile_n`.
      multiply: `multiply(acc, tiles)` adds all of K up in `acc`; see `Tiles`.
      slots: how many slots of SMEM `tiles` has.
      tile_n: columns of the result per block.
      epilogue: `epilogue(value, buffers_smem, o_gmem)` writes a block's tile, of the operands'
        dtype, to `o_gmem` through two buffers of (128, epi_tile_n); by default all at once.
      epi_tile_n: columns of the result that leave together; None is all of them.

    Returns:
      (m, n) of the operands' dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    m_iters, n_iters, k_iters = count_tiles(a, b, 128, tile_n, 64)

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, scratch: dict[str, Any]) -> None:
        rows = pl.ds(lax.axis_index("m") * 128, 128)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)
        tiles = Tiles(
            a_gmem.at[rows], b_gmem.at[:, cols], scratch["a"], scratch["b"], scratch["loaded"],
            k_iters, slots,
        )  # fmt: skip

        def body(acc: Any) -> jax.Array:
            multiply(acc, tiles)
            return acc[...]

        value = pl.run_scoped(body, plgpu.ACC((128, tile_n), jnp.float32)).astype(a.dtype)
        (epilogue or write_at_once)(value, scratch["o"], o_gmem.at[rows, cols])

    buffers = (2, 128, epi_tile_n) if epi_tile_n else (1, 128, tile_n)
    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        scratch_types=[
            dict(
                a=plgpu.SMEM((slots, 128, 64), a.dtype),
                b=plgpu.SMEM((slots, 64, tile_n), b.dtype),
                o=plgpu.SMEM(buffers, a.dtype),
                loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            )
        ],
    )(a, b)


@dataclasses.dataclass(frozen=True)
class Tiles:
    """A block's operands and its slots, for the part of a matmul that multiplies.

    Attributes:
      a_gmem: the block's rows of A, (128, k).
      b_gmem: its columns of B, (k, tile_n).
      a_smem: (slots, 128, 64).
      b_smem: (slots, 64, tile_n).
      loaded: a barrier per slot, complete when both copies into it have landed.
      k_iters: how many tiles there are along K.
      slots: how many slots there are.
    """

    a_gmem: Any
    b_gmem: Any
    a_smem: Any
    b_smem: Any
    loaded: Any
    k_iters: int
    slots: int

    def fetch(self, ki: Any, slot: Any) -> None:
        """Starts the copies of the tiles `ki` along K into a slot."""
        ks = pl.ds(ki * 64, 64)
        plgpu.copy_gmem_to_smem(self.a_gmem.at[:, ks], self.a_smem.at[slot], self.loaded.at[slot])
        plgpu.copy_gmem_to_smem(self.b_gmem.at[ks], self.b_smem.at[slot], self.loaded.at[slot])


def through_one_slot(acc: Any, tiles: Tiles) -> None:
    """`multiply` for `around`: step 0 of the ladder."""

    @pl.loop(0, tiles.k_iters)
    def _step(ki: Any) -> None:
        tiles.fetch(ki, 0)
        plgpu.barrier_wait(tiles.loaded.at[0])
        plgpu.wgmma(acc, tiles.a_smem.at[0], tiles.b_smem.at[0])
        plgpu.wgmma_wait(0)  # the next copy overwrites what wgmma reads


def write_at_once(value: jax.Array, buffers_smem: Any, o_gmem: Any) -> None:
    """`epilogue` for `around`: the whole tile through one buffer of its size."""
    buffers_smem[0] = value
    plgpu.commit_smem()  # the TMA unit is to see what this thread has written
    plgpu.copy_smem_to_gmem(buffers_smem.at[0], o_gmem)
    plgpu.wait_smem_to_gmem(0)


@dataclasses.dataclass(frozen=True)
class Turns:
    """What two warpgroups that take turns share: the ring of slots and its barriers.

    Attributes:
      a_smem: (slots, 64, 64).
      b_smem: (slots, 64, 128).
      loaded: a barrier per warpgroup and slot, that of warpgroup w for slot s at
        `w * slots + s`; or, where they are shared, a barrier per slot.
      consumed: a barrier per slot: the copying thread may fill it again.
      k_iters: how many tiles there are along K.
      slots: how many slots there are.
    """

    a_smem: Any
    b_smem: Any
    loaded: Any
    consumed: Any
    k_iters: int
    slots: int


def ping_pong(
    a: jax.Array,
    b: jax.Array,
    multiply: Callable[..., None],
    *,
    slots: int = 3,
    blocks: int = 2,
    shared: bool = False,
) -> jax.Array:
    """`a @ b`, 64x128 per tile, by two warpgroups in turns; `multiply` is not included.

    A third thread copies for both, tile after tile, into one ring: step `ki` of a block's tile
    `number` is in slot `(number * k_iters + ki) % slots`. Warpgroup `number % 2` computes it.

    Args:
      a: (m, k), float16 or bfloat16; m and k multiples of 64.
      b: (k, n), of the same dtype; n a multiple of 128.
      multiply: `multiply(acc, number, wg, turns)` adds up tile `number` in `acc`: it waits for
        its slots, multiplies, and releases each by an arrival on `consumed`; see `Turns`.
      slots: how long the ring is.
      blocks: how many blocks there are.
      shared: one barrier per slot for both warpgroups, instead of one for each.

    Returns:
      (m, n) of the operands' dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    m_iters, n_iters, k_iters = count_tiles(a, b, 64, 128, 64)

    def tiles(work: Callable[..., None]) -> None:
        @plgpu.nd_loop((m_iters, n_iters), collective_axes="block")
        def _tile(loop: plgpu.NDLoopInfo) -> None:
            mi, ni = loop.index
            work(loop.local_index, pl.ds(mi * 64, 64), pl.ds(ni * 128, 128))

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, scratch: dict[str, Any]) -> None:
        wg = lax.axis_index("wg")
        o_smem = scratch.pop("o_smem")
        turns = Turns(**scratch, k_iters=k_iters, slots=slots)

        def copy_tile(number: Any, rows: Any, cols: Any) -> None:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(number * k_iters + ki, slots)
                plgpu.barrier_wait(turns.consumed.at[slot])
                taker = slot if shared else lax.rem(number, 2) * slots + slot
                ks, loaded = pl.ds(ki * 64, 64), turns.loaded.at[taker]
                plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], turns.a_smem.at[slot], loaded)
                plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], turns.b_smem.at[slot], loaded)

        def compute_tile(number: Any, rows: Any, cols: Any) -> None:
            def body(acc: Any) -> jax.Array:
                multiply(acc, number, wg, turns)
                return acc[...]

            @pl.when(lax.rem(number, 2) == wg)
            def _mine() -> None:
                value = pl.run_scoped(body, plgpu.ACC((64, 128), jnp.float32))
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                o_smem[wg] = value.astype(a.dtype)
                plgpu.commit_smem()  # the TMA unit is to see what this thread has written
                plgpu.copy_smem_to_gmem(o_smem.at[wg], o_gmem.at[rows, cols])

        def compute() -> None:
            @pl.when(wg == 0)
            def _all_slots_are_free() -> None:
                for slot in range(slots):
                    plgpu.barrier_arrive(turns.consumed.at[slot])

            tiles(compute_tile)
            plgpu.wait_smem_to_gmem(0)

        def copy() -> None:
            tiles(copy_tile)
            for slot in range(slots):  # nobody leaves while a barrier is still to complete
                plgpu.barrier_wait(turns.consumed.at[slot])

        lax.cond(wg < 2, compute, copy)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(blocks,),
        grid_names=("block",),
        num_threads=3,
        thread_name="wg",
        scratch_types=[
            dict(
                a_smem=plgpu.SMEM((slots, 64, 64), a.dtype),
                b_smem=plgpu.SMEM((slots, 64, 128), b.dtype),
                o_smem=plgpu.SMEM((2, 64, 128), a.dtype),
                loaded=plgpu.Barrier(num_arrivals=2, num_barriers=(1 if shared else 2) * slots),
                consumed=plgpu.Barrier(num_barriers=slots),
            )
        ],
    )(a, b)


def persistent(
    a: jax.Array, b: jax.Array, *, delay_release: int = 0, unfinished: int = 0, blocks: int = 1
) -> jax.Array:
    """`a @ b` by `blocks` persistent blocks, 128x128 per tile, one thread that copies.

    The pipeline of a tile begins while the one before ends, so a slot must be free when its
    step ends: it is right with no delay and nothing unfinished, as in step 6 of the ladder.

    Args:
      a: (m, k), float16 or bfloat16; m a multiple of 128, k of 64.
      b: (k, n), of the same dtype; n a multiple of 128.
      delay_release: how many steps later a slot is released.
      unfinished: how many wgmmas may still run when a step ends.
      blocks: how many blocks there are.

    Returns:
      (m, n) of the operands' dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    m_iters, n_iters, k_iters = count_tiles(a, b, 128, 128, 64)

    def make_pipeline(step: Any, compute: Any) -> Any:
        return plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(k_iters,),
            in_specs=[
                plgpu.BlockSpec((128, 64), lambda ki: (0, ki), delay_release=delay_release),
                plgpu.BlockSpec((64, 128), lambda ki: (ki, 0), delay_release=delay_release),
            ],
            max_concurrent_steps=4,
            compute_context=compute,
            wg_axis="wg",
            num_compute_wgs=1,
            memory_registers=40,
        )

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any) -> None:
        def step(_index: Any, a_smem: Any, b_smem: Any, acc: Any) -> Any:
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma_wait(unfinished)
            return acc

        def all_tiles(allocations: Any) -> None:
            @plgpu.nd_loop((m_iters, n_iters), collective_axes="block")
            def _tile(loop: plgpu.NDLoopInfo) -> None:
                rows, cols = (pl.ds(i * 128, 128) for i in loop.index)

                def compute(pipeline: Any) -> None:
                    def body(acc: Any) -> jax.Array:
                        pipeline(acc)
                        return acc[...]

                    value = pl.run_scoped(body, plgpu.ACC((128, 128), jnp.float32))
                    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                    o_smem[...] = value.astype(o_smem.dtype)
                    plgpu.commit_smem()  # the TMA unit is to see what this thread has written
                    plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, cols])

                operands = a_gmem.at[rows], b_gmem.at[:, cols]
                make_pipeline(step, compute)(*operands, allocations=allocations)

        # Allocated once: all threads would meet at an allocation inside the loop.
        allocations = make_pipeline(step, lambda _: None).get_allocations(a_gmem, b_gmem)
        pl.run_scoped(all_tiles, allocations, collective_axes="wg")
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(blocks,),
        grid_names=("block",),
        num_threads=2,
        thread_name="wg",
        scratch_types=dict(o_smem=plgpu.SMEM((128, 128), a.dtype)),
    )(a, b)


def step_on(number: int, *, sms: int = 132) -> Callable[..., jax.Array]:
    """A step of the ladder as it is launched on a card of `sms` SMs, whatever runs here.

    Args:
      number: the step's number.
      sms: how many SMs; an H100 or H200 has 132.

    Returns:
      a function of a and b.
    """
    module = matmul_ladder.step(number).module
    if "num_sms" not in {field.name for field in dataclasses.fields(module.Config)}:
        return functools.partial(module.matmul)
    return functools.partial(module.matmul, config=module.Config(num_sms=sms))


def product_reference(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], **_how: int
) -> np.ndarray[Any, Any]:
    """`a @ b`, added up in float64, in the operands' dtype; however it is done (`_how`)."""
    return np.asarray(np.asarray(a, np.float64) @ np.asarray(b, np.float64), a.dtype)


def tile_intensity(warpgroup: tuple[int, int], block: tuple[int, int]) -> tuple[float, float]:
    """FLOP per byte of a tile: of SMEM's traffic, and of what comes from the L2 cache.

    For each 16 of K, operands of 2 bytes. wgmma has rows of 64: each 64 rows of a warpgroup's
    tile read their part of A and all of B. The copies write the block's tiles of A and B once.

    Args:
      warpgroup: rows and columns of the result that one warpgroup computes.
      block: rows and columns that its block computes.

    Returns:
      FLOP per byte that SMEM moves (reads by wgmma and writes by copies), and per byte copied.
    """
    (wg_m, wg_n), (block_m, block_n) = warpgroup, block
    warpgroups = (block_m * block_n) // (wg_m * wg_n)
    k = 16
    flop = 2 * block_m * block_n * k
    read = warpgroups * (wg_m // 64) * (64 + wg_n) * k * 2
    copied = (block_m + block_n) * k * 2
    return flop / (read + copied), flop / copied


def roofline_reference(*, wg_m: int, wg_n: int, block_m: int, block_n: int) -> np.ndarray[Any, Any]:
    """FLOP per cycle that SMEM, the L2 cache and the tensor core allow: float32[3]."""
    smem, l2 = tile_intensity((wg_m, wg_n), (block_m, block_n))
    ceilings = (smem * SMEM_BYTES_PER_CYCLE, l2 * L2_BYTES_PER_CYCLE, TENSOR_FLOP_PER_CYCLE)
    return np.asarray(ceilings, np.float32)
