"""Time without values: full grids, waves, L2, occupancy; and what cannot be timed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.diagnostics import CourseError
from course_lib.kernels import matmul_hopper, matmul_ladder
from course_lib.simulator import simulate
from course_lib.simulator.machine.arch import ARCHS
from course_lib.simulator.machine.clockwork import Engine
from course_lib.simulator.machine.occupancy import occupancy

F16 = jnp.float16


def spec(*shape, dtype=F16):
    return jax.ShapeDtypeStruct(shape, dtype)


def timed(m=1024, n=1024, k=1024, **config):
    def f(a, b):
        return matmul_hopper.matmul(a, b, config=matmul_hopper.Config(**config))

    [found] = simulate(f, spec(m, k), spec(k, n), values=False).performance
    return found


def test_a_full_grid_needs_no_values() -> None:
    found = timed(8192, 8192, 8192)
    assert found.flops == pytest.approx(2 * 8192**3)
    assert sum(w.blocks for w in found.waves) == 64 * 64
    assert found.time_us == pytest.approx(sum(w.time_us for w in found.waves), rel=0.01)
    # an H200 was measured to take 1700 us for the ladder's kernel of this form
    assert 0.8 * 1700 < found.time_us < 1.2 * 1700
    assert 0.4 < found.peak_fraction < 0.8
    assert "limited by" in str(found)


def test_the_last_wave_may_be_part_full() -> None:
    even, uneven = timed(1408, 1536), timed(1536, 1536)  # 11 x 12 and 12 x 12 blocks
    assert [w.blocks for w in even.waves] == [132]
    assert even.tail_us == 0
    assert [w.blocks for w in uneven.waves] == [132, 12]
    assert uneven.tail_us > 0.8 * uneven.waves[0].time_us


def test_blocks_that_share_an_sm_hide_each_others_waits() -> None:
    one = timed(1024, 1056 * 2, 2048, tile_n=96, max_concurrent_steps=7)
    several = timed(1024, 1056 * 2, 2048, tile_n=96, max_concurrent_steps=2)
    assert one.occupancy.blocks_per_sm == 1
    assert several.occupancy.blocks_per_sm > 1
    assert several.waves[0].blocks_per_sm == 2  # 176 blocks on 132 SMs


def test_more_slots_wait_less() -> None:
    slow, fast = (timed(1408, 1536, 4096, max_concurrent_steps=s) for s in (2, 4))
    assert slow.time_us > 1.2 * fast.time_us
    assert slow.bottleneck == "latency"


def test_neighbouring_blocks_share_what_l2_fetched() -> None:
    wide = timed(128, 128 * 132)  # one row of blocks: A's tile is for all, B's each its own
    square = timed(1408, 1536)
    assert wide.l2_hit_fraction == pytest.approx(1 - (1 + 132) / 264, abs=0.01)
    assert square.l2_hit_fraction == pytest.approx(1 - (11 + 12) / 264, abs=0.01)


def test_which_blocks_share_a_tile_counts_too() -> None:
    """The same tiles in a wave: blocks that follow each other share a row's A, or a column's B.

    Measured on an H200 at 4096 x 8192 x 4096: step 6 takes 6% longer than step 7, whose snake is
    8 tiles wide; of kernels like step 10, one with a snake 4 wide took 2% longer than 8 wide.
    """

    def ladder(number, **config):
        step = matmul_ladder.step(number)

        def f(a, b):
            return step.matmul(a, b, config=step.module.Config(**config))

        [found] = simulate(f, spec(4096, 512), spec(512, 8192), values=False).performance
        return found

    rows, snake = ladder(6), ladder(7, grid_tile_width=4)
    assert rows.l2_hit_fraction == pytest.approx(snake.l2_hit_fraction, abs=0.01)
    assert 1.02 * snake.time_us < rows.time_us < 1.1 * snake.time_us


def persistent(x):
    def body(x_gmem, o_gmem, smem, loaded):
        @plgpu.nd_loop((200,), collective_axes="sm")
        def _(loop):
            (i,) = loop.index
            plgpu.copy_gmem_to_smem(x_gmem.at[i], smem, loaded)
            plgpu.barrier_wait(loaded)
            plgpu.copy_smem_to_gmem(smem, o_gmem.at[i])
            plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body, out_type=x, grid=(132,), grid_names=("sm",),
        scratch_types=[plgpu.SMEM((64, 64), F16), plgpu.Barrier()],
    )(x)  # fmt: skip


def test_a_persistent_kernel_takes_one_wave_as_long_as_its_longest_block() -> None:
    [found] = simulate(persistent, spec(200, 64, 64), values=False).performance
    assert len(found.waves) == 1
    [half] = simulate(persistent, spec(200, 64, 64), values=False, arch="sm_100a").performance
    assert len(half.waves) == 1
    assert found.shares["tensor core"] == 0


def decides(x):
    def body(x_gmem, o_gmem):
        value = x_gmem[0, 0]

        @pl.when(value > 0)
        def _():
            o_gmem[...] = x_gmem[...] + 1

    return plgpu.kernel(body, out_type=x)(x)


def counts(x):
    def body(x_gmem, o_gmem):
        @pl.when(lax.axis_index("g") > 0)
        def _():
            o_gmem[...] = x_gmem[...] + 1

    return plgpu.kernel(body, out_type=x, grid=(4,), grid_names=("g",))(x)


def test_a_decision_by_data_cannot_be_timed_one_by_the_grid_can() -> None:
    with pytest.raises(CourseError, match=r"cond in it depends on data.*test_performance.py:\d+"):
        simulate(decides, spec(64, 64), values=False)
    assert simulate(counts, spec(64, 64), values=False).performance


def test_a_deadlock_is_said_in_a_sentence() -> None:
    def waits(x):
        def body(x_gmem, o_gmem, bar):
            plgpu.barrier_wait(bar)

        return plgpu.kernel(body, out_type=x, scratch_types=[plgpu.Barrier()])(x)

    with pytest.raises(CourseError, match="cannot be timed without values"):
        simulate(waits, spec(64, 64), values=False)


def test_shapes_alone_have_no_values() -> None:
    with pytest.raises(CourseError, match="values=False"):
        simulate(counts, spec(64, 64))


def test_occupancy_names_what_is_used_up_first() -> None:
    arch = ARCHS["sm_90a"]
    found = occupancy(arch, threads=1, smem_bytes=64 * 1024, accumulator_bytes=128 * 128 * 4)
    assert (found.blocks_per_sm, found.limited_by, found.registers) == (3, "SMEM", 168)
    assert occupancy(arch, threads=3, smem_bytes=1024, accumulator_bytes=65536).limited_by == (
        "registers"
    )
    assert occupancy(arch, threads=4, smem_bytes=1024).limited_by == "registers"
    assert occupancy(arch, threads=1, smem_bytes=16).blocks_per_sm == 12
    tensor = occupancy(ARCHS["sm_100a"], threads=1, smem_bytes=1024, tmem_columns=256)
    assert (tensor.blocks_per_sm, tensor.limited_by) == (2, "TMEM")


def test_a_simulation_reports_its_occupancy() -> None:
    a = np.random.default_rng().standard_normal((256, 256)).astype(np.float16)
    fits = simulate(matmul_hopper.matmul, a, a).resources.occupancy
    assert fits.blocks_per_sm == 1
    assert "per SM, limited by SMEM" in str(fits)


def test_an_engine_fills_its_gaps() -> None:
    engine = Engine()
    assert [engine.take(0, 10), engine.take(50, 10), engine.take(5, 20), engine.take(0, 30)] == [
        0, 50, 10, 60,
    ]  # fmt: skip
    assert engine.end == 90
