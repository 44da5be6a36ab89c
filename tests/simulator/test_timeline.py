"""Time, by the cost model: what overlaps is faster, and the drawing names lines."""

from __future__ import annotations

import functools
import itertools
import json

import numpy as np
import pytest

from course_lib.kernels.asynchronous_copies import RingConfig, ring_copy
from course_lib.simulator import simulate, timeline_picture
from course_lib.simulator.timeline import Span, Timeline
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


def ring(stages: int, unread: int):
    config = RingConfig(tile_m=16, stages=stages, unread_stores=unread, num_sms=1)
    return timed(functools.partial(ring_copy, config=config), normal(96, 256))


def test_the_words_of_the_picture_count_what_is_under_way() -> None:
    alone, overlapping = ring(1, 0).figure().get_label(), ring(4, 1).figure().get_label()
    assert "with 1 at a time at most" in alone
    assert "with 2 at a time at most" in overlapping
    assert "the thread waits for" in alone


@pytest.mark.parametrize("lane", ["the TMA", "warp 0 of thread 2 of block (31, 127)"])
def test_the_names_of_the_lanes_are_inside_the_picture(lane) -> None:
    line = Timeline((Span(lane, "in flight", 0, 10, "", ""),), 10, 1.83)
    figure = line.figure()
    figure.draw_without_rendering()
    [axes] = figure.axes
    [name] = [text for text in axes.texts if text.get_text() == lane]
    assert name.get_window_extent().x0 > 0


def test_spans_that_overlap_are_drawn_below_each_other() -> None:
    line = ring(4, 1)
    rows = timeline_picture._pack(s for s in line.spans if s.lane == "the TMA")
    assert len(rows) == 2
    for row in rows:
        assert all(a.end <= b.start for a, b in itertools.pairwise(row))


def test_cycles_are_covered_once_however_many_spans_cover_them() -> None:
    spans = [Span("x", "wait", a, b, "", "") for a, b in ((0, 4), (2, 6), (6, 7), (9, 10))]
    assert timeline_picture.covered(spans) == 8


def test_a_notebook_gets_a_picture_that_needs_no_trust(monkeypatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    ring(2, 0).show(lanes=["the TMA"])
    [data] = shown
    assert set(data) == {"image/png", "text/plain"}
    assert "Timeline of 1 lane over" in data["text/plain"]


def test_the_drawing_to_hover_over_names_lines_and_zooms() -> None:
    line = ring(4, 1)
    drawing = line.html()
    assert "asynchronous_copies.py:" in drawing
    assert 'type="range"' in drawing
    _, spans, end = line.window(start=100, end=500)
    assert end == 500
    assert all(100 <= s.start < s.end <= 500 for s in spans)


def test_a_long_timeline_is_drawn_with_few_spans() -> None:
    lane, many = "thread 0", 20_000
    spans = [Span(lane, "issue", 2.0 * i, 2.0 * i + 1, "wgmma_ref", "k.py:3") for i in range(many)]
    line = Timeline(tuple(spans), 2.0 * many, 1.0)
    _, drawn, _ = line.window()
    assert len(drawn) < 3000
    assert drawn[0].where == "k.py:3"
    assert len(line.html()) < 1_000_000
    _, close, _ = line.window(start=1000, end=1100)
    assert len(close) == 50


def exponentials(x, *, fold):
    """exp2 of a matrix, with a factor: once folded into a difference, once not."""
    import jax.experimental.pallas.mosaic_gpu as plgpu
    import jax.numpy as jnp

    def body(x_gmem, o_gmem):
        x = x_gmem[...]
        product = x * 3.0
        o_gmem[...] = jnp.exp2(product - 1.0) if fold else jnp.exp2(product)

    return plgpu.kernel(body, out_type=x)(x)


def arithmetic(timeline, name=None):
    spans = [s for s in timeline.spans if s.kind == "arithmetic"]
    return sum(s.end - s.start for s in spans if name in (None, s.name))


def test_arithmetic_takes_its_time_in_a_detailed_timeline_only() -> None:
    x = normal(64, 128)
    plain = timed(functools.partial(exponentials, fold=False), x)
    report = simulate(functools.partial(exponentials, fold=False), x, timeline="detailed")
    assert arithmetic(plain) == 0
    assert arithmetic(report.timeline, "exp2") == 64 * 128 / 16
    assert arithmetic(report.timeline, "mul") == 64 * 128 / 128
    assert report.timeline.cycles != plain.cycles
    np.testing.assert_allclose(report.value, np.exp2(3 * x), rtol=1e-6)


def test_a_product_that_is_only_added_to_is_part_of_the_sum() -> None:
    fold = functools.partial(exponentials, fold=True)
    timeline = simulate(fold, normal(64, 128), timeline="detailed").timeline
    assert arithmetic(timeline, "mul") == 0
    assert arithmetic(timeline, "sub") == 64 * 128 / 128


def test_threads_of_a_block_share_its_alu() -> None:
    import jax
    import jax.experimental.pallas.mosaic_gpu as plgpu
    import jax.numpy as jnp

    def body(x_gmem, o_gmem):
        mine = jax.lax.axis_index("t")
        o_gmem[mine] = jnp.exp2(x_gmem[mine])

    x = normal(2, 64, 128)
    two = plgpu.kernel(body, out_type=x, num_threads=2, thread_name="t")
    spans = [s for s in simulate(two, x, timeline="detailed").timeline.spans if s.name == "exp2"]
    (first, second) = sorted(spans, key=lambda s: s.start)
    assert first.lane != second.lane
    assert second.start >= first.end


def test_a_timeline_of_another_kind_is_refused() -> None:
    from course_lib.diagnostics import OptionError

    with pytest.raises(OptionError, match="choose True, False or 'detailed'"):
        simulate(add_one, normal(256), timeline="fine")
