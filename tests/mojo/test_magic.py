"""`%%mojo_gpu` in a notebook: kernels, output, expectations, options."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from course_lib.diagnostics import OptionError
from course_lib.mojo import MojoCompileError, magic
from course_lib.mojo.magic import MojoExpectationError
from tests.mojo import programs


@pytest.fixture
def cell(monkeypatch):
    """Runs a cell with the magic; returns what it displayed."""
    shown = []
    monkeypatch.setattr(magic, "display", shown.append)
    magics = magic.MojoMagics(InteractiveShell.instance())

    def run(line: str, source: str = programs.VECTOR_ADD):
        magics.mojo_gpu(line, source)
        return shown[-1]

    run.shown = shown
    return run


def test_the_kernels_are_shown_and_the_listing_is_folded(cell):
    result = cell('--expect "ld.global=2" --expect spill_bytes=0')
    bundle = result._repr_mimebundle_()
    assert "add_kernel: " in bundle["text/plain"]
    assert "<details><summary>add_kernel" in bundle["text/html"]
    assert "ld.global" in bundle["text/html"]
    assert "ld.global" not in bundle["text/plain"]


def test_what_is_expected_and_not_there_fails_the_cell(cell):
    with pytest.raises(
        MojoExpectationError, match=r"2 ld\.global instructions; expected exactly 7"
    ):
        cell('--expect "ld.global=7"')
    assert "Output" not in repr(cell.shown[-1])


def test_a_program_that_does_not_compile_names_the_cell_s_line(cell):
    with pytest.raises(MojoCompileError, match="Line 13 does not compile"):
        cell("", programs.UNBOUND)


@pytest.mark.parametrize("line", ["--arch sm_80", "--what", "--expect ld.global"])
def test_options_that_do_not_exist_are_named(cell, line):
    with pytest.raises(OptionError, match=r"sm_90a|--expect|spill_bytes"):
        cell(line)


def test_the_display_is_the_same_at_every_run(cell):
    assert repr(cell("--no-run")) == repr(cell("--no-run"))
