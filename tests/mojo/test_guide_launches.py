"""What the guide says about kernels, tensors and launches, on the Mojo that the lock names."""

from __future__ import annotations

import functools

import pytest

from course_lib.mojo import MojoCompileError, Program, compile_program, run_on_cpu, toolchain
from tests.mojo import guide_launches as guide
from tests.mojo import programs


@functools.cache
def works() -> Program:
    """The guide's snippets that work, a kernel for each, in one program."""
    return compile_program(guide.WORKS)


@functools.cache
def printed() -> list[list[str]]:
    """What the program for the CPU prints, line by line in words."""
    return [line.split() for line in run_on_cpu(guide.ON_CPU).text.splitlines() if line]


def refused(source: str) -> MojoCompileError:
    with pytest.raises(MojoCompileError) as caught:
        compile_program(source)
    return caught.value


def stored(arch: str) -> int:
    """The number that the kernel of `TARGETS` stores: a bit for each question it says yes to."""
    (kernel,) = compile_program(guide.TARGETS, arch=arch).kernels
    (store,) = (i for i in kernel.instructions if i.opcode.startswith("st.global"))
    return int(str(store).rstrip(";").split()[-1])


def test_the_imports_are_where_the_guide_says():
    assert len(works().kernels) == 7


def test_a_kernel_is_a_plain_function_bound_to_its_layout():
    assert works().kernel("parametric").count("ld.global") == 1
    assert works().kernel("monomorphic").count("st.global") == 1


@pytest.mark.parametrize(
    ("wrong", "entry", "twin"),
    [
        (programs.INT_ARGUMENT, "mojo-int-argument", programs.VECTOR_ADD),
        (programs.UNBOUND, "mojo-unbound-kernel", programs.BOUND),
    ],
)
def test_an_int_argument_and_an_unbound_kernel_are_refused(wrong, entry, twin):
    assert refused(wrong).entry == entry
    assert compile_program(twin).kernels


def test_a_kernel_must_not_raise():
    assert "raises thin" in str(refused(guide.WRONG_RAISES))
    assert compile_program(guide.QUIET).kernels


def test_the_assertion_of_the_rank_is_no_longer_needed():
    for source in (programs.NO_RANK, programs.WITH_RANK):
        assert compile_program(source).count("st.global") == 1
    assert printed()[1][0] == "2.0"  # t[1, 0] of 3 x 2, without the assertion


def test_layouts_of_fixed_and_of_run_time_sizes():
    assert printed()[0][3:] == ["((3,", "2):(2,", "1))"] * 2
    assert "ComptimeInt" in str(refused(guide.RUNTIME_IDX))


def test_indexing_dimensions_and_casts():
    assert printed()[0][:3] == ["2.0", "5", "3"]
    assert works().kernel("two_dimensions").count("setp") >= 1
    assert works().kernel("three_dimensions").count("st.global") == 1


def test_elements_of_different_layouts_multiply_without_rebind_and_with_it():
    assert printed()[1][1] == "3.0"  # u[1] * t[1, 1]
    rebinding = works().kernel("rebinding")
    assert rebinding.count("mul") + rebinding.count("fma") == 1
    assert works().kernel("same_layout").count("ld.global") == 2


def test_indices_are_ints_of_a_lane_its_block_and_the_launch():
    ptx = works().kernel("monomorphic").ptx
    assert all(name in ptx for name in ("%ctaid.x", "%ntid.x", "%tid.x"))
    assert "%ctaid.y" in works().kernel("two_dimensions").ptx
    lanes = works().kernel("lanes")
    assert "%laneid" in lanes.ptx
    assert lanes.count("st.global") == 1


@pytest.mark.parametrize(
    ("arch", "answer"),
    [("sm_90a", 1 + 2 + 32 + 64), ("sm_100a", 1 + 2 + 64 + 128)],
)
def test_a_kernel_knows_what_it_is_compiled_for(arch, answer):
    assert stored(arch) == answer


def test_the_program_around_it_is_no_gpu_code():
    assert printed()[1][2:] == ["False", "False"]


def test_what_the_machine_has_is_asked_by_one_name_only():
    assert "does not contain 'has_nvidia_gpu_accelerator'" in str(refused(guide.HAS_NVIDIA))
    assert compile_program(guide.ARCHITECTURE).kernels == ()


def test_the_whole_example_of_one_dimension():
    (kernel,) = compile_program(programs.VECTOR_ADD).kernels
    assert (kernel.count("ld.global"), kernel.count("st.global"), kernel.count("bra")) == (2, 1, 1)


def test_mojo_says_which_version_it_is():
    assert toolchain.find().version == toolchain.locked_version()
