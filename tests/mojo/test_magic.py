"""`%%mojo_gpu` in a notebook: kernels, output, expectations, options."""

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from course_lib.diagnostics import OptionError
from course_lib.mojo import Answer, MojoCompileError, MojoError, answers, magic
from course_lib.mojo.magic import MojoExpectationError
from tests.mojo import programs


@pytest.fixture
def cell(monkeypatch):
    """Runs a cell with the magic; returns what it displayed."""
    shown = []
    monkeypatch.setattr(magic, "display", shown.append)
    magics = magic.MojoMagics(InteractiveShell.instance())

    def run(line: str, source: str = programs.VECTOR_ADD, *, on_cpu: bool = False):
        (magics.mojo_cpu if on_cpu else magics.mojo_gpu)(line, source)
        return shown[-1] if shown else None

    run.shown = shown
    run.names = magics.shell.user_ns
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


def test_a_result_with_a_name_can_be_asked_from_python(cell):
    cell("--no-run --as first")
    first = cell.names["first"]
    assert (first.count("ld.global"), first.kernel("add_kernel").count("st.global")) == (2, 1)
    assert (first.spill_bytes, first.smem_bytes, first.compiled) == (0, 0, True)
    assert first.registers > 0
    assert first.printed == []


def test_an_exercise_with_a_gap_is_not_done_yet_and_compiles_nothing(cell, capsys, monkeypatch):
    monkeypatch.setattr(magic.compiling, "compile_program", lambda *a, **k: pytest.fail("compiles"))
    gap = programs.VECTOR_ADD.replace("var tid = global_idx.x", answers.NOT_DONE)
    cell("--exercise mojo_launches.vector_add", gap)
    assert capsys.readouterr().out.startswith("mojo_launches.vector_add: not done yet")
    assert cell.shown == []
    assert cell.names["vector_add"] == Answer(gap)
    assert not Answer(gap).done


def test_an_exercise_without_a_gap_is_a_program_like_any_other(cell):
    assert cell("--no-run --exercise mojo_launches.vector_add").count("st.global") == 1
    assert cell.names["vector_add"] == Answer(programs.VECTOR_ADD)


def test_a_program_that_is_wrong_on_purpose_is_explained_and_the_notebook_goes_on(cell):
    result = cell("--wrong --as wrong", programs.UNBOUND)
    assert (result.refused, result.line, result.compiled) == ("mojo-unbound-kernel", 13, False)
    bundle = result._repr_mimebundle_()
    assert "Refused, as it should be" in bundle["text/plain"]
    assert "Change: bind them first" in bundle["text/html"]
    with pytest.raises(MojoError, match="no kernels"):
        result.count("ld.global")


def test_a_program_that_a_reader_has_mended_says_so(cell):
    result = cell("--wrong", programs.BOUND)
    assert (result.refused, result.compiled) == ("", True)
    assert "nothing is wrong with this program any more" in repr(result)


def test_a_program_without_kernels_runs_on_the_cpu(cell):
    source = "def main() raises:\n    print(3 + 4)  # of the tests\n"
    result = cell("--as seven", source, on_cpu=True)
    assert result.printed == ["7"]
    assert cell.names["seven"] is result
    assert re.search(r"Output \[(run|record): CPU", repr(result))


@pytest.mark.parametrize("line", ["--arch sm_80", "--what", "--expect ld.global", "--as 1st"])
def test_options_that_do_not_exist_are_named(cell, line):
    with pytest.raises(OptionError, match=r"sm_90a|--expect|spill_bytes|no name"):
        cell(line)


def test_the_display_is_the_same_at_every_run(cell):
    assert repr(cell("--no-run")) == repr(cell("--no-run"))
