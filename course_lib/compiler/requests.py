"""What is asked of the compiler: a function, its arguments, and a key that tells it from others."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import numpy as np

from course_lib.compiler.errors import CompileError
from course_lib.diagnostics import clinic
from course_lib.diagnostics.locations import is_own_code
from course_lib.workers import pickling

# Everything that decides what the worker answers; a change of it must change every key.
_WORKER_SOURCES = ("child.py", "jax_internals.py", "targets.py")
_JAX = str(Path(jax.__file__).parent)
_COURSE = str(Path(__file__).resolve().parents[1])
# Nobody's kernel is written here, though calls of one go through.
_NOT_OWN = (
    _JAX,
    *(str(Path(_COURSE, name)) for name in ("compiler", "simulator", "workers", "model.py")),
)
_PROCESS = re.compile(r"ipykernel_\d+")
_VARIABLE = re.compile(r"Var\(id=(\d+)\)")
_FUNCTION = re.compile(r"<function (\S+) at 0x")
_registering = threading.Lock()
# JAX's own wrapper; its address says nothing about the kernel.
_HARMLESS = "kernel.<locals>._vmap_rule"
# The operations that a kernel's launch is made of, outermost first.
_LAUNCHES = ("custom_vmap_call", "mpmd_map", "core_map", "pallas_call")
_MISSING = re.compile(r"Unimplemented primitive in Pallas Mosaic GPU lowering: (\w+)")
type Place = tuple[str, int, str, str]


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
      hides_code: whether `program` names functions whose code it does not show.
    """

    payload: bytes
    program: str
    operations: tuple[Operation, ...]
    buffers: tuple[Buffer, ...]
    hides_code: bool = False

    def places(self, *operations: str) -> list[Place]:
        """Where operations whose names start so are written, as the clinic takes places."""
        named = (o for o in self.operations if o.file and o.name.startswith(operations))
        found = [(o.file, o.line, o.name, "") for o in named]
        return list(dict.fromkeys(found))

    def places_of(self, failure: Mapping[str, Any]) -> list[Place]:
        """The operations that a failure is about: what Mosaic says, else what the program shows.

        Args:
          failure: an exception as plain data, of `child.describe`.
        """
        message = failure["message"]
        if "nvvm.tcgen05" in message and (found := self.places("tcgen05")):
            return found  # the message is about fences, which have no line of their own
        if "accumulator of a wgmma" in message and (found := self.places("wgmma")):
            return found
        if "transforming the GMEM reference" in message and (found := self.places("copy_")):
            return found
        if failure["places"]:
            return [tuple(p) for p in failure["places"]]
        if clinic.innermost_reader_frame(failure["frames"]) is not None:
            return []
        if missing := _MISSING.search(message):
            return self.places(missing[1])
        if "Cannot cast to layout" in message and (found := self.places("layout_cast")):
            return found
        if "possible set of layouts" in message:
            for suspects in ("reduce_", "broadcast_in_dim"):
                if found := self.places(suspects):
                    return found
        return self.places(*_LAUNCHES)[:1]

    def smem_in_words(self) -> str:
        """The SMEM buffers with their sizes."""
        buffers = [b for b in self.buffers if b.space == "smem" and b.size_bytes]
        return ", ".join(f"{b.name} {b.array} ({b.size_bytes} bytes)" for b in buffers)

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
    return of_program(jaxpr, _pickle(function, shapes))


def of_program(jaxpr: Any, payload: bytes = b"") -> Request:
    """The request that a traced call is; `payload` is the function and its arguments, pickled."""
    open_jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    program = _numbered(open_jaxpr.pretty_print(use_color=False), open_jaxpr)
    operations = tuple(_operations(open_jaxpr))
    hides_code = bool(set(_FUNCTION.findall(program)) - {_HARMLESS})
    if hides_code:  # the text names a function and does not show it: let its code decide
        program += hashlib.sha256(payload).hexdigest()
    program = portable("\n".join([program, *map(str, operations), *_settings(open_jaxpr)]))
    return Request(payload, program, operations, tuple(_buffers(open_jaxpr)), hides_code)


def _numbered(program: str, jaxpr: Any) -> str:
    """The text with variables by number that JAX prints by address (in a `cluster_ref`)."""
    if "Var(id=" not in program:
        return program
    numbers = {str(id(v)): str(n) for n, v in enumerate(_variables(jaxpr))}
    return _VARIABLE.sub(lambda m: f"Var({numbers.get(m[1], m[1])})", program)


def _variables(jaxpr: Any) -> Iterator[Any]:
    """All variables of a program, in the order in which they are defined."""
    yield from (*jaxpr.constvars, *jaxpr.invars)
    for eqn in jaxpr.eqns:
        for inner in _inner(eqn):
            yield from _variables(inner)
        yield from eqn.outvars


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
        own = ((f.file_name, f.line_num) for f in frames if not f.file_name.startswith(_NOT_OWN))
        place = next(own, outer)
        yield Operation(eqn.primitive.name, *place)
        for inner in _inner(eqn):
            yield from _operations(inner, place)


def _settings(jaxpr: Any) -> Iterator[str]:
    """What JAX's text leaves out: plain parameters (a copy's `oob_mode`), and what scratch is."""
    for eqn in jaxpr.eqns:
        plain = {k: v for k, v in eqn.params.items() if _is_plain(v)}
        if plain:
            yield f"{eqn.primitive.name} {sorted(plain.items(), key=lambda kv: kv[0])}"
        for inner in _inner(eqn):
            if eqn.primitive.name == "run_scoped":
                yield from filter(None, map(_scratch, inner.invars))
            yield from _settings(inner)


def _scratch(variable: Any) -> str:
    """Where an array lies in TMEM, or what a barrier counts, if not one arrival; else ""."""
    aval = variable.aval
    kind: Any = getattr(getattr(aval, "inner_aval", None), "dtype", None)
    if hasattr(kind, "num_arrivals"):
        usual = kind.num_arrivals == 1 and not kind.orders_tensor_core
        return "" if usual and not hasattr(kind, "collective_axes") else f"{kind!r}"
    layout = getattr(aval, "layout", None)
    return f"{aval!r}" if layout is not None else ""


def _is_plain(value: Any) -> bool:
    """Whether a parameter's text is the same in every process: no object with an address."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | enum.Enum)


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
