"""What JAX's debugging variables print of a kernel, on any machine, and how to read two of them.

    print(dump("PTXAS", kernel, x))          # as with MOSAIC_GPU_DUMP_PTXAS=1 on a GPU
    control_codes(dump("SASS_CTRL", kernel, x))

The kernel is compiled in the worker of `compile_for`, with that one variable set, and what the
process prints meanwhile is the dump. Where the compiler does not run, the dump of a kernel of the
course comes from a recording.

Sources: reference page, "Debugging"; the variables themselves are in jaxlib. Control codes:
S. Gray, maxas, "Control Codes"; Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking" (2018), section 2.1. NVIDIA documents none of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import importlib.resources
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from course_lib.compiler import api, cache, child, recordings, requests, toolchain
from course_lib.compiler.errors import CompileError, ToolchainMissing
from course_lib.compiler.targets import Target
from course_lib.diagnostics import CourseError
from course_lib.workers import WorkerDied, WorkerTimeout

VARIABLES = {
    "CONSTRAINT_SYSTEM": "what layout inference has to solve",
    "RESOURCES": "scratch memory and barriers that the kernel asks for",
    "MLIR_PASSES": "the program after each pass of the compiler",
    "PTX": "the PTX that LLVM wrote",
    "PTXAS": "what ptxas says: registers, barriers, spills",
    "SASS": "the machine code",
    "SASS_CTRL": "the machine code, with its control codes",
}
"""The variables, without MOSAIC_GPU_DUMP_, in the order in which a kernel meets them."""

_PREFIX = "MOSAIC_GPU_DUMP_"
_TIMEOUT_S = 120.0
_UNIQUE = re.compile(r"_\d+(_mosaic_gpu)")
_TEMPORARY = re.compile(r"\S*/tempfile-[\w.-]+")
_CONTROL = re.compile(
    r"^\s*([\d,-]+):([\d-]):([\d-]):([Y-]):(\d+)\s+/\*([0-9a-f]+)\*/\s+(.*?)\s*;?\s*$"
)
_SUFFIX = ".txt.gz"


def dump(
    variable: str,
    function: Callable[..., Any],
    *args: Any,
    arch: str = "sm_90a",
    timeout_s: float = _TIMEOUT_S,
) -> str:
    """What `MOSAIC_GPU_DUMP_<variable>=1` prints while `function(*args)` is compiled.

    Args:
      variable: one of `VARIABLES`; "" for what is printed without any (`plgpu.print_layout`).
      function: a function of arrays that calls kernels of Mosaic GPU.
      *args: arrays, or `jax.ShapeDtypeStruct`s.
      arch: the architecture, as for `compile_for`.
      timeout_s: seconds after which the compiler is stopped.

    Raises:
      CourseError: there is no such variable.
      CompileError: it does not compile.
      ToolchainMissing: there is no compiler here, and no recorded dump of this call.
    """
    if variable not in (*VARIABLES, ""):
        raise CourseError(
            f'There is no variable "{variable}" here. Known: {", ".join(VARIABLES)}; in front of '
            f"each stands {_PREFIX}."
        )
    target = api.targets.get(arch)
    try:
        tools = toolchain.find()
        if variable.startswith("SASS") and tools.nvdisasm is None:
            raise ToolchainMissing("There is no `nvdisasm` on this machine, and SASS needs it.")
    except ToolchainMissing as missing:
        return _recorded(variable, function, args, arch, missing)
    request = requests.prepare(function, args)
    key = hashlib.sha256(f"{variable}\0{request.key(arch, tools.version)}".encode()).hexdigest()
    if (text := cache.load(key)) is None:
        printed = _ask(variable, request, target, tools, timeout_s)
        if variable and not printed.strip():  # Mosaic looks for nvdisasm beside its own ptxas
            why = ToolchainMissing(f"{_PREFIX}{variable} printed nothing: no `nvdisasm`?")
            return _recorded(variable, function, args, arch, why)
        text = json.dumps(printed, ensure_ascii=False)
        cache.store(key, text)
    return str(json.loads(requests.local(text, f"ipykernel_{os.getpid()}")))


def _ask(
    variable: str,
    request: requests.Request,
    target: Target,
    tools: toolchain.Toolchain,
    timeout_s: float,
) -> str:
    worker = api._worker(target.arch, tools)
    call = (dump_kernel, variable, request.payload, target, os.path.dirname(tools.nvdisasm or ""))
    try:
        answer = worker.call(*call, timeout_s=timeout_s)
    except (WorkerDied, WorkerTimeout) as error:
        raise CompileError(f"The compiler gave no answer. {error}") from None
    if "failure" in answer:
        raise api._failed(answer["failure"], request, target)
    return requests.portable(answer["text"])


# ---- the worker's side ----


def dump_kernel(variable: str, payload: bytes, target: Target, tools: str) -> dict[str, Any]:
    """In the compiler's process: `{"text": ...}`, or `{"failure": ...}` as `child` has it.

    `tools` is the folder of `nvdisasm`, which Mosaic looks for on the PATH.
    """
    said = child.Stderr()
    if tools and tools not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] += os.pathsep + tools
    try:
        with _printed(variable) as collected:
            _compile(payload, target)
    except Exception as error:
        return {"failure": child.describe(error, said.since())}
    return {"text": _the_same_each_time(collected[0])}


def _compile(payload: bytes, target: Target) -> None:
    import jax

    from course_lib.compiler import jax_internals

    function, args = child.unpickled(payload)
    device = child._device(target)
    sharding = jax.sharding.SingleDeviceSharding(device)
    args = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), args)
    with (
        jax.default_device(device),
        jax_internals.smem_limit(target.smem_bytes),
        jax_internals.watch_lowering() as kernels,
    ):
        traced = jax.jit(lambda *a: function(*a)).trace(*args)
        lowered = traced.lower(lowering_platforms=("cuda",))
        if not kernels:
            raise child.NoKernel
        lowered.compile()


@contextlib.contextmanager
def _printed(variable: str) -> Iterator[list[str]]:
    """Sets the variable and collects what the process prints, C++ included."""
    collected: list[str] = []
    sys.stdout.flush()
    stdout = os.dup(1)
    with tempfile.TemporaryFile() as file:
        if variable:
            os.environ[_PREFIX + variable] = "1"
        os.dup2(file.fileno(), 1)
        try:
            yield collected
        finally:
            sys.stdout.flush()
            os.dup2(stdout, 1)
            os.close(stdout)
            os.environ.pop(_PREFIX + variable, None)
            file.seek(0)
            collected.append(file.read().decode(errors="replace"))


def _the_same_each_time(text: str) -> str:
    """Without the names of temporary files, and the number that makes an entry unique."""
    return _UNIQUE.sub(r"\1", _TEMPORARY.sub("kernel.ptx", text))


# ---- control codes ----


@dataclasses.dataclass(frozen=True)
class Control:
    """One machine instruction with what the assembler told the hardware about it.

    The hardware does not look whether an instruction's operands are there. Six counters per warp
    ("scoreboards", 0 to 5) and a number of cycles say when the next one may go.

    Attributes:
      waits: the scoreboards that have to be clear before it is issued.
      reads: the scoreboard that it clears once its operands are read, or None.
      writes: the scoreboard that it clears once its result is there, or None.
      yields: what the assembler marked with Y, a hint to the scheduler about its next warp.
      stall: cycles until this warp may issue its next instruction.
      address: where it is, in bytes.
      text: the instruction.
    """

    waits: frozenset[int]
    reads: int | None
    writes: int | None
    yields: bool
    stall: int
    address: int
    text: str

    @property
    def opcode(self) -> str:
        """Its name, without the predicate in front."""
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split(None, 1)[0]

    def __str__(self) -> str:
        waits = ",".join(map(str, sorted(self.waits))) or "-"
        marks = (str(x) if x is not None else "-" for x in (self.reads, self.writes))
        hint = "Y" if self.yields else "-"
        return f"{waits:>5}:{':'.join(marks)}:{hint}:{self.stall:<2}  {self.text}"


def control_codes(text: str) -> list[Control]:
    """The instructions of a SASS_CTRL dump, in order."""
    return [_control(m) for line in text.splitlines() if (m := _CONTROL.match(line))]


def _control(match: re.Match[str]) -> Control:
    waits, reads, writes, yields, stall, address, text = match.groups()
    return Control(
        waits=frozenset(int(n) for n in re.findall(r"\d", waits)),
        reads=int(reads) if reads != "-" else None,
        writes=int(writes) if writes != "-" else None,
        yields=yields == "Y",
        stall=int(stall),
        address=int(address, 16),
        text=text,
    )


# ---- recordings ----


def described(variable: str, call: str, arch: str) -> str:
    """The file of a recorded dump."""
    digest = hashlib.sha256(f"{variable}\0{call}\0{arch}".encode()).hexdigest()[:8]
    return f"{call.partition('(')[0]}-{variable or 'plain'}-{arch}-{digest}{_SUFFIX}"


def _recorded(
    variable: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    arch: str,
    why: ToolchainMissing,
) -> str:
    call = recordings.describe(function, args)
    file = _folder() / described(variable, call, arch) if call else None
    if file is None or not file.is_file():
        raise why
    text = str(json.loads(gzip.decompress(file.read_bytes()))["text"])
    return requests.local(text, f"ipykernel_{os.getpid()}")


def _folder() -> Path:
    return Path(str(importlib.resources.files(__package__))) / "recorded_dumps"


RECORDED = (
    ("debugging:double", ("float32[256]",), tuple(VARIABLES)),
    ("debugging:softmax_whole", ("float32[2, 128, 512]",), ("PTXAS",)),
    ("debugging:layouts", ("float32[64, 64]",), ("",)),
    ("debugging:talkative", ("float32[4, 2, 128]",), ("",)),
)
"""What the chapter shows of the course's own kernels, for machines without the compiler."""


def main() -> None:
    """Records what `RECORDED` names: `python -m course_lib.compiler.dumps`."""
    from course_lib.compiler import record

    tools = toolchain.find()
    target = api.targets.get("sm_90a")
    _folder().mkdir(exist_ok=True)
    made = set()
    for name, arrays, variables in RECORDED:
        call = record.Call(name, arrays, (target.arch,))
        function, args = call.load()
        words = recordings.describe(function, args)
        assert words is not None
        request = requests.prepare(function, args)
        for variable in variables:
            text = _ask(variable, request, target, tools, _TIMEOUT_S)
            data = {
                "call": words,
                "made_with": tools.version,
                "source": record.source_digest(call),
                "text": text,
            }
            file = _folder() / described(variable, words, target.arch)
            file.write_bytes(gzip.compress(json.dumps(data, sort_keys=True).encode(), mtime=0))
            made.add(file.name)
            print(file.name)
    for file in _folder().glob(f"*{_SUFFIX}"):
        if file.name not in made:
            file.unlink()


if __name__ == "__main__":
    main()
