"""Plain words for cryptic errors: what a message means, which line, what to change.

The messages are those of Pallas, Mosaic GPU and ptxas that learners meet. Each
entry of `clinic.toml` recognises one by its text; `consult` finds the entry and
fills it in. The
original message is kept, as it is what one searches the web for.

    advice = consult("Mosaic GPU kernel exceeds available shared memory: ...")
    print(advice)

Written for the messages of jax 0.11.2 to 0.12; every entry is reproduced by a
test that provokes the message with a kernel.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
import tomllib
import traceback
from collections.abc import Callable, Iterable, Sequence

from course_lib.diagnostics import layout_words
from course_lib.diagnostics.findings import Finding, Severity
from course_lib.diagnostics.locations import Location, innermost_own, is_own_code, locate

_MAX_ORIGINAL_LINES = 8
_MAX_COLUMNS = 400
_PTXAS = re.compile(r"ptxas \S+, line ")
_LOG = re.compile(r"WARNING: All log messages|[IWEF]\d{4} \d\d:|I0000 ")
_PACKAGES = re.compile(r"\S*site-packages/")
_SOURCE = re.compile(r'(?<![\w/])"?((?:/|[A-Za-z]:\\)[^\s":]+\.py)"?:(\d+)(?::\d+)?')
# What JAX's own names for operations mean to who writes kernels.
_OPERATIONS = {
    "get": "load",
    "swap": "store",
    "custom_vmap_call": "plgpu.kernel",
    "mpmd_map": "plgpu.kernel",
}
Frame = tuple[str, int, str]


@dataclasses.dataclass(frozen=True)
class Place:
    """An operation that a message is about.

    Attributes:
      where: the line that it is written on.
      operation: what it is in JAX's words ("wgmma"), "" if unknown.
      value: the array that it handles ("float32[32]"), "" if unknown.
    """

    where: Location
    operation: str = ""
    value: str = ""

    @property
    def words(self) -> str:
        """The operation and its array ("load, float32[32]"), "" if neither is known."""
        operation = _OPERATIONS.get(self.operation, self.operation)
        return ", ".join(d for d in (operation, self.value) if d)

    def __str__(self) -> str:
        return f"{self.where} ({self.words})" if self.words else str(self.where)


@dataclasses.dataclass(frozen=True)
class Advice:
    """What the clinic says about a message.

    Attributes:
      entry: the id of the entry that recognised it ("smem-capacity").
      means: what the message means, one or two sentences.
      change: what to change, one or two sentences.
      original: the message itself, with its exception's class in front.
      places: the operations it is about, most telling first; may be empty.
    """

    entry: str
    means: str
    change: str
    original: str
    places: tuple[Place, ...] = ()

    @property
    def where(self) -> Location | None:
        """The line to look at first, None where nothing names one."""
        return self.places[0].where if self.places else None

    def __str__(self) -> str:
        lines = [self.means, f"Change: {self.change}"]
        if self.places:
            lines.append("Where: " + "; ".join(map(str, self.places)))
        return "\n".join([*lines, f"The original message: {shorten(self.original)}"])

    def finding(self, rule: str) -> Finding:
        """The advice as an error finding of `rule`, for reports that are made of findings."""
        return Finding(
            rule=rule,
            severity=Severity.ERROR,
            what=shorten(self.original).splitlines()[0],
            why=self.means,
            fix=self.change,
            where=self.where,
        )


Words = Callable[[re.Match[str], Sequence[Place]], tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One kind of message.

    Attributes:
      id: its stable name, in kebab case.
      pattern: what the message has in it.
      words: `(means, change)`, both `str.format` templates over the pattern's named
        groups; or a function from the match and the places to the two.
      type_name: the exception's class, "" for any.
      function: a function of JAX's that must be in the traceback, "" for none.
    """

    id: str
    pattern: re.Pattern[str]
    words: tuple[str, str] | Words
    type_name: str = ""
    function: str = ""

    def recognises(
        self, message: str, type_name: str, frames: Sequence[Frame]
    ) -> re.Match[str] | None:
        """The match of the message, or None if it is of another kind."""
        if self.type_name not in ("", type_name):
            return None
        if self.function and self.function not in {f[2] for f in frames}:
            return None
        return self.pattern.search(message)

    def fill(self, match: re.Match[str], places: Sequence[Place]) -> tuple[str, str]:
        """What it means and what to change, for this message."""
        if callable(self.words):
            return self.words(match, places)
        groups = match.groupdict()
        means, change = self.words
        return means.format(**groups), change.format(**groups)


def consult(
    message: str,
    *,
    type_name: str = "",
    frames: Iterable[Frame] = (),
    places: Iterable[tuple[str, int, str, str]] = (),
    entries: Sequence[Entry] | None = None,
) -> Advice | None:
    """What the clinic knows about a message, or None.

    Args:
      message: the exception's text, or what a compiler wrote before it died.
      type_name: the exception's class ("ValueError"), "" if there is none.
      frames: `(file, line, function)` of the traceback, outermost first.
      places: `(file, line, operation, value)` of operations known to be the reason.
    """
    frames = list(frames)
    known = [Place(locate(file, line), op, value) for file, line, op, value in places]
    if not known and (where := innermost_reader_frame(frames)):
        known = [Place(where)]
    original = f"{type_name}: {message}".removeprefix(": ")
    for entry in ENTRIES if entries is None else entries:
        if match := entry.recognises(message, type_name, frames):
            means, change = entry.fill(match, known)
            return Advice(entry.id, means, change, original, tuple(known))
    return None


def consult_exception(error: BaseException) -> Advice | None:
    """What the clinic knows about an exception, or None."""
    return consult(str(error), type_name=type(error).__name__, frames=frames_of(error))


def frames_of(error: BaseException) -> list[Frame]:
    """The frames of an exception and of its causes.

    JAX attaches the place where an operation was written as the cause of what the
    operation led to, so the last frames are the most telling.
    """
    frames: list[Frame] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        stack = traceback.extract_tb(cause.__traceback__)
        frames += [(f.filename, f.lineno or 0, f.name) for f in stack]
        cause = cause.__cause__ or cause.__context__
    return frames


def innermost_reader_frame(frames: Iterable[Frame]) -> Location | None:
    """The innermost line that the reader wrote, else the innermost one of the course's kernels."""
    frames = list(frames)
    if own := innermost_own(frames):
        return own
    course = [f for f in frames if "course_lib/kernels" in f[0].replace("\\", "/")]
    return locate(*course[-1]) if course and not is_own_code(course[-1][0]) else None


def shorten(message: str) -> str:
    """A message for people: its first lines, the same at every run.

    Mosaic's messages can be pages of MLIR, and name temporary and installed files.
    """
    text = message.partition("=== Source Location Trace")[0]  # lines of XLA's own sources
    text = _PTXAS.sub("ptxas: line ", text)
    text = _PACKAGES.sub("", text)
    text = _SOURCE.sub(lambda m: str(locate(m[1], int(m[2]))), text)
    lines: list[str] = []
    for line in filter(str.strip, text.strip().splitlines()):
        if _LOG.match(line):
            continue
        if not any(_without_numbers(line) == _without_numbers(seen) for seen in lines):
            lines.append(line if len(line) <= _MAX_COLUMNS else f"{line[:_MAX_COLUMNS]} ...")
    if len(lines) > _MAX_ORIGINAL_LINES:
        lines = [*lines[:_MAX_ORIGINAL_LINES], "..."]
    return "\n".join(lines)


def _without_numbers(line: str) -> str:
    return re.sub(r"\d+", "", line.rpartition("ptxas")[2])


def _layouts(match: re.Match[str], places: Sequence[Place]) -> tuple[str, str]:
    """Layout inference has no solution: say whose demands contradict each other."""
    return layout_words.explain(match["reason"] or "", places)


_PRIMITIVES = {
    "dot_general": (
        "`@` and jnp.dot have no meaning on arrays in registers: the tensor core reads SMEM.",
        "put the operands in SMEM and call plgpu.wgmma (Hopper) or plgpu.tcgen05_mma (Blackwell).",
    ),
    "gather": (
        "An array in registers cannot be indexed by another array: its elements lie in the "
        "registers of many lanes.",
        "index the ref before you load (ref[i] or ref.at[i]), or keep the table in SMEM.",
    ),
    "dynamic_slice": (
        "An array in registers cannot be sliced at a position that is only known at run time: "
        "its elements lie in the registers of many lanes.",
        "slice the ref instead of the value: ref[i] loads that row, value[i] does not exist.",
    ),
}


def _no_primitive(match: re.Match[str], _: Sequence[Place]) -> tuple[str, str]:
    name = match["primitive"]
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    return (
        f"Mosaic GPU has no way to run the JAX operation `{name}` inside a kernel.",
        "do it outside of the kernel, or write it with what a kernel has: elementwise arithmetic, "
        "reductions, loads and stores, and the tensor core.",
    )


_RENAMED = {
    "GPUMesh": "plgpu.Mesh",
    "WGMMAAccumulatorRef": "plgpu.ACC",
    "TileTransform": "plgpu.TilingTransform",
    "TransposeTransform": "ref.transpose(...) on the ref",
    "transpose_ref": "ref.transpose(...)",
    "tcgen05_commit": "plgpu.tcgen05_commit_arrive",
    "commit_group": "plgpu.commit_smem_to_gmem_group",
    "TryCancelResultRef": "plgpu.TryClusterCancelResult",
    "TMA_GATHER_INDICES": "plgpu.Layout.TMA_INDICES",
    "Semaphore": "plgpu.SemaphoreType.REGULAR",
    "GPUCompilerParams": "plgpu.CompilerParams",
    "GPUBlockSpec": "plgpu.BlockSpec",
    "GPUMemorySpace": "plgpu.MemorySpace",
    "out_shape": "out_type",
    "scratch_shapes": "scratch_types",
    "peer_ref": "remote_ref",
    "packed": "packing",
}


def _old_name(match: re.Match[str], _: Sequence[Place]) -> tuple[str, str]:
    name = match["name"]
    if name in _RENAMED:
        return (
            f"`{name}` is a name that older pages and older JAX releases use.",
            f"write {_RENAMED[name]} instead.",
        )
    return (
        f"This JAX has no `{name}` there: it was renamed or removed, or misspelt.",
        "look in the chapter's recap table for today's name; dir(plgpu) lists all that exist.",
    )


_WORDS: dict[str, Words] = {
    "layouts": _layouts,
    "no_primitive": _no_primitive,
    "old_name": _old_name,
}


def load_entries(package: str) -> tuple[Entry, ...]:
    """The entries of a package's own `clinic.toml`."""
    text = importlib.resources.files(package).joinpath("clinic.toml").read_text("utf-8")
    return tuple(_entry(**table) for table in tomllib.loads(text)["entry"])


def _entry(
    *,
    id: str,
    pattern: str,
    means: str = "",
    change: str = "",
    words: str = "",
    type_name: str = "",
    function: str = "",
) -> Entry:
    how: tuple[str, str] | Words = _WORDS[words] if words else (means, change)
    return Entry(id, re.compile(pattern, re.DOTALL), how, type_name, function)


ENTRIES: tuple[Entry, ...] = load_entries(__package__)
