"""Recorded listings belong to today's kernels, and are found where there is no compiler."""

import functools

import jax
import jax.numpy as jnp
import pytest

from course_lib.compiler import ToolchainMissing, compile_for, record, recordings, requests
from course_lib.kernels import matmul_hopper
from tests.compiler.kernels import scale, spec

AGAIN = "make it anew: python -m course_lib.compiler.record"
SQUARE = (spec(4096, 4096, dtype=jnp.float16),) * 2
each_call = pytest.mark.parametrize("call", record.CALLS, ids=lambda c: c.function)


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_TOOLCHAIN", str(tmp_path))


def recorded(call, arch) -> recordings.Recording:
    function, args = call.load()
    text = recordings.describe(function, args)
    assert text is not None
    found = recordings.load(recordings.file_name(text, arch))
    assert found is not None, AGAIN
    return found


@pytest.mark.two_jax
@each_call
def test_no_recording_is_stale(call):
    for arch in call.archs:
        recording = recorded(call, arch)
        assert recording.source == record.source_digest(call), AGAIN
        if recording.jax == jax.__version__:
            request = requests.prepare(*call.load())
            assert recording.program == record.program_digest(request), AGAIN


@pytest.mark.slow
@each_call
def test_the_compiler_answers_what_is_recorded(call):
    for name, fresh in record.record(call):
        assert recordings.load(name) == fresh, AGAIN


def test_every_recording_is_of_a_call():
    names = set()
    for call in record.CALLS:
        text = recordings.describe(*call.load())
        assert text is not None
        names |= {recordings.file_name(text, arch) for arch in call.archs}
    assert set(recordings.names()) == names, AGAIN


def test_no_recording_names_a_path_of_the_machine_it_was_made_on():
    for name in recordings.names():
        recording = recordings.load(name)
        assert recording is not None
        files = {part.partition('"')[0] for part in recording.answer.split('.file\\t1 \\"')[1:]}
        assert files, name
        assert all(f.startswith("<course>/kernels/") for f in files)


def test_without_a_compiler_the_recording_is_shown(no_compiler):
    code = compile_for(matmul_hopper.matmul, *SQUARE, arch="sm_90a")
    assert code.count("HGMMA") == 8
    assert any("recorded listing" in note and "make toolchain" in note for note in code.notes)
    assert any(p.file == matmul_hopper.__file__ for p in code.source_map)
    assert "plgpu.wgmma" in repr(code.view())


def test_a_recording_equals_what_the_compiler_makes(no_compiler, monkeypatch):
    shown = compile_for(matmul_hopper.matmul, *SQUARE, arch="sm_90a")
    monkeypatch.delenv("COURSE_TOOLCHAIN")
    made = compile_for(matmul_hopper.matmul, *SQUARE, arch="sm_90a")
    assert shown.ptx == made.ptx
    assert shown.layouts == made.layouts


def test_a_call_is_known_however_it_is_wrapped(no_compiler):
    code = compile_for(jax.jit(functools.partial(matmul_hopper.matmul)), *SQUARE, arch="sm_90a")
    assert code.count("HGMMA") == 8


@pytest.mark.parametrize(
    ("function", "args", "arch"),
    [
        (matmul_hopper.matmul, (spec(1024, 1024, dtype=jnp.float16),) * 2, "sm_90a"),
        (matmul_hopper.matmul, SQUARE, "sm_100a"),
        (
            functools.partial(matmul_hopper.matmul, config=matmul_hopper.Config(tile_n=256)),
            SQUARE,
            "sm_90a",
        ),
    ],
)
def test_another_call_of_a_recorded_kernel_says_what_is_recorded(no_compiler, function, args, arch):
    with pytest.raises(ToolchainMissing, match=r"Recorded: matmul_hopper\.matmul\(float16\[4096"):
        compile_for(function, *args, arch=arch)


def test_kernels_of_the_readers_own_are_not_recorded(no_compiler):
    with pytest.raises(ToolchainMissing) as caught:
        compile_for(scale, spec(1024, 128))
    assert "Recorded" not in str(caught.value)
    assert recordings.describe(scale, (spec(1024, 128),)) is None
