"""pl.debug_print on the model: a line for each Pallas thread, in the report and below the cell."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import runtime, simulator

pytestmark = pytest.mark.two_jax

VECTOR = jax.ShapeDtypeStruct((4, 128), jnp.float32)


def kernel(body, **options):
    return plgpu.kernel(body, out_type=VECTOR, grid=(4,), grid_names=("block",), **options)


def row_by_row(x_gmem, y_gmem):
    block = jax.lax.axis_index("block")
    pl.debug_print("row {} starts with {}", block, x_gmem[block, 0])
    y_gmem[block] = x_gmem[block]


@pytest.fixture
def x():
    return np.random.default_rng().standard_normal((4, 128)).astype(np.float32)


def test_each_block_prints_its_numbers(x):
    report = simulator.simulate(kernel(row_by_row), x)
    assert report.printed == tuple(f"row {i} starts with {x[i, 0]:f}" for i in range(4))
    assert str(report).startswith("row 0 starts with")
    assert report.ok


def test_who_prints_nothing_has_nothing_printed(x):
    def silent(x_gmem, y_gmem):
        block = jax.lax.axis_index("block")
        plgpu.print_layout("x: {}", x_gmem[block])  # that is the compiler's
        y_gmem[block] = x_gmem[block]

    report = simulator.simulate(kernel(silent), x)
    assert report.printed == ()
    assert str(report) == "No findings."


def test_each_thread_prints_and_only_where_it_goes(x):
    def second(x_gmem, y_gmem):
        block, thread = jax.lax.axis_index("block"), jax.lax.axis_index("thread")
        pl.debug_print("thread {}", thread)

        @pl.when(thread == 1)
        def only():
            pl.debug_print("here")
            y_gmem[block] = x_gmem[block]

    report = simulator.simulate(kernel(second, num_threads=2, thread_name="thread"), x)
    assert sorted(report.printed) == ["here"] * 4 + ["thread 0"] * 4 + ["thread 1"] * 4


def test_a_whole_array_is_printed_too(x):
    def whole(x_gmem, y_gmem):
        block = jax.lax.axis_index("block")
        pl.debug_print("x: {}", x_gmem[block])
        y_gmem[block] = x_gmem[block]

    [first, *_] = simulator.simulate(kernel(whole), x).printed
    assert first == f"x: {x[0]}"


def test_a_loop_does_not_fill_the_report(x):
    def many(x_gmem, y_gmem):
        block = jax.lax.axis_index("block")
        y_gmem[block] = x_gmem[block]

        @pl.loop(0, 300)
        def again(i):
            pl.debug_print("{}", i)

    printed = simulator.simulate(kernel(many), x).printed
    assert len(printed) == 501
    assert printed[-1] == "... and more: the first 500 lines are kept."


def test_run_prints_below_the_cell(x, capsys):
    if runtime.device() is not None:
        pytest.skip("on a GPU the process that runs it prints")
    runtime.run(kernel(row_by_row), x)
    assert capsys.readouterr().out.startswith(f"row 0 starts with {x[0, 0]:f}\n")


def test_what_was_printed_is_kept_where_a_kernel_is_wrong(x):
    def wrong(x_gmem, y_gmem):
        pl.debug_print("hello")
        y_gmem[0] = x_gmem[jax.lax.axis_index("block")]

    report = simulator.simulate(kernel(wrong), x)
    assert not report.ok
    assert report.printed == ("hello",) * 4


def test_a_text_that_is_no_template_is_only_text(x):
    """A kernel of somebody else's: its fields are not asked for anything."""
    evil = "{0.__class__.__mro__} {:>999999999} {}"
    program = simulator.trace_kernels(kernel(row_by_row), x)
    for op, _ in program.walk():
        if op.name == "print":
            op.params["text"] = evil
    printed = simulator.replay(program, [x]).printed
    # the first of the two numbers that the kernel prints takes the only {}, the other one follows
    assert printed[0] == evil.replace("{}", "0") + f"{x[0, 0]:f}"
