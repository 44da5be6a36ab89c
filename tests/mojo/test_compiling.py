"""Mojo programs compile for GPUs that are not there, and say in words why they do not."""

import pytest

from course_lib.compiler import cache
from course_lib.mojo import MojoCompileError, MojoMissing, compile_program, compiling, unmet
from course_lib.mojo.errors import from_compiler
from tests.mojo import programs

# Each wrong program of the guide's warnings with its mended twin.
PAIRS = {
    "mojo-int-argument": (programs.INT_ARGUMENT, programs.VECTOR_ADD),
    "mojo-unbound-kernel": (programs.UNBOUND, programs.BOUND),
    "mojo-shuffle-offset": (programs.INT_OFFSET, programs.UINT32_OFFSET),
}


@pytest.mark.parametrize("arch", compiling.ARCHITECTURES)
def test_a_kernel_s_listing_and_what_it_needs(arch):
    program = compile_program(programs.VECTOR_ADD, arch=arch)
    (kernel,) = program.kernels
    assert kernel.name == "add_kernel"
    assert f".target {arch}" in kernel.ptx
    assert (program.count("ld.global"), program.count("st.global")) == (2, 1)
    assert program.count("bar.sync") == 0
    assert 0 < kernel.registers < 64
    assert (kernel.spill_bytes, kernel.smem_bytes) == (0, 0)
    assert unmet(program, ["ld.global=2", "spill_bytes=0", "registers<64"]) == []


def test_expectations_that_are_not_met_are_sentences():
    program = compile_program(programs.VECTOR_ADD)
    assert unmet(program, ["ld.global>=3", "bar.sync=0"]) == [
        "Compiled for sm_90a it has 2 ld.global instructions; expected at least 3."
    ]


@pytest.mark.parametrize("entry", PAIRS)
def test_the_guide_s_mistakes_are_explained_and_their_twins_compile(entry):
    wrong, right = PAIRS[entry]
    with pytest.raises(MojoCompileError) as caught:
        compile_program(wrong)
    assert caught.value.entry == entry
    assert caught.value.line > 0
    message = str(caught.value)
    assert wrong.splitlines()[caught.value.line - 1].strip() in message
    assert "Change: " in message
    assert len(compile_program(right).kernels) == 1


def test_the_missing_rank_is_explained_where_a_compiler_asks_for_it():
    """This Mojo accepts the program; the guide's message is that of another version."""
    said = (
        "/x/program.mojo:8:6: error: invalid call to '__getitem__': lacking evidence to prove "
        "correctness\n    a[thread_idx.y, thread_idx.x] = 1\n"
    )
    error = from_compiler(said, source=programs.NO_RANK, program="program.mojo")
    assert (error.entry, error.line) == ("mojo-flat-rank", 8)
    assert "comptime assert tensor.flat_rank" in str(error)
    for text in (programs.NO_RANK, programs.WITH_RANK):
        assert len(compile_program(text).kernels) == 1


def test_what_the_clinic_does_not_know_names_the_line_and_mojo_s_words():
    wrong = programs.VECTOR_ADD.replace("var tid = global_idx.x", "var tid = global_idx.w")
    with pytest.raises(MojoCompileError) as caught:
        compile_program(wrong)
    assert caught.value.line == wrong.splitlines().index("    var tid = global_idx.w") + 1
    assert "Mojo says: " in str(caught.value)
    assert caught.value.entry == ""


def test_the_same_program_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    first = {"arch": "sm_90a", "kernels": []}
    cache.store(compiling.program_key("x", "sm_90a"), cache.dumps(first))
    monkeypatch.setattr(compiling, "_mojo", lambda *args: pytest.fail("it compiles"))
    assert compile_program("x").kernels == ()


def test_without_mojo_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_MOJO", str(tmp_path / "none"))
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MojoMissing, match="make mojo"):
        compile_program(programs.VECTOR_ADD + "# of nobody's record\n")


def test_a_kernel_that_is_not_there_names_those_that_are():
    with pytest.raises(KeyError, match="it has: add_kernel"):
        compile_program(programs.VECTOR_ADD).kernel("sub_kernel")
