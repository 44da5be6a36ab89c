"""Time, by the cost model: what overlaps is faster, and the drawing names lines."""

from __future__ import annotations

import json

import numpy as np

from course_lib.simulator import simulate
from tests.simulator.test_simulator import add_one, matmul, normal


def timed(f, *args, **options):
    report = simulate(f, *args, timeline=True, **options)
    assert not report.findings, report
    return report.timeline


def test_there_is_no_timeline_unless_asked_for() -> None:
    assert simulate(add_one, normal(256)).timeline is None


def test_more_stages_are_faster_until_nothing_waits() -> None:
    a, b = normal(128, 1024, dtype="float16"), normal(1024, 128, dtype="float16")
    cycles = [timed(lambda a, b, s=s: matmul(a, b, stages=s), a, b).cycles for s in (2, 3, 4)]
    assert cycles[0] > 1.2 * cycles[1]  # with two, no load runs beside the MMA
    assert cycles[1] == cycles[2]  # the memory is the limit


def test_an_mma_takes_what_its_flops_take() -> None:
    a, b = normal(128, 64, dtype="float16"), normal(64, 128, dtype="float16")
    line = timed(matmul, a, b)
    [mma] = [s for s in line.spans if s.name == "wgmma_ref" and s.kind == "in flight"]
    assert mma.end - mma.start == 2 * 128 * 128 * 64 / 4096


def test_blocks_beyond_the_sms_wait_for_a_place() -> None:
    def run(blocks):
        import jax
        import jax.experimental.pallas.mosaic_gpu as plgpu
        import jax.numpy as jnp
        from jax import lax

        def body(x_gmem, o_gmem):
            i = lax.axis_index("g")
            o_gmem[i] = x_gmem[i] + 1

        out = jax.ShapeDtypeStruct((blocks, 128), jnp.float32)
        kernel = plgpu.kernel(body, out_type=out, grid=(blocks,), grid_names=("g",))
        return timed(kernel, normal(blocks, 128)).cycles

    one = run(1)
    assert np.isclose(run(132), one)
    assert np.isclose(run(133), 2 * one)


def test_drawing_and_trace(tmp_path) -> None:
    a, b = normal(128, 128, dtype="float16"), normal(128, 128, dtype="float16")
    line = timed(matmul, a, b)
    drawing = line.svg()
    assert drawing.startswith("<svg")
    assert "test_simulator.py:" in drawing
    assert any("TMA" in lane for lane in line.lanes)
    line.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    assert line.time_us > 0
