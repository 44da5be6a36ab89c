"""What a learner sees in a notebook: sentences with the cell's own lines, and nothing stops."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

CELLS = [
    """\
import functools
import jax, jax.numpy as jnp
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
from course_lib import check, hint, progress""",
    """\
def double_through_smem(x):
    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)
        y_gmem[part] = x_smem[...] * 2
        plgpu.barrier_wait(loaded)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 128,),
        grid_names=("block",),
        scratch_types=[plgpu.SMEM((128,), x.dtype), plgpu.Barrier()],
    )(x)""",
    'check("start_here.double_through_smem", double_through_smem)',
    """\
def reverse_rows(x):
    return x.reversed()""",
    'check("start_here.reverse_rows", reverse_rows)',
    """\
def fill_iota(*, blocks):
    raise NotImplementedError("not done yet")""",
    'check("start_here.fill_iota", fill_iota)',
    'hint("start_here.fill_iota")',
    "progress()",
    'check("start_here.fil_iota", fill_iota)',
    """\
def same_elements(*, blocks):
    out = jax.ShapeDtypeStruct((blocks * 128,), jnp.int32)

    @functools.partial(plgpu.kernel, out_type=out, grid=(blocks,), grid_names=("block",))
    def kernel(numbers_gmem):
        numbers_gmem[pl.ds(0, 128)] = jnp.arange(128)

    return kernel()""",
    'check("start_here.fill_iota", same_elements)',
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each cell printed, by its source; the error's text where it raised one."""
    folder: Path = tmp_path_factory.mktemp("workspace")
    (folder / ".course").mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COURSE_WORKSPACE", "COURSE_MODEL_ONLY"):
            patch.delenv(name, raising=False)
        nbclient.execute(notebook, cwd=str(folder), timeout=240, allow_errors=True)
    return {
        c.source: "".join(o.get("text", "\n".join(o.get("traceback", []))) for o in c.outputs)
        for c in notebook.cells
    }


def test_a_race_names_both_lines_of_the_cell(outputs):
    said = outputs['check("start_here.double_through_smem", double_through_smem)']
    assert said.startswith("start_here.double_through_smem: a race, with float32[256].")
    assert "(cell [2], line 4)" in said
    assert "(cell [2], line 5)" in said


def test_a_kernel_s_arguments_go_by_the_names_that_the_cell_gives_them(outputs):
    said = outputs['check("start_here.fill_iota", same_elements)']
    assert "Two blocks touch numbers_gmem[0:128] and nothing orders them." in said


def test_an_exception_names_its_line(outputs):
    said = outputs['check("start_here.reverse_rows", reverse_rows)']
    assert "an error in your code" in said
    assert "AttributeError" in said
    assert "(cell [4], line 2)" in said


def test_an_untouched_stub_is_one_line(outputs):
    said = outputs['check("start_here.fill_iota", fill_iota)']
    assert said == "start_here.fill_iota: not done yet: fill in the cell above and run it again.\n"


def test_hints_and_progress_are_of_this_workspace(outputs):
    assert outputs['hint("start_here.fill_iota")'].startswith("Hint 1 of 3, start_here.fill_iota:")
    rows = {tuple(line.split()[1:4]) for line in outputs["progress()"].splitlines() if line}
    assert ("fill_iota", "open", "0") in rows
    assert ("reverse_rows", "tried", "1") in rows


def test_a_misspelt_id_is_a_sentence_and_no_traceback(outputs):
    said = outputs['check("start_here.fil_iota", fill_iota)']
    assert said == (
        "CourseError: There is no exercise 'start_here.fil_iota'. "
        "Did you mean 'start_here.fill_iota'?"
    )
