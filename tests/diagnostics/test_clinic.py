"""The clinic recognises real messages: each is provoked here by a kernel with that mistake."""

import functools
import linecache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib import simulate
from course_lib.compiler import CompileError, compile_for
from course_lib.diagnostics import Severity, clinic
from tests.diagnostics import sick_kernels
from tests.diagnostics.sick_kernels import SICK, Sick

# Reproduced below: not the compiler's messages, or slow ones.
ELSEWHERE = {"kernel-on-cpu", "acc-beside-smem", "program-id", "layout-not-found"}
each_case = pytest.mark.parametrize("case", SICK, ids=lambda c: c.function.__name__)


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@functools.cache
def provoke(case: Sick) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_for(case.function, *case.args, arch=case.arch)
    return caught.value


@each_case
def test_the_compilers_message_is_answered_in_plain_words(case: Sick):
    error = provoke(case)
    advice = clinic.consult(error.original, type_name=_class_of(error), frames=_frames(case))
    assert advice is not None
    assert advice.entry == case.entry
    assert "\nChange: " in str(error)
    for words in case.says:
        assert words in str(error)


@each_case
def test_the_line_is_named(case: Sick):
    error = provoke(case)
    where = error.where
    assert where is not None
    assert linecache.getline(where.file, where.line).rstrip().endswith("# sick")
    assert f"Where: {where}" in str(error)


@each_case
def test_the_original_message_stays_below(case: Sick):
    error = provoke(case)
    words, _, original = str(error).partition("The original message: ")
    assert words.strip()
    first = clinic.shorten(error.original).splitlines()[:1]
    assert all(line[:200] in original for line in first)


def test_every_entry_is_reproduced():
    assert {e.id for e in clinic.ENTRIES} == {c.entry for c in SICK} | ELSEWHERE
    assert len(clinic.ENTRIES) >= 15


def test_entry_ids_are_unique():
    ids = [e.id for e in clinic.ENTRIES]
    assert len(ids) == len(set(ids))


def test_a_kernel_called_without_a_gpu():
    with pytest.raises(ValueError) as caught:
        sick_kernels.healthy(_normal(128))
    advice = clinic.consult_exception(caught.value)
    assert advice is not None
    assert advice.entry == "kernel-on-cpu"
    assert "run(kernel, x)" in advice.change


def test_an_accumulator_beside_smem_in_interpret_mode():
    a, b = _normal(64, 64).astype(jnp.float16), _normal(64, 64).astype(jnp.float16)
    with (
        plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams()),
        pytest.raises(ValueError) as caught,
    ):
        sick_kernels.acc_beside_smem(a, b)
    advice = clinic.consult_exception(caught.value)
    assert advice is not None
    assert advice.entry == "acc-beside-smem"
    assert advice.where is not None
    assert advice.where.file == sick_kernels.__file__


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_for_layouts_that_does_not_end():
    with pytest.raises(CompileError) as caught:
        compile_for(
            sick_kernels.many_arrays_that_nobody_asks_a_layout_for,
            arch="sm_90a",
            timeout_s=500,  # the search is one of steps, which a busy machine takes longer for
        )
    advice = clinic.consult(caught.value.original, type_name="ValueError")
    assert advice is not None
    assert advice.entry == "layout-not-found"


def test_program_id_compiles_with_a_note():
    code = compile_for(sick_kernels.uses_program_id, sick_kernels.spec(8, 128))
    assert any("lax.axis_index" in note for note in code.notes)


def test_a_message_of_another_kind_gets_no_advice():
    assert clinic.consult("division by zero", type_name="ZeroDivisionError") is None
    # the words of an entry, in an exception of another class
    assert clinic.consult("", type_name="AssertionError") is None
    assert clinic.consult("Attempted boolean conversion of traced array") is None


def test_advice_is_a_finding_too():
    advice = clinic.consult(
        "Mosaic GPU kernel exceeds available shared memory: "
        "smem_bytes=300000 > max_smem_bytes=232448",
        type_name="ValueError",
        places=[("/somewhere/kernel.py", 12, "custom_vmap_call", "")],
    )
    assert advice is not None
    finding = advice.finding("does-not-compile")
    assert finding.rule == "does-not-compile"
    assert finding.severity is Severity.ERROR
    assert "300000" in finding.why
    assert str(finding.location) == "kernel.py:12"
    assert len(str(finding).splitlines()) <= 12


def test_the_model_and_the_checks_say_it_too():
    """`run`, `simulate` and `check` report the same exception as a finding."""
    [finding] = simulate(sick_kernels.unknown_axis, _normal(8, 128)).findings
    assert finding.what.startswith("NameError: Found an unbound axis name: rows")
    assert "grid_names" in finding.fix
    assert str(finding.location).startswith("sick_kernels.py:")
    divides = functools.partial(sick_kernels.on_vector, use=lambda ref: 1 / 0)
    [other] = simulate(divides, _normal(128)).findings
    assert (other.why, other.fix) == ("", "")


def test_shortened_messages_are_the_same_at_every_run():
    message = (
        "ptxas /tmp/tempfile-host-4f3a-1, line 5; error : Instruction 'a' not supported\n"
        "ptxas /tmp/tempfile-host-4f3a-1, line 6; error : Instruction 'a' not supported\n"
        "see /usr/lib/python3/site-packages/jax/_src/core.py:12 and /somewhere/kernel.py:3:4"
    )
    assert clinic.shorten(message) == (
        "ptxas: line 5; error : Instruction 'a' not supported\n"
        "see jax/_src/core.py:12 and kernel.py:3"
    )


def _normal(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng().standard_normal(shape), jnp.float32)


def _class_of(error: CompileError) -> str:
    original = str(error).partition("The original message: ")[2]
    return original.partition(":")[0]


def _frames(case: Sick) -> list[tuple[str, int, str]]:
    """The traceback that tells a message without any text apart from all others."""
    return [("core.py", 1, "transform_type")] if case.entry == "tiling-does-not-divide" else []
