"""The kernels of chapter 06: Pallas threads that hand data to each other through barriers.

From two threads and one barrier to a queue with back-pressure, and then the same sum three
times: in a pipeline of one thread, specialized by hand, and by
`plgpu.emit_pipeline_warp_specialized`. Each has its NumPy reference beside it.

All of them keep the four rules of a `Barrier` (reference page, "Barrier"): it completes at most
once between two waits, every completion is waited for, a thread that waits for one completion
waits for all of them, and whoever fills a slot again waits until it was read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

REGISTERS_OF_ALL_THREADS = 512
"""What one Pallas thread's lanes would have if it had an SM's 65,536 registers to itself.

65,536 / 128 lanes (Hopper and Blackwell Tuning Guides, "Occupancy").
"""

MAX_REGISTERS = 256
"""The largest operand of `setmaxnreg` (PTX ISA, setmaxnreg: 24 to 256, in eights)."""

RING_THREADS = 3


@dataclasses.dataclass(frozen=True)
class Config:
    """How tiles travel from the thread that brings them to those that use them.

    Attributes:
      slots: tiles that may be in SMEM at a time.
      tile_m: rows of a tile.
      compute_threads: Pallas threads that compute; each takes its share of a tile's rows.
      memory_registers: registers per lane that the thread that issues copies keeps.
    """

    slots: int = 3
    tile_m: int = 64
    compute_threads: int = 1
    memory_registers: int = 40

    @property
    def compute_registers(self) -> int:
        """Registers per lane for each compute thread: what the memory thread leaves, in eights.

        The rule of `plgpu.emit_pipeline_warp_specialized`, but of what the block is launched with:
        equal shares in eights. From five threads on that is clearly less than the SM has.
        """
        threads = self.compute_threads + 1
        launched = min(MAX_REGISTERS, REGISTERS_OF_ALL_THREADS // threads // 8 * 8) * threads
        share = (launched - self.memory_registers) // self.compute_threads
        return min(MAX_REGISTERS, share // 8 * 8)

    def tiles(self, x: jax.Array | jax.ShapeDtypeStruct) -> int:
        """How many tiles of `tile_m` rows the matrix `x` holds.

        Raises:
          ValueError: `x` is not a matrix, or its rows do not fit.
        """
        if len(x.shape) != 2:
            raise ValueError(f"{x.shape=} must have two axes")
        if x.shape[0] % self.tile_m:
            raise ValueError(f"{x.shape=} must have a multiple of {self.tile_m} rows")
        if self.tile_m % self.compute_threads:
            raise ValueError(f"{self.tile_m=} must be divisible by {self.compute_threads=}")
        return int(x.shape[0] // self.tile_m)


CONFIG = Config()


# ---- two threads, one barrier ----


def hand_over(x: jax.Array) -> jax.Array:
    """(x + 1) + 1 for a vector x: thread 0 adds one, thread 1 the other.

    The two-thread example of the reference page.
    """

    def body(x_gmem: Any, y_gmem: Any, item_smem: Any, ready: Any) -> None:
        thread = jax.lax.axis_index("thread")

        @pl.when(thread == 0)
        def producer() -> None:
            item_smem[...] = x_gmem[...] + 1
            plgpu.barrier_arrive(ready)

        @pl.when(thread == 1)
        def consumer() -> None:
            plgpu.barrier_wait(ready)
            y_gmem[...] = item_smem[...] + 1

    scratch = {"item_smem": plgpu.SMEM(x.shape, x.dtype), "ready": plgpu.Barrier()}
    return _launch(body, x, scratch, threads=2)(x)


def hand_over_reference(x: Array) -> Array:
    """`hand_over` in NumPy."""
    one = np.asarray(1, x.dtype)
    return x + one + one


def hand_off_reference(x: Array) -> Array:
    """exp(x) + 1, in float64: what the first exercise asks for."""
    return (np.exp(x.astype(np.float64)) + 1).astype(x.dtype)


def exp_minus(x: jax.Array) -> jax.Array:
    """exp(x[0]) - x[1] for x of shape (2, n): two threads produce, a third subtracts.

    Raises:
      ValueError: `x` has not two rows.
    """
    if len(x.shape) != 2 or x.shape[0] != 2:
        raise ValueError(f"{x.shape=} must be (2, n)")

    def body(x_gmem: Any, y_gmem: Any, items_smem: Any, both: Any) -> None:
        thread = jax.lax.axis_index("thread")

        @pl.when(thread == 0)
        def exponential() -> None:
            items_smem[0] = jnp.exp(x_gmem[0])
            plgpu.barrier_arrive(both)

        @pl.when(thread == 1)
        def negative() -> None:
            items_smem[1] = -x_gmem[1]
            plgpu.barrier_arrive(both)

        @pl.when(thread == 2)
        def total() -> None:
            plgpu.barrier_wait(both)
            y_gmem[...] = items_smem[0] + items_smem[1]

    out_type = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    scratch = {
        "items_smem": plgpu.SMEM(x.shape, x.dtype),
        "both": plgpu.Barrier(num_arrivals=2),
    }
    return _launch(body, out_type, scratch, threads=3)(x)


def exp_minus_reference(x: Array) -> Array:
    """`exp_minus` in NumPy, summed in float64."""
    wide = x.astype(np.float64)
    return (np.exp(wide[0]) - wide[1]).astype(x.dtype)


def take_turns(x: jax.Array, *, rounds: int) -> jax.Array:
    """`rounds` times x -> x / 2 + 1: thread 0 halves, thread 1 adds, through one buffer."""

    def body(x_gmem: Any, y_gmem: Any, item_smem: Any, halved: Any, added: Any) -> None:
        thread = jax.lax.axis_index("thread")

        @pl.when(thread == 0)
        def halves() -> None:
            item_smem[...] = x_gmem[...]

            @pl.loop(0, rounds)
            def _(_round: Any) -> None:
                item_smem[...] = item_smem[...] / 2
                plgpu.barrier_arrive(halved)
                plgpu.barrier_wait(added)

            y_gmem[...] = item_smem[...]

        @pl.when(thread == 1)
        def adds() -> None:
            @pl.loop(0, rounds)
            def _(_round: Any) -> None:
                plgpu.barrier_wait(halved)
                item_smem[...] = item_smem[...] + 1
                plgpu.barrier_arrive(added)

    scratch = {
        "item_smem": plgpu.SMEM(x.shape, x.dtype),
        "halved": plgpu.Barrier(),
        "added": plgpu.Barrier(),
    }
    return _launch(body, x, scratch, threads=2)(x)


def take_turns_reference(x: Array, *, rounds: int) -> Array:
    """`take_turns` in NumPy."""
    for _ in range(rounds):
        x = x / np.asarray(2, x.dtype) + np.asarray(1, x.dtype)
    return x


def ring(x: jax.Array, *, laps: int) -> jax.Array:
    """x + laps * (1 + 2 + 3): three threads pass a buffer around, thread t adds t + 1.

    Barrier t says that it is thread t's turn. Thread 0 begins without being told, and the last
    lap ends with it.
    """

    def body(x_gmem: Any, y_gmem: Any, token_smem: Any, turn: Any) -> None:
        thread = jax.lax.axis_index("thread")

        @pl.when(thread == 0)
        def fill() -> None:
            token_smem[...] = x_gmem[...]

        @pl.loop(0, laps)
        def _(lap: Any) -> None:
            @pl.when((thread > 0) | (lap > 0))
            def _() -> None:
                plgpu.barrier_wait(turn.at[thread])

            token_smem[...] = token_smem[...] + (thread + 1).astype(x.dtype)
            plgpu.barrier_arrive(turn.at[jax.lax.rem(thread + 1, RING_THREADS)])

        @pl.when(thread == 0)
        def drain() -> None:
            plgpu.barrier_wait(turn.at[0])
            y_gmem[...] = token_smem[...]

    scratch = {
        "token_smem": plgpu.SMEM(x.shape, x.dtype),
        "turn": plgpu.Barrier(num_barriers=RING_THREADS),
    }
    return _launch(body, x, scratch, threads=RING_THREADS)(x)


def ring_reference(x: Array, *, laps: int) -> Array:
    """`ring` in NumPy."""
    for _ in range(laps):
        for thread in range(RING_THREADS):
            x = x + np.asarray(thread + 1, x.dtype)
    return x


# ---- a queue with back-pressure ----


def queue(x: jax.Array, *, slots: int = 3) -> jax.Array:
    """2 * x + 1 for x of shape (steps, n): thread 0 doubles rows, thread 1 adds 1 to them.

    The queue of the reference page, in a scope of its own, with the waits that the page leaves
    out: the producer ends with a wait for every completion of `consumed` that is left.
    """
    steps = x.shape[0]

    def body(x_gmem: Any, y_gmem: Any) -> None:
        thread = jax.lax.axis_index("thread")

        def scope(items_smem: Any, produced: Any, consumed: Any) -> None:
            @pl.when(thread == 0)
            def producer() -> None:
                @pl.loop(0, steps)
                def _(i: Any) -> None:
                    slot = jax.lax.rem(i, slots)

                    @pl.when(i >= slots)
                    def _() -> None:
                        plgpu.barrier_wait(consumed.at[slot])

                    items_smem[slot] = x_gmem[i] * 2
                    plgpu.barrier_arrive(produced.at[slot])

                for slot in range(min(slots, steps)):
                    plgpu.barrier_wait(consumed.at[slot])

            @pl.when(thread == 1)
            def consumer() -> None:
                @pl.loop(0, steps)
                def _(i: Any) -> None:
                    slot = jax.lax.rem(i, slots)
                    plgpu.barrier_wait(produced.at[slot])
                    y_gmem[i] = items_smem[slot] + 1
                    plgpu.barrier_arrive(consumed.at[slot])

        pl.run_scoped(
            scope,
            items_smem=plgpu.SMEM((slots, x.shape[1]), x.dtype),
            produced=plgpu.Barrier(num_barriers=slots),
            consumed=plgpu.Barrier(num_barriers=slots),
            collective_axes="thread",
        )

    return _launch(body, x, {}, threads=2)(x)


def queue_reference(x: Array, *, slots: int = 3) -> Array:
    """`queue` in NumPy."""
    return x * np.asarray(2, x.dtype) + np.asarray(1, x.dtype)


# ---- one sum, three times ----


def sum_exp(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """The sum of exp(tile) over the tiles of x, of shape (tiles * tile_m, n): one thread.

    Returns:
      (tile_m, n), the dtype of x.

    Raises:
      ValueError: the rows of `x` do not fit.
    """
    tiles, tile = config.tiles(x), (config.tile_m, x.shape[1])

    def body(x_gmem: Any, y_gmem: Any) -> None:
        def step(_indices: Any, x_smem: Any, total: Any) -> Any:
            total = total + jnp.exp(x_smem[...])
            plgpu.commit_smem()
            return total

        pipeline = plgpu.emit_pipeline(
            step,
            grid=(tiles,),
            in_specs=[plgpu.BlockSpec(tile, lambda ti: (ti, 0))],
            max_concurrent_steps=config.slots,
            init_carry=jnp.zeros(tile, x.dtype),
        )
        y_gmem[...] = pipeline(x_gmem)

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(tile, x.dtype))(x)


def sum_exp_by_hand(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """`sum_exp` with a thread that only issues copies, and the others that only compute.

    The memory thread is the last one. Each compute thread has its share of a tile's rows.

    Raises:
      ValueError: the rows of `x` do not fit.
    """
    tiles, tile = config.tiles(x), (config.tile_m, x.shape[1])
    memory_thread, slots = config.compute_threads, min(config.slots, config.tiles(x))

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, produced: Any, consumed: Any) -> None:
        thread = jax.lax.axis_index("thread")

        @pl.when(thread == memory_thread)
        def memory() -> None:
            plgpu.set_max_registers(config.memory_registers, action="decrease")

            @pl.loop(0, tiles)
            def _(ti: Any) -> None:
                slot = jax.lax.rem(ti, slots)

                @pl.when(ti >= slots)
                def _() -> None:
                    plgpu.barrier_wait(consumed.at[slot])

                rows = pl.ds(ti * config.tile_m, config.tile_m)
                plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem.at[slot], produced.at[slot])

            @pl.loop(0, slots)
            def _(slot: Any) -> None:
                plgpu.barrier_wait(consumed.at[slot])

        @pl.when(thread < memory_thread)
        def compute() -> None:
            plgpu.set_max_registers(config.compute_registers, action="increase")
            rows = _share(thread, config)

            def step(ti: Any, total: Any) -> Any:
                slot = jax.lax.rem(ti, slots)
                plgpu.barrier_wait(produced.at[slot])
                total = total + jnp.exp(x_smem[slot, rows])
                plgpu.commit_smem()
                plgpu.barrier_arrive(consumed.at[slot])
                return total

            start = jnp.zeros((config.tile_m // config.compute_threads, x.shape[1]), x.dtype)
            y_gmem[rows] = jax.lax.fori_loop(0, tiles, step, start)

    scratch = {
        "x_smem": plgpu.SMEM((slots, *tile), x.dtype),
        "produced": plgpu.Barrier(num_barriers=slots),
        "consumed": plgpu.Barrier(num_barriers=slots, num_arrivals=config.compute_threads),
    }
    out_type = jax.ShapeDtypeStruct(tile, x.dtype)
    return _launch(body, out_type, scratch, threads=config.compute_threads + 1)(x)


def sum_exp_specialized(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """`sum_exp_by_hand` by `plgpu.emit_pipeline_warp_specialized`.

    Raises:
      ValueError: the rows of `x` do not fit.
    """
    tiles, tile = config.tiles(x), (config.tile_m, x.shape[1])

    def body(x_gmem: Any, y_gmem: Any) -> None:
        rows = _share(jax.lax.axis_index("thread"), config)

        def step(_indices: Any, x_smem: Any, total: Any) -> Any:
            total = total + jnp.exp(x_smem[rows])
            plgpu.commit_smem()
            return total

        def compute(pipeline: Any) -> None:
            start = jnp.zeros((config.tile_m // config.compute_threads, x.shape[1]), x.dtype)
            y_gmem[rows] = pipeline(start)

        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(tiles,),
            in_specs=[plgpu.BlockSpec(tile, lambda ti: (ti, 0))],
            max_concurrent_steps=config.slots,
            wg_axis="thread",
            num_compute_wgs=config.compute_threads,
            memory_registers=config.memory_registers,
            compute_context=compute,
        )(x_gmem)

    out_type = jax.ShapeDtypeStruct(tile, x.dtype)
    return _launch(body, out_type, {}, threads=config.compute_threads + 1)(x)


def sum_exp_reference(x: Array, *, config: Config = CONFIG) -> Array:
    """`sum_exp` in NumPy, summed in float64."""
    tiles = x.astype(np.float64).reshape(-1, config.tile_m, x.shape[1])
    return np.exp(tiles).sum(0).astype(x.dtype)


def sum_products_reference(a: Array, b: Array, *, tile_m: int = 64) -> Array:
    """The sum of a_tile * b_tile over tiles of `tile_m` rows, in float64."""
    products = a.astype(np.float64) * b.astype(np.float64)
    return products.reshape(-1, tile_m, a.shape[1]).sum(0).astype(a.dtype)


# ---- four warps ----


def sum_by_warps(x: jax.Array) -> jax.Array:
    """x[0] + x[1] + x[2] + x[3] for x of shape (4, m, n): warp w issues the copy of x[w].

    Raises:
      ValueError: `x` is not four matrices.
    """
    if len(x.shape) != 3 or x.shape[0] != 4:
        raise ValueError(f"{x.shape=} must be (4, m, n)")

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            plgpu.copy_gmem_to_smem(x_gmem.at[warp], x_smem.at[warp], loaded)

        plgpu.barrier_wait(loaded)
        y_gmem[...] = x_smem[0] + x_smem[1] + x_smem[2] + x_smem[3]

    scratch: dict[str, Any] = {
        "x_smem": plgpu.SMEM(x.shape, x.dtype),
        "loaded": plgpu.Barrier(num_arrivals=4),
    }
    out_type = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x)


def sum_by_warps_reference(x: Array) -> Array:
    """`sum_by_warps` in NumPy, in its order."""
    return x[0] + x[1] + x[2] + x[3]


def _share(thread: Any, config: Config) -> Any:
    """The rows of a tile that are a compute thread's."""
    rows = config.tile_m // config.compute_threads
    return pl.ds(thread * rows, rows)


def _launch(body: Any, out_type: Any, scratch: dict[str, Any], *, threads: int) -> Any:
    return plgpu.kernel(
        body, out_type=out_type, scratch_types=scratch, num_threads=threads, thread_name="thread"
    )
