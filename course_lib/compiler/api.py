"""`compile_for`: from a function to a `Compiled`, through the cache and the worker."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from course_lib.compiler import cache, child, recordings, requests, targets, toolchain
from course_lib.compiler.compiled import Compiled, from_data
from course_lib.compiler.errors import CompileError, ToolchainMissing
from course_lib.compiler.expectations import expectations
from course_lib.compiler.targets import Target
from course_lib.compiler.toolchain import Toolchain
from course_lib.diagnostics import clinic, locate
from course_lib.workers import Worker, WorkerDied, WorkerTimeout

DEFAULT_TIMEOUT_S = 120.0
_MEMORY_ENTRIES = 64
_workers: dict[str, Worker] = {}
_memory: dict[str, str] = {}
_lock = threading.Lock()


def compile_for(
    function: Callable[..., Any],
    *args: Any,
    arch: str = "sm_90a",
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Compiled:
    """Compiles the kernels that `function(*args)` calls; runs nothing and needs no GPU.

    Args:
      function: a function of arrays that calls kernels of Mosaic GPU.
      *args: arrays, or `jax.ShapeDtypeStruct`s, as only shapes and dtypes matter.
      arch: "sm_90a" (Hopper), "sm_100a" (Blackwell), "sm_89" or "sm_120a".
      timeout_s: seconds after which the compiler is stopped.

    Returns:
      PTX, SASS, resources, layouts and a view of them.

    Raises:
      CompileError: it does not compile, in plain words with the compiler's own below.
      ToolchainMissing: there is no compiler here, and no recorded listing of this call.
    """
    targets.get(arch)  # refuses unknown names first
    try:
        tools = _find_toolchain(os.environ.get("COURSE_TOOLCHAIN"))
    except ToolchainMissing as missing:
        return recordings.find(function, args, arch=arch, why=missing)
    request = requests.prepare(function, args)
    key = request.key(arch, tools.version)
    text = _memory.get(key) or cache.load(key)
    if text is None:
        text = requests.portable(
            cache.dumps(answer(request, arch=arch, tools=tools, timeout_s=timeout_s))
        )
        cache.store(key, text)
    _remember(key, text)
    data = json.loads(requests.local(text, f"ipykernel_{os.getpid()}"))
    return from_data(data, arch=arch, notes=map(_note, data["warnings"]))


def unmet_expectations(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    expected: Mapping[str, Mapping[str, int | str]],
) -> list[str]:
    """Compiles for each architecture that something is expected of.

    Args:
      function: a function of arrays that calls kernels.
      args: its arguments, arrays or `jax.ShapeDtypeStruct`s.
      expected: for an architecture what `expectations` takes:
        `{"sm_90a": {"wgmma.mma_async": ">=4", "spill_bytes": 0}}`.

    Returns:
      a sentence for each expectation that is not met, or for why it does not compile.

    Raises:
      ToolchainMissing: there is no compiler here, so nothing can be said.
    """
    sentences = []
    for arch, conditions in expected.items():
        try:
            sentences += expectations(compile_for(function, *args, arch=arch), conditions)
        except ToolchainMissing:
            raise
        except CompileError as error:
            sentences.append(f"It does not compile for {arch}. {error}")
    return sentences


def answer(
    request: requests.Request,
    *,
    arch: str,
    tools: Toolchain,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> dict[str, Any]:
    """Asks the worker, past all caches; `compiled.from_data` makes a `Compiled` of the answer.

    Raises:
      CompileError: it does not compile.
    """
    target = targets.get(arch)
    worker = _worker(arch, tools)
    try:
        data = worker.call(
            child.compile_kernel, request.payload, target, tools, timeout_s=timeout_s
        )
    except WorkerDied as death:
        raise _died(death, request, target) from None
    except WorkerTimeout:
        raise CompileError(
            f"The compiler did not finish within {timeout_s:g} s and was stopped. A loop that "
            "Python unrolls (`for i in range(...)`) makes long programs: use pl.loop or "
            "lax.fori_loop, or give it more time with timeout_s."
        ) from None
    if "failure" in data:
        raise _failed(data["failure"], request, target)
    return {**data, "buffers": [(b.name, b.array) for b in request.buffers]}


@functools.lru_cache(maxsize=4)
def _find_toolchain(_folder: str | None) -> Toolchain:
    return toolchain.find()


def _worker(arch: str, tools: Toolchain) -> Worker:
    """The process that compiles for `arch`; it is started, or started again, when it is called."""
    with _lock:
        if arch not in _workers:
            path = os.pathsep.join([os.path.dirname(tools.ptxas), os.environ.get("PATH", "")])
            _workers[arch] = Worker(
                f"compiler {arch}",
                env={
                    "JAX_PLATFORMS": "cpu",  # the plugin must not look for a driver
                    "CUDA_VISIBLE_DEVICES": "",
                    "JAX_TRACEBACK_FILTERING": "off",  # the clinic reads JAX's frames too
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    "PATH": path,  # XLA takes the first ptxas
                },
                path=tools.path,
            )
        return _workers[arch]


def _remember(key: str, text: str) -> None:
    with _lock:
        _memory[key] = text
        while len(_memory) > _MEMORY_ENTRIES:
            del _memory[next(iter(_memory))]


def _failed(failure: Mapping[str, Any], request: requests.Request, target: Target) -> CompileError:
    """Plain words for what JAX or a tool raised in the worker."""
    kind, message = failure["type"], failure["message"]
    if kind == child.NoKernel.__name__:
        return CompileError(
            "There is no Mosaic GPU kernel in this function: plgpu.kernel (or pl.kernel with a "
            "plgpu.Mesh) makes one. XLA's own code for jnp operations is not shown here."
        )
    frames = [tuple(f) for f in failure["frames"]]
    places = request.places_of(failure)
    advice = clinic.consult(message, type_name=kind, frames=frames, places=places)
    if advice is None:
        where = clinic.innermost_reader_frame(frames) or (
            locate(*places[0][:2]) if places else None
        )
        place = f" (at {where})" if where else ""
        return CompileError(
            f"The kernel does not compile for {target.arch}{place}. "
            f"{kind}: {clinic.shorten(message)}",
            original=message,
            where=where,
        )
    words = str(advice)
    if advice.entry == "smem-capacity":
        words = f"{words}\nIt asks for: {request.smem_in_words()}."
    return CompileError(words, original=message, where=advice.where)


def _died(death: WorkerDied, request: requests.Request, target: Target) -> CompileError:
    """Plain words for a compiler that ended its process; LLVM does that on some errors."""
    words = death.stderr.strip()
    places = request.places("tcgen05") if "tcgen05" in words else []
    if advice := clinic.consult(words, places=places):
        return CompileError(str(advice), original=words, where=advice.where)
    last = clinic.shorten(words[-2000:]) or "It left no message."
    return CompileError(
        f"The compiler for {target.arch} ended without an answer (status {death.returncode}); the "
        f"next call starts a new one. Its last words: {last}",
        original=words,
    )


def _note(warning: str) -> str:
    advice = clinic.consult(warning)
    return f"{advice.means} Change: {advice.change}" if advice else warning


def close_workers() -> None:
    """Ends the compiler's processes; the next call starts them again."""
    with _lock:
        for worker in _workers.values():
            worker.close()
