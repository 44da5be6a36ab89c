"""What is asked of the compiler: a function, its arguments, and a key that tells it from others."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import numpy as np

import course_lib
from course_lib.compiler.errors import CompileError
from course_lib.diagnostics import clinic
from course_lib.diagnostics.locations import is_own_code
from course_lib.workers import pickling

# Everything that decides what the worker answers; a change of it must change every key.
_WORKER_SOURCES = ("child.py", "jax_internals.py", "targets.py")
_JAX = str(Path(jax.__file__).parent)
_COURSE = str(Path(course_lib.__file__).resolve().parent)
_PROCESS = re.compile(r"ipykernel_\d+")
_FUNCTION = re.compile(r"<function (\S+) at 0x")
_registering = threading.Lock()
# JAX's own wrapper; its address says nothing about the kernel.
_HARMLESS = "kernel.<locals>._vmap_rule"


@dataclasses.dataclass(frozen=True)
class Buffer:
    """Memory that a kernel asks for.

    Attributes:
      name: its name in the kernel.
      space: "smem", "tmem", ...
      array: dtype and shape ("float16[4, 128, 64]"), as `LayoutDecision.array`.
      size_bytes: its size in bytes, 0 for barriers.
    """

    name: str
    space: str
    array: str
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a traced program, and the line that asks for it.

    Attributes:
      name: what JAX calls it ("wgmma").
      file: the file of the innermost line that is not JAX's own, "" if there is none.
      line: that line, from 1.
    """

    name: str
    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class Request:
    """A function and arguments, ready to travel.

    Attributes:
      payload: both, pickled.
      program: the traced program as text, with the lines it comes from; equal programs are
        equal texts, in every process.
      operations: its operations and the lines they are written on.
      buffers: the memory that its kernels ask for, in order of allocation.
    """

    payload: bytes
    program: str
    operations: tuple[Operation, ...]
    buffers: tuple[Buffer, ...]

    def places(self, *operations: str) -> list[tuple[str, int, str, str]]:
        """Where operations whose names start so are written, as the clinic takes places."""
        named = (o for o in self.operations if o.file and o.name.startswith(operations))
        found = [(o.file, o.line, o.name, "") for o in named]
        return list(dict.fromkeys(found))

    def key(self, arch: str, toolchain: str) -> str:
        """Names the answer: equal keys have equal answers."""
        parts = (arch, toolchain, jax.__version__, _worker_digest(), self.program)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def prepare(function: Callable[..., Any], args: tuple[Any, ...]) -> Request:
    """Traces and pickles a call.

    Args:
      function: a function of arrays that calls kernels.
      args: arrays, `jax.ShapeDtypeStruct`s, or trees of them.

    Raises:
      CompileError: an argument is no array, the function raises while it is traced, or it
        cannot be pickled.
    """
    shapes = jax.tree.map(_shape, args)
    try:
        # A new function each time: for one it has seen, JAX answers from its cache, even
        # if what the function calls was defined anew.
        jaxpr = jax.make_jaxpr(lambda *a: function(*a))(*shapes)
    except Exception as error:
        raise tracing_failed(error) from None
    payload = _pickle(function, shapes)
    open_jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    program = open_jaxpr.pretty_print(use_color=False)
    operations = tuple(_operations(open_jaxpr))
    if set(_FUNCTION.findall(program)) - {_HARMLESS}:
        # The text names a function and does not show it: let its code decide.
        program += hashlib.sha256(payload).hexdigest()
    program = portable("\n".join([program, *map(str, operations)]))
    return Request(payload, program, operations, tuple(_buffers(open_jaxpr)))


def tracing_failed(error: Exception) -> CompileError:
    """What an exception of the reader's own code, or of JAX over it, is shown as."""
    advice = clinic.consult_exception(error)
    where = clinic.innermost_reader_frame(clinic.frames_of(error))
    if advice is not None:
        return CompileError(str(advice), original=str(error), where=advice.where)
    place = f" at {where}" if where else ""
    original = f"{type(error).__name__}: {clinic.shorten(str(error))}"
    return CompileError(
        f"The kernel raises{place}, before there is anything to compile. {original}",
        original=str(error),
        where=where,
    )


def _shape(arg: Any) -> jax.ShapeDtypeStruct:
    if not hasattr(arg, "shape") or not hasattr(arg, "dtype"):
        try:
            arg = np.asarray(arg)
        except Exception:
            arg = None
        if arg is None or arg.dtype == object:
            raise CompileError(
                "compile_for takes arrays or jax.ShapeDtypeStruct after the function; give it "
                "anything else with functools.partial(kernel, name=value)."
            )
        arg = jax.numpy.asarray(arg)
    return jax.ShapeDtypeStruct(arg.shape, arg.dtype)


def _pickle(function: Callable[..., Any], shapes: Any) -> bytes:
    try:
        with _own_modules_by_value():
            return pickling.dumps((function, shapes))
    except Exception as error:
        raise CompileError(
            "The function cannot be sent to the compiler's process: "
            f"{type(error).__name__}: {error}. Keep open files, locks and devices out of it."
        ) from None


@contextlib.contextmanager
def _own_modules_by_value() -> Iterator[None]:
    """Lets functions of the reader's modules and of the course's kernels travel as they are here.

    The worker would import the module again, and find the file as it is on the
    disk now, or an older one that it has loaded already.
    """
    with _registering:  # cloudpickle's list is one for all threads
        registered = []
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or "<none>"
            if name.startswith("course_lib.kernels") or (name != "__main__" and is_own_code(file)):
                with contextlib.suppress(ValueError):
                    cloudpickle.register_pickle_by_value(module)
                    registered.append(module)
        try:
            yield
        finally:
            for module in registered:
                cloudpickle.unregister_pickle_by_value(module)


def portable(text: str) -> str:
    """A text without what differs between processes and checkouts: see `local`."""
    return _PROCESS.sub("ipykernel_0", text.replace(_COURSE, "<course>"))


def local(text: str, process: str) -> str:
    """A `portable` text with this checkout's and this notebook's folders put back.

    Args:
      process: the name of this kernel process's folder of cells ("ipykernel_4711").
    """
    return text.replace("ipykernel_0", process).replace("<course>", _COURSE)


def _worker_digest() -> str:
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / s).read_bytes() for s in _WORKER_SOURCES)).hexdigest()


def _operations(jaxpr: Any, outer: tuple[str, int] = ("", 0)) -> Iterator[Operation]:
    """All operations; one without a line of the reader's has that of the one around it."""
    for eqn in jaxpr.eqns:
        frames = getattr(eqn.source_info.traceback, "frames", ())
        own = ((f.file_name, f.line_num) for f in frames if not f.file_name.startswith(_JAX))
        place = next(own, outer)
        yield Operation(eqn.primitive.name, *place)
        for inner in _inner(eqn):
            yield from _operations(inner, place)


def _buffers(jaxpr: Any) -> Iterator[Buffer]:
    for eqn in jaxpr.eqns:
        for inner in _inner(eqn):
            if eqn.primitive.name == "run_scoped":
                yield from map(_buffer, inner.debug_info.arg_names or (), inner.invars)
            yield from _buffers(inner)


def _inner(eqn: Any) -> Iterator[Any]:
    """The programs inside an operation: a kernel's body, a loop's, a branch's."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            inner: Any = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


def _buffer(name: str, variable: Any) -> Buffer:
    aval = variable.aval
    dtype, shape = str(aval.dtype), tuple(aval.shape)
    size = getattr(aval.dtype, "itemsize", 0) if "barrier" not in dtype else 0
    array = f"{dtype}[{', '.join(map(str, shape))}]"
    space = str(getattr(aval, "memory_space", "")).lower()
    return Buffer(name, space, array, size * int(np.prod(shape)))
