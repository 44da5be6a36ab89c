"""The kernels of chapter 13: GPUs that write into each other's memory, and say so.

Each function is what one device does, so it stands inside of a `jax.shard_map`: `on_devices`
makes one. Devices reach each other's arrays with `plgpu.remote_ref`, and count what has arrived
with semaphores. Each function has its NumPy reference beside it, for all devices together.

All works for any number of devices on one axis, two or more.

Sources: reference page, "Semaphore", "Grid-wide allocations using pl.get_global", "NVLINK
transfers"; PTX ISA, "Memory Consistency Model" (release and acquire patterns), "red", "atom".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from course_lib.kernels.matmul_ladder.shapes import even_blocks, num_sms, require_multiple

Array = np.ndarray[Any, Any]

AXIS = "device"
"""The name of the axis of devices, here and in the chapter."""

_ROWS = PartitionSpec(AXIS)


# ---- where the devices come from ----


def mesh_of(count: int) -> jax.sharding.Mesh | jax.sharding.AbstractMesh:
    """A mesh of `count` devices along `AXIS`: this process's GPUs if it has so many.

    Else a mesh without devices, which is enough for the model of the GPU.
    """
    try:
        found = jax.devices("gpu")
    except RuntimeError:
        found = []
    if len(found) >= count:
        return jax.sharding.Mesh(np.array(found[:count]), (AXIS,))
    auto = (jax.sharding.AxisType.Auto,)
    return jax.sharding.AbstractMesh((count,), (AXIS,), axis_types=auto)


def on_devices(
    function: Callable[..., Any],
    count: int,
    *,
    in_specs: Any = _ROWS,
    out_specs: Any = _ROWS,
) -> Callable[..., Any]:
    """`function` on each of `count` devices: a function of whole arrays.

    Args:
      function: what one device does with its shards.
      count: how many devices; the arrays are cut into as many parts along their first axis.
      in_specs, out_specs: how else they are cut, as `jax.shard_map` takes it.
    """

    @functools.wraps(function)
    def whole(*args: Any) -> Any:
        mapped = jax.shard_map(
            function,
            mesh=mesh_of(count),
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )
        return jax.jit(mapped)(*args)

    return whole


def _ring(step: int = 1) -> Any:
    """The device that is `step` places further in the circle."""
    size = lax.axis_size(AXIS)
    return lax.rem(lax.axis_index(AXIS) + step + size, jnp.int32(size))


# ---- blocks of one grid ----


def relay(x: jax.Array) -> jax.Array:
    """(x[0] + 1, x[0] + 2, ...) for x of shape (blocks, n): block after block adds 1.

    All blocks have to run at the same time, so there must not be more than fit on the SMs.
    """
    blocks = x.shape[0]

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        turn = pl.get_global(plgpu.SemaphoreType.REGULAR)
        block = lax.axis_index("block")

        @pl.when(block == 0)
        def _first() -> None:
            y_gmem[0] = x_gmem[0] + 1

        @pl.when(block > 0)
        def _later() -> None:
            # Not decremented: all blocks count on the same number.
            pl.semaphore_wait(turn, value=block, decrement=False)
            y_gmem[block] = y_gmem[block - 1] + 1

        pl.semaphore_signal(turn)

        @pl.when(block == blocks - 1)
        def _last() -> None:
            pl.semaphore_wait(turn, value=blocks)  # the next kernel's blocks begin at 0

    return plgpu.kernel(kernel, out_type=x, grid=(blocks,), grid_names=("block",))(x)


def relay_reference(x: Array) -> Array:
    """`relay` in NumPy."""
    return np.stack([_add_ones(x[0], i + 1) for i in range(x.shape[0])])


def _add_ones(x: Array, count: int) -> Array:
    for _ in range(count):
        x = x + np.ones_like(x)
    return x


# ---- to the next device ----


def rotate(x: jax.Array) -> jax.Array:
    """Each device hands its shard to the next one, with plain stores."""

    def kernel(x_gmem: Any, y_gmem: Any, done: Any) -> None:
        following = _ring()
        plgpu.remote_ref(y_gmem, following)[...] = x_gmem[...]
        pl.semaphore_signal(done, device_id=following)
        pl.semaphore_wait(done)

    return plgpu.kernel(kernel, out_type=x, scratch_types=[plgpu.SemaphoreType.REGULAR])(x)


def rotate_copy(x: jax.Array) -> jax.Array:
    """Each device hands its shard to the next one, with the copy engine."""

    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any, done: Any) -> None:
        following = _ring()
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, plgpu.remote_ref(y_gmem, following))
        plgpu.wait_smem_to_gmem(0)  # written, not only read from SMEM
        pl.semaphore_signal(done, device_id=following)
        pl.semaphore_wait(done)

    scratch: list[Any] = [plgpu.SMEM(x.shape, x.dtype), plgpu.Barrier()]
    scratch.append(plgpu.SemaphoreType.REGULAR)
    return plgpu.kernel(kernel, out_type=x, scratch_types=scratch)(x)


def rotate_reference(x: Array, *, devices: int) -> Array:
    """`rotate` and `rotate_copy` on all devices, in NumPy."""
    return np.roll(x, x.shape[0] // devices, axis=0)


def fetch(x: jax.Array) -> jax.Array:
    """2 * the shard of the next device, read by the copy engine from its memory.

    What is read was computed in this very kernel: so there are two messages, "it is there" and
    "I have read it".
    """

    def kernel(
        x_gmem: Any, y_gmem: Any, twice_gmem: Any, tile_smem: Any, loaded: Any, there: Any,
        read: Any,
    ) -> None:  # fmt: skip
        following, before = _ring(), _ring(-1)
        twice_gmem[...] = x_gmem[...] * 2
        pl.semaphore_signal(there, device_id=before)
        pl.semaphore_wait(there)
        plgpu.copy_gmem_to_smem(plgpu.remote_ref(twice_gmem, following), tile_smem, loaded)
        plgpu.barrier_wait(loaded)
        pl.semaphore_signal(read, device_id=following)
        y_gmem[...] = tile_smem[...]
        pl.semaphore_wait(read)  # nobody reads this device's memory any more

    semaphore = plgpu.SemaphoreType.REGULAR
    y, _ = plgpu.kernel(
        kernel,
        out_type=(x, x),
        scratch_types=[plgpu.SMEM(x.shape, x.dtype), plgpu.Barrier(), semaphore, semaphore],
    )(x)
    return y


def fetch_reference(x: Array, *, devices: int) -> Array:
    """`fetch` on all devices, in NumPy."""
    return 2 * np.roll(x, -(x.shape[0] // devices), axis=0)


# ---- around the ring ----


@dataclasses.dataclass(frozen=True)
class RingConfig:
    """How a shard is cut into tiles, and who carries them.

    Attributes:
      blocks: blocks per device; block i talks to block i of the neighbours.
      tile_m: rows of a tile.
      tile_n: columns of a tile, at most 256.
      slots: tiles of SMEM per block.
    """

    blocks: int = 1
    tile_m: int = 64
    tile_n: int = 128
    slots: int = 2


def _tiles_of(shape: tuple[int, ...], config: RingConfig) -> tuple[int, int]:
    m, n = shape[-2:]
    if m % config.tile_m or n % config.tile_n:
        raise ValueError(f"a shard of {m} x {n} must be multiples of the tile, {config}")
    count, columns = (m // config.tile_m) * (n // config.tile_n), n // config.tile_n
    if count % config.blocks:
        raise ValueError(f"{config.blocks} blocks cannot share {count} tiles equally")
    return count, columns


def _each_tile(
    shape: tuple[int, ...], config: RingConfig, work: Callable[[Any, Any, Any], None]
) -> None:
    """`work(i, rows, cols)` for the tiles of this block."""
    count, columns = _tiles_of(shape, config)

    @pl.loop(0, count // config.blocks)
    def _tile(i: Any) -> None:
        number = i * config.blocks + lax.axis_index("block")
        rows = pl.ds(lax.div(number, jnp.int32(columns)) * config.tile_m, config.tile_m)
        cols = pl.ds(lax.rem(number, jnp.int32(columns)) * config.tile_n, config.tile_n)
        work(i, rows, cols)


def all_gather(x: jax.Array, *, config: RingConfig | None = None) -> jax.Array:
    """All devices' shards, (devices, m, n), on every device: each hands on what it has got.

    In step s a device sends the shard that it received in step s - 1; in step 0 its own.

    Args:
      x: one device's shard, (m, n), multiples of the tile.
      config: tiles and blocks.

    Raises:
      ValueError: tiles or blocks do not divide the shard.
    """
    config = config or RingConfig()
    per_block = _tiles_of(x.shape, config)[0] // config.blocks
    size = lax.axis_size(AXIS)

    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any, arrived: Any) -> None:
        there = plgpu.remote_ref(y_gmem, _ring())

        def send(source: Any, shard: Any, step: Any, *, keep: bool) -> None:
            def tile(i: Any, rows: Any, cols: Any) -> None:
                slot = lax.rem(step * per_block + i, jnp.int32(config.slots))
                # The slot's last copy out must have been read before something new comes in.
                unread = config.slots - 1
                plgpu.wait_smem_to_gmem(unread, wait_read_only=True)
                plgpu.copy_gmem_to_smem(source.at[rows, cols], x_smem.at[slot], loaded.at[slot])
                plgpu.barrier_wait(loaded.at[slot])
                place = (shard, rows, cols)
                if keep:
                    own = y_gmem.at[place]
                    plgpu.copy_smem_to_gmem(x_smem.at[slot], own, commit_group=False)
                plgpu.copy_smem_to_gmem(x_smem.at[slot], there.at[place])

            _each_tile(x.shape, config, tile)

        send(x_gmem, lax.axis_index(AXIS), 0, keep=True)
        for step in range(size - 1):
            plgpu.wait_smem_to_gmem(0)
            pl.semaphore_signal(arrived.at[step], device_id=_ring())
            pl.semaphore_wait(arrived.at[step])
            if step < size - 2:
                shard = _ring(-1 - step)
                send(y_gmem.at[shard], shard, step + 1, keep=False)
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((size, *x.shape), x.dtype),
        grid=(config.blocks,),
        grid_names=("block",),
        scratch_types=[
            plgpu.SMEM((config.slots, config.tile_m, config.tile_n), x.dtype),
            plgpu.Barrier(num_barriers=config.slots),
            plgpu.SemaphoreType.REGULAR((max(size - 1, 1),)),
        ],
    )(x)


def all_gather_reference(x: Array, *, devices: int) -> Array:
    """`all_gather` on all devices, in NumPy: (devices * devices, m, n)."""
    return np.tile(x.reshape(devices, -1, x.shape[1]), (devices, 1, 1))


def reduce_scatter(x: jax.Array, *, config: RingConfig | None = None) -> jax.Array:
    """The sum over devices of x[me], of shape (m, n), for x of shape (devices, m, n).

    A sum travels around the ring and each device adds its part; it ends where it is wanted.
    What arrives in step s has a place of its own, so nobody has to wait for a place to be free.

    Raises:
      ValueError: x has not one part for each device, or tiles and blocks do not divide a part.
    """
    config = config or RingConfig()
    size = lax.axis_size(AXIS)
    if x.shape[0] != size:
        raise ValueError(f"{x.shape=} must have a part for each of {size} devices")
    _tiles_of(x.shape, config)

    def kernel(x_gmem: Any, y_gmem: Any, sums_gmem: Any, arrived: Any) -> None:
        there = plgpu.remote_ref(sums_gmem, _ring())

        def part(step: int) -> Any:
            """Of which part this device has the sum so far when it has heard `step` messages."""
            return _ring(-1 - step)

        for step in range(size):
            if step:
                pl.semaphore_wait(arrived.at[step - 1])

            def tile(i: Any, rows: Any, cols: Any, step: int = step) -> None:
                total = x_gmem[part(step), rows, cols]
                if step:
                    total = total + sums_gmem[step - 1, rows, cols]
                if step < size - 1:
                    there[step, rows, cols] = total
                else:
                    y_gmem[rows, cols] = total

            _each_tile(x.shape, config, tile)
            if step < size - 1:
                pl.semaphore_signal(arrived.at[step], device_id=_ring())

    one = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    y, _ = plgpu.kernel(
        kernel,
        out_type=(one, jax.ShapeDtypeStruct((max(size - 1, 1), *one.shape), x.dtype)),
        grid=(config.blocks,),
        grid_names=("block",),
        scratch_types=[plgpu.SemaphoreType.REGULAR((max(size - 1, 1),))],
    )(x)
    return y


def reduce_scatter_reference(x: Array, *, devices: int) -> Array:
    """`reduce_scatter` on all devices, in NumPy, in float64: x is (devices * devices, m, n)."""
    parts = x.reshape(devices, devices, *x.shape[1:]).astype(np.float64)
    return parts.sum(0).astype(x.dtype).reshape(-1, x.shape[2])


# ---- a matrix product whose left side is everywhere ----


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, the ring of slots, and how shards travel.

    Attributes:
      tile_m: rows of the result per warpgroup, a multiple of 64; a block has twice as many.
      tile_n: columns of it, a multiple of 64, at most 256.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      slots: slots for the product's operands, at least 2.
      epi_tile_n: columns of a piece of the result on its way out; tile_n is a multiple of it.
      grid_tile_width: how many tiles wide a band of `planar_snake` is.
      parcels: slots for what is sent, each of 2 * tile_m x tile_k.
      blocks: blocks per device, the same on all; None: as many as SMs, evenly loaded.
    """

    tile_m: int = 64
    tile_n: int = 256
    tile_k: int = 64
    slots: int = 3
    epi_tile_n: int = 64
    grid_tile_width: int = 16
    parcels: int = 2
    blocks: int | None = None


def all_gather_matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`all_gather(a) @ b`: communication runs beside the product, in one kernel.

    Each device begins with its own rows, which are there. Meanwhile one warp of each block sends
    them to all others, nearest first. A device goes on with the shard of the next device, which has
    arrived by then, and so on around the circle.

    Args:
      a: this device's rows, (m, k), float16 or bfloat16.
      b: this device's columns, (k, n), of the same dtype.
      config: tiles and slots.

    Returns:
      (devices * m, n): the rows of all devices, this device's columns; added up in float32.

    Raises:
      ValueError: shapes or dtypes do not fit; it names the multiple.
    """
    config = config or Config()
    shape = _Shape.of(a, b, config)
    m, n, size = shape.m, shape.n, shape.size
    tile_m, tile_n, tile_k, slots = config.tile_m, config.tile_n, config.tile_k, config.slots

    def kernel(
        a_gmem: Any, b_gmem: Any, o_gmem: Any, others_gmem: Any,
        a_smem: Any, b_smem: Any, o_smem: Any, parcel_smem: Any,
        loaded: Any, consumed: Any, packed: Any,
    ) -> None:  # fmt: skip
        arrived = pl.get_global(plgpu.SemaphoreType.REGULAR((max(size - 1, 1),)))
        left = pl.get_global(plgpu.SemaphoreType.REGULAR)
        wg = lax.axis_index("wg")

        def load() -> None:
            def tile(tile: _Tile) -> None:
                @pl.when((tile.hop > 0) & tile.first_of_hop)
                def _shard_is_there() -> None:
                    every = arrived.at[tile.hop - 1]
                    pl.semaphore_wait(every, value=shape.blocks, decrement=False)

                @pl.loop(0, shape.k_iters)
                def _step(ki: Any) -> None:
                    slot = lax.rem(tile.turn * shape.k_iters + ki, jnp.int32(slots))
                    plgpu.barrier_wait(consumed.at[slot])
                    rows, ks = pl.ds(tile.row, 2 * tile_m), pl.ds(ki * tile_k, tile_k)
                    to = (a_smem.at[slot], loaded.at[slot])

                    @pl.when(tile.hop == 0)
                    def _own() -> None:
                        plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], *to)

                    @pl.when(tile.hop > 0)
                    def _received() -> None:
                        plgpu.copy_gmem_to_smem(others_gmem.at[tile.hop - 1, rows, ks], *to)

                    cols = pl.ds(tile.col, tile_n)
                    plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem.at[slot], loaded.at[slot])

            _each_product_tile(shape, config, tile)
            for slot in range(slots):  # nobody leaves before the last arrival
                plgpu.barrier_wait(consumed.at[slot])

        def send() -> None:
            parcels = config.parcels
            mine = shape.parcels_of(lax.axis_index("block"))
            for hop in range(1, size):
                to = _ring(-hop)
                there = plgpu.remote_ref(others_gmem, to)

                @pl.loop(0, mine)
                def _parcel(i: Any, hop: int = hop, there: Any = there) -> None:
                    slot = lax.rem((hop - 1) * mine + i, jnp.int32(parcels))
                    number = i * shape.blocks + lax.axis_index("block")
                    rows = pl.ds(lax.div(number, jnp.int32(shape.k_iters)) * 2 * tile_m, 2 * tile_m)
                    ks = pl.ds(lax.rem(number, jnp.int32(shape.k_iters)) * tile_k, tile_k)
                    plgpu.wait_smem_to_gmem(parcels - 1, wait_read_only=True)
                    plgpu.copy_gmem_to_smem(
                        a_gmem.at[rows, ks], parcel_smem.at[slot], packed.at[slot]
                    )
                    plgpu.barrier_wait(packed.at[slot])
                    plgpu.copy_smem_to_gmem(parcel_smem.at[slot], there.at[hop - 1, rows, ks])

                plgpu.wait_smem_to_gmem(0)  # all of it is written there
                pl.semaphore_signal(arrived.at[hop - 1], device_id=to)

        def copy() -> None:
            plgpu.set_max_registers(40, action="decrease")

            def one_warp_each() -> None:
                warp = lax.axis_index("warp")
                pl.when(warp == 0)(load)
                pl.when(warp == 1)(send)

            pl.kernel(one_warp_each, out_type=(), mesh=plgpu.WarpMesh(axis_name="warp"))()
            _leave_no_counts(arrived, left, shape)

        def compute() -> None:
            plgpu.set_max_registers(232, action="increase")
            for slot in range(slots):  # at first, all slots are free
                plgpu.barrier_arrive(consumed.at[slot])

            def tile(tile: _Tile) -> None:
                def mma_body(acc: Any) -> jax.Array:
                    @pl.loop(0, shape.k_iters)
                    def _step(ki: Any) -> None:
                        slot = lax.rem(tile.turn * shape.k_iters + ki, jnp.int32(slots))
                        plgpu.barrier_wait(loaded.at[slot])
                        own = pl.ds(wg * tile_m, tile_m)
                        plgpu.wgmma(acc, a_smem.at[slot, own], b_smem.at[slot])
                        plgpu.wgmma_wait(0)
                        plgpu.barrier_arrive(consumed.at[slot])

                    return acc[...]

                acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
                row = _ring(tile.hop) * m + tile.row + wg * tile_m
                _store(acc, o_smem.at[wg], o_gmem, tile.turn, row, tile.col, config)

            _each_product_tile(shape, config, tile)
            plgpu.wait_smem_to_gmem(0)

        lax.cond(wg < 2, compute, copy)

    out, _ = plgpu.kernel(
        kernel,
        out_type=(
            jax.ShapeDtypeStruct((size * m, n), a.dtype),
            jax.ShapeDtypeStruct((max(size - 1, 1), *a.shape), a.dtype),
        ),
        grid=(shape.blocks,),
        grid_names=("block",),
        num_threads=3,
        thread_name="wg",
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, 2 * tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((2, 2, tile_m, config.epi_tile_n), a.dtype),
            parcel_smem=plgpu.SMEM((config.parcels, 2 * tile_m, tile_k), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            consumed=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            packed=plgpu.Barrier(num_barriers=config.parcels),
        ),
    )(a, b)
    return out


@dataclasses.dataclass(frozen=True)
class _Shape:
    """The sizes of one device's part: m x n x k, tiles, blocks and devices."""

    m: int
    n: int
    k_iters: int
    m_iters: int
    n_iters: int
    size: int
    blocks: int

    @staticmethod
    def of(a: jax.Array, b: jax.Array, config: Config) -> _Shape:
        (m, k), (k2, n) = a.shape, b.shape
        if k != k2 or a.dtype != b.dtype or a.dtype not in (jnp.float16, jnp.bfloat16):
            raise ValueError(
                f"{a.shape=} {a.dtype} and {b.shape=} {b.dtype}: both 16 bits, (m, k) and (k, n)"
            )
        require_multiple(m=(m, 2 * config.tile_m), n=(n, config.tile_n), k=(k, config.tile_k))
        require_multiple(tile_n=(config.tile_n, config.epi_tile_n))
        size = lax.axis_size(AXIS)
        m_iters, n_iters = m // (2 * config.tile_m), n // config.tile_n
        blocks = config.blocks or even_blocks(size * m_iters * n_iters, num_sms())
        return _Shape(m, n, k // config.tile_k, m_iters, n_iters, size, blocks)

    @property
    def tiles(self) -> int:
        """Tiles of the result that come of one device's rows."""
        return self.m_iters * self.n_iters

    def parcels_of(self, block: Any) -> Any:
        """How many of a shard's tiles of A a block sends to each of the others."""
        return lax.div(self.m_iters * self.k_iters - block + self.blocks - 1, self.blocks)


@dataclasses.dataclass(frozen=True)
class _Tile:
    """One tile of a block's work.

    Attributes:
      turn: how many the block has done before it.
      hop: whose rows: those of the device `hop` places further. 0 is its own.
      first_of_hop: whether the block had another hop's rows before.
      row: its first row within that device's rows.
      col: its first column.
    """

    turn: Any
    hop: Any
    first_of_hop: Any
    row: Any
    col: Any


def _each_product_tile(shape: _Shape, config: Config, work: Callable[[_Tile], None]) -> None:
    """`work` for each tile of this block, device after device, in the order of a snake."""

    @plgpu.nd_loop((shape.size * shape.tiles,), collective_axes="block")
    def _tile(loop: plgpu.NDLoopInfo) -> None:
        (number,) = loop.index
        hop = lax.div(number, jnp.int32(shape.tiles))
        mi, ni = plgpu.planar_snake(
            lax.rem(number, jnp.int32(shape.tiles)),
            (shape.m_iters, shape.n_iters),
            0,
            config.grid_tile_width,
        )
        first = number - shape.blocks < hop * shape.tiles
        work(_Tile(loop.local_index, hop, first, mi * 2 * config.tile_m, ni * config.tile_n))


def _store(
    acc: Any, o_smem: Any, o_gmem: Any, turn: Any, row: Any, col: Any, config: Config
) -> None:
    """A warpgroup's part of its tile number `turn`, piece by piece, through two buffers."""
    acc = acc.astype(o_smem.dtype)
    width = config.epi_tile_n
    pieces = config.tile_n // width
    for i in range(pieces):
        buffer = i % 2 if pieces % 2 == 0 else lax.rem(turn * pieces + i, jnp.int32(2))
        # Of the two buffers, the one written two pieces ago must have been read.
        plgpu.wait_smem_to_gmem(1, wait_read_only=True)
        o_smem[buffer] = acc[:, i * width : (i + 1) * width]
        plgpu.commit_smem()
        place = o_gmem.at[pl.ds(row, config.tile_m), pl.ds(col + i * width, width)]
        plgpu.copy_smem_to_gmem(o_smem.at[buffer], place)


def _leave_no_counts(arrived: Any, left: Any, shape: _Shape) -> None:
    """Block 0 takes the counts back when no block of this device reads them any more."""
    pl.semaphore_signal(left)

    @pl.when(lax.axis_index("block") == 0)
    def _() -> None:
        pl.semaphore_wait(left, value=shape.blocks)
        for hop in range(1, shape.size):
            pl.semaphore_wait(arrived.at[hop - 1], value=shape.blocks)


def all_gather_matmul_reference(a: Array, b: Array) -> Array:
    """`all_gather_matmul` on all devices, in NumPy: (all rows, all columns), in float32 sums."""
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


GATHERED: dict[str, Any] = dict(
    in_specs=(PartitionSpec(AXIS), PartitionSpec(None, AXIS)), out_specs=PartitionSpec(None, AXIS)
)
"""How the arrays of `all_gather_matmul` are cut: A and the result by rows and by columns."""
