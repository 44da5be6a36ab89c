"""`compile_for`: what it refuses and how, its workers, and what it hands back."""

import functools
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.compiler import CompileError, api, close_workers, compile_for
from course_lib.diagnostics import CourseError
from course_lib.kernels import matmul_blackwell, matmul_hopper
from tests.compiler import kernels
from tests.compiler.kernels import scale, scale_through_smem, spec
from tests.diagnostics.sick_kernels import too_much_smem

X = spec(1024, 128)
SQUARE = (spec(1024, 1024, dtype=jnp.float16),) * 2


def refusal(function, *args, **options) -> str:
    with pytest.raises(CompileError) as caught:
        compile_for(function, *args, **options)
    assert isinstance(caught.value, CourseError)  # a notebook shows its sentences only
    return str(caught.value)


# --- what it refuses ---------------------------------------------------------------------------


def test_a_hopper_kernel_on_blackwell():
    message = refusal(matmul_hopper.matmul, *SQUARE, arch="sm_100a")
    assert "Hopper's tensor-core instruction" in message
    assert "compile for sm_90a" in message
    assert "matmul_hopper.py:" in message


def test_a_blackwell_kernel_on_hopper_aborts_the_worker_and_not_the_notebook():
    # LLVM ends the process over it, but for older versions, which say so.
    message = refusal(matmul_blackwell.matmul, *SQUARE, arch="sm_90a")
    assert "compile for sm_100a" in message
    assert "matmul_blackwell.py:" in message
    assert "LLVM ERROR" in message or "not supported on sm_90a" in message
    assert compile_for(scale, X, arch="sm_90a").count("LDG")


def test_more_smem_than_there_is():
    message = refusal(too_much_smem, spec(256, 256))
    assert "262152 bytes of SMEM and may have at most 232448" in message
    assert "x_smem float32[256, 256] (262144 bytes)" in message


def test_less_smem_on_smaller_cards():
    big = spec(256, 128)
    assert compile_for(scale_through_smem, big, arch="sm_90a").smem_bytes > 131072
    assert "may have at most 101376" in refusal(scale_through_smem, big, arch="sm_120a")


def test_an_error_in_the_kernels_python():
    def kernel(x):
        return scale(x) + undefined_name  # noqa: F821

    message = refusal(kernel, X)
    assert "NameError: name 'undefined_name' is not defined" in message
    assert "test_compile_for.py:" in message


_NAMES_ONLY_PALLAS = """
import jax, numpy as np
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
from course_lib import compile_for

REGULAR = plgpu.SemaphoreType.REGULAR

def relay(x_gmem, y_gmem):
    turn = pl.get_global(REGULAR)
    block = jax.lax.axis_index("block")
    pl.when(block > 0)(lambda: pl.semaphore_wait(turn, value=block, decrement=False))
    y_gmem[block] = x_gmem[block] + 1
    pl.semaphore_signal(turn)
    pl.when(block == 1)(lambda: pl.semaphore_wait(turn, value=2))

out = jax.ShapeDtypeStruct((2, 128), np.float32)
kernel = plgpu.kernel(relay, out_type=out, grid=(2,), grid_names=("block",))
print(compile_for(kernel, out).count("STG"))
"""


def test_a_kernel_that_names_no_operation_of_plgpu(tmp_path):
    # In a process of its own, whose compiler has not met another kernel yet.
    done = subprocess.run(
        [sys.executable, "-c", _NAMES_ONLY_PALLAS],
        env={**os.environ, "COURSE_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1


def test_a_kernel_that_is_not_written_yet():
    def stub(x):
        raise NotImplementedError("not done yet")

    assert "not done yet" in refusal(stub, X)


def test_a_function_without_a_kernel():
    assert "no Mosaic GPU kernel" in refusal(kernels.no_kernel, X)


@pytest.mark.parametrize("arch", ["sm_90", "hopper", "sm_70"])
def test_an_unknown_architecture(arch):
    message = refusal(scale, X, arch=arch)
    assert f'arch is "{arch}"' in message
    assert '"sm_90a"' in message
    assert ("Did you mean" in message) == (arch == "sm_90")


def test_arguments_that_are_no_arrays():
    assert "functools.partial" in refusal(scale, object())


def test_a_function_that_cannot_travel():
    lock = threading.Lock()

    def kernel(x):
        with lock:
            return scale(x)

    assert "cannot be sent to the compiler's process" in refusal(kernel, X)


def test_a_compilation_that_takes_too_long():
    message = refusal(functools.partial(scale, factor=0.125), X, timeout_s=0.001)
    assert "did not finish within 0.001 s" in message
    assert compile_for(functools.partial(scale, factor=0.125), X).registers


# --- its workers -------------------------------------------------------------------------------


def test_a_killed_worker_is_replaced():
    compile_for(functools.partial(scale, factor=3.25), X)
    pid = api._workers["sm_90a"].pid
    if pid is None:  # everything was in the cache
        pytest.fail("no worker was started for a new kernel")
    os.kill(pid, signal.SIGKILL)
    code = compile_for(functools.partial(scale, factor=3.5), X)
    assert code.registers
    assert api._workers["sm_90a"].pid not in (None, pid)


def test_a_repeated_question_needs_no_worker():
    first = compile_for(functools.partial(scale, factor=4.25), X)
    close_workers()
    assert repr(compile_for(functools.partial(scale, factor=4.25), X)) == repr(first)
    assert api._workers["sm_90a"].pid is None
    api._memory.clear()  # as another notebook
    again = compile_for(functools.partial(scale, factor=4.25), X)
    assert (again.ptx, again.sass) == (first.ptx, first.sass)
    assert api._workers["sm_90a"].pid is None


def test_calls_from_several_threads():
    factors = [5.25, 6.25, 7.25]
    codes: dict[tuple[float, str], str] = {}

    def work(factor, arch):
        codes[factor, arch] = compile_for(functools.partial(scale, factor=factor), X, arch=arch).ptx

    threads = [
        threading.Thread(target=work, args=(f, a)) for f in factors for a in ("sm_90a", "sm_100a")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=200)
    assert len(codes) == 6
    for (factor, arch), ptx in codes.items():
        assert f".target {arch}" in ptx
        assert f"0f{int(jnp.float32(factor).view(jnp.uint32)):08X}" in ptx


def test_code_of_xlas_own_around_the_kernel():
    """XLA compiles the rest too; and it has met the kernel before, and must show it again."""
    alone = compile_for(scale, X)
    [kernel] = compile_for(lambda x: jnp.sort(scale(x) @ x.T * 2), X).kernels
    assert kernel.ptx.replace("test_compile_for.py", "kernels.py") == alone.kernels[0].ptx


def test_the_kernel_as_it_is_in_this_process(tmp_path, monkeypatch):
    """A module that was edited and reloaded: the worker has never seen the new text."""
    file = tmp_path / "edited_kernel.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    text = textwrap.dedent("""
        from tests.compiler.kernels import scale
        FACTOR = 2.0
        def kernel(x):
            return scale(x, factor=FACTOR)
    """)
    file.write_text(text)
    module = importlib.import_module("edited_kernel")
    before = compile_for(module.kernel, X).ptx
    module.FACTOR = 1.5  # what a reload does, without waiting for the file's time to change
    file.write_text("raise RuntimeError('the worker must not read this')")
    after = compile_for(module.kernel, X).ptx
    del sys.modules["edited_kernel"]
    assert "0f3FC00000" not in before
    assert "0f3FC00000" in after  # 1.5


# --- what it hands back ------------------------------------------------------------------------


def test_several_kernels_in_one_function():
    code = compile_for(kernels.twice, spec(128, 128))
    first, second = code.kernels
    assert first.smem_bytes == 0
    assert second.smem_bytes > 0
    assert code.smem_bytes == second.smem_bytes
    assert code.registers == max(first.registers, second.registers)
    # lines of the joined listing are those of the instructions
    lines = code.ptx.splitlines()
    for i in code.instructions("cp.async.bulk"):
        assert i.opcode in " ".join(lines[i.line - 1 : i.line + 2])
    sass = code.sass.splitlines()
    for i in code.instructions("UBLKCP"):
        assert i.opcode in sass[i.line - 1]


def test_spills_are_counted():
    code = compile_for(kernels.too_many_values, spec(512, 128))
    assert code.spill_bytes > 0
    assert any(f"{code.spill_bytes} bytes per lane" in note for note in code.notes)
    assert compile_for(scale, X).spill_bytes == 0


def test_clusters_that_no_card_launches_are_noted():
    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...]

    def launch(x, blocks):
        names = dict(cluster=(blocks,), cluster_names=("cluster",))
        return plgpu.kernel(body, out_type=spec(128), **names)(x)

    code = compile_for(functools.partial(launch, blocks=16), spec(128))
    assert any("clusters of 16 blocks" in note for note in code.notes)
    assert compile_for(functools.partial(launch, blocks=8), spec(128)).notes == ()


def test_a_jitted_function():
    assert compile_for(jax.jit(scale), X).ptx == compile_for(scale, X).ptx


def test_the_source_map_leads_from_python_to_the_listings():
    code = compile_for(matmul_hopper.matmul, *SQUARE)
    text = Path(matmul_hopper.__file__).read_text().splitlines()
    [line] = [n for n, t in enumerate(text, 1) if "plgpu.wgmma(acc" in t][:1]
    [place] = [p for p in code.source_map if p.line == line]
    assert str(place) == f"matmul_hopper.py:{line}"
    ptx, sass = code.ptx.splitlines(), code.sass.splitlines()
    assert any("wgmma.mma_async" in ptx[n - 1] for n in code.source_map[place].ptx)
    assert any("HGMMA" in sass[n - 1] for n in code.source_map[place].sass)
    assert any("plgpu.copy_smem_to_gmem" in text[p.line - 1] for p in code.source_map)


def test_layouts_have_the_courses_names():
    layouts = compile_for(matmul_hopper.matmul, *SQUARE).layouts
    buffers = {d.name: d.layout for d in layouts if d.kind == "SMEM"}
    assert buffers == dict.fromkeys(
        ("a_smem", "b_smem", "o_smem"), "tiled (8, 64), swizzled 128 bytes"
    )
    [acc] = [d for d in layouts if d.kind == "registers" and d.name == "wgmma"]
    assert (acc.array, acc.layout) == ("float32[128, 128]", "WGMMA")
    assert acc.where is not None
    assert "WGMMA" in repr(layouts)


def test_tmem_layouts():
    layouts = compile_for(matmul_blackwell.matmul, *SQUARE, arch="sm_100a").layouts
    [acc] = [d for d in layouts if d.kind == "TMEM"]
    assert (acc.name, acc.array, acc.layout) == ("acc_tmem", "float32[128, 128]", "TMEM default")


def test_the_listings_name_no_path_of_this_machine():
    code = compile_for(scale, X)
    assert os.sep + "compiler" not in code.ptx + code.sass
    assert '"kernels.py"' in code.ptx


def test_it_prints_as_a_summary():
    text = repr(compile_for(scale, X))
    assert text.splitlines()[0] == "Compiled for sm_90a"
    assert "grid 8, 128 lanes per block" in text
    assert "0 bytes spilled, 0 bytes of SMEM" in text
