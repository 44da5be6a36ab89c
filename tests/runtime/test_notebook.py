"""In a notebook a finding names the cell, by its id, its source or its number."""

import sys

import nbformat
import pytest
from nbclient import NotebookClient

KERNEL = """\
import functools, jax, numpy as np
import jax.numpy as jnp
import jax.experimental.pallas.mosaic_gpu as plgpu
from course_lib import run, simulate

@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32))
def kernel(x_gmem, y_gmem):
    y_gmem[...] = x_gmem[...] + jnp.ones((3,), jnp.float32)
"""
CALL = """\
x = np.random.default_rng().standard_normal((128, 128)).astype(np.float32)
simulate(kernel, x)
"""
RAISE = "run(kernel, x)"
OWN_ERROR = "simulate(lambda a: a + missing, x)"


IMPORT = "from course_lib import model\nprint(model.worker().pid, model.lowering_worker().pid)"
NEXT = "print(None in (model.worker().pid, model.lowering_worker().pid))"


def executed(sources, folder):
    """The outputs of a notebook of these cells, run without ids."""
    cells = [nbformat.v4.new_code_cell(s) for s in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    client = NotebookClient(
        notebook,
        timeout=120,
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Of a notebook whose first cell is in no chapter."""
    return executed((KERNEL, CALL, RAISE, OWN_ERROR), tmp_path_factory.mktemp("nb"))


def test_the_processes_start_once_the_importing_cell_is_done(tmp_path):
    [first], [second] = executed((IMPORT, NEXT), tmp_path)
    assert first["text"] == "None None\n"
    assert second["text"] == "False\n"


def test_a_finding_names_cell_and_line_and_no_temporary_file(outputs):
    text = outputs[1][0]["data"]["text/plain"]
    assert "cell [1], line 8" in text
    assert "ipykernel" not in text


def test_cells_are_numbered_as_the_notebook_numbers_them(outputs):
    assert "cell [4], line 1" in outputs[3][0]["data"]["text/plain"]


def test_run_shows_the_sentence_without_a_traceback(outputs):
    error = outputs[2][0]
    assert error["ename"] == "KernelRaisedError"
    assert "Traceback" not in "".join(error["traceback"])
    assert "Incompatible shapes" in "".join(error["traceback"])


def test_a_cell_of_a_chapter_is_known_by_its_source(monkeypatch):
    from course_lib import notebook
    from course_lib.authoring import cellids

    sha = cellids.source_sha("y = 1")
    monkeypatch.setattr(cellids, "cell_ids_by_source", lambda: {sha: "first-kernel"})
    assert notebook._id_by_source("y = 1\n") == "first-kernel"
    assert notebook._id_by_source("y = 2") is None


def test_outside_of_a_notebook_nothing_is_installed():
    from course_lib import notebook

    assert not notebook.install()
    assert sys.modules.get("course_lib.notebook") is notebook
