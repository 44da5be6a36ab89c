"""Runs in the notebook's process: asks the child, and puts its answer into words."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from course_lib.diagnostics import Access, Finding, Location, Severity, locate
from course_lib.diagnostics.locations import innermost_own
from course_lib.interpreter import child
from course_lib.model import Outcome
from course_lib.tracing import Trace
from course_lib.workers import RemoteError, Worker, WorkerDied, WorkerIdle, WorkerTimeout

_IDLE_S = 3.0
# compute capability 9.0 and 10.x (Hopper and Blackwell Tuning Guides, "Unified Shared Memory")
_SMEM_BYTES_PER_BLOCK = 227 * 1024
_RACE = re.compile(
    # an access inside a pipeline that JAX emits has no line
    r"^\s*(read|write) of \w*Key\(memory_space_id=(\d+).*?\)\[(.*)\]"
    r" from (.*?\)), (?:(.*?):(\d+):)?",
    re.MULTILINE,
)
_WARPGROUP = re.compile(r"block_id=(\d+), warpgroup_id=(\d+)")
_OUT_OF_BOUNDS = re.compile(
    r"Out-of-bounds (read|store|masked swap|swap) of .*?memory_space_id=(\d+).*?range=(\(.*?\))(?:, permutation.*?)?"
    r"(?:\)\])? but buffer has\s+shape (\([\d, ]*\))",
    re.DOTALL,
)
_SPACES = {"0": "GMEM", "1": "SMEM"}


def execute(
    worker: Worker, function: Callable[..., Any], args: tuple[Any, ...], *, timeout_s: float
) -> Outcome:
    """Runs `function(*args)` in `worker`; see `course_lib.model.execute`."""
    plain = jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, args)
    try:
        answer = worker.call(
            child.run, function, plain, timeout_s=timeout_s, idle_timeout_s=_IDLE_S
        )
    except WorkerIdle:
        return Outcome(findings=(_deadlock(),))
    except WorkerTimeout:
        return Outcome(findings=(_too_long(timeout_s),))
    except WorkerDied as error:
        return Outcome(findings=(_died(error),))
    except RemoteError as error:
        return Outcome(findings=(_cannot_travel(error),))
    except (TypeError, AttributeError, ValueError) as error:  # from cloudpickle
        return Outcome(findings=(_cannot_travel(error),))
    if "error" in answer:
        return Outcome(findings=(_explain(*answer["error"]),), trace=answer["trace"])
    findings = _too_much_smem(answer["trace"]) + _unwritten(answer["value"], plain)
    return Outcome(answer["value"], findings, answer["trace"])


def _too_much_smem(trace: Trace) -> tuple[Finding, ...]:
    """An error if a block wants more SMEM than any GPU gives it: CUDA refuses such a kernel."""
    if trace.smem_bytes <= _SMEM_BYTES_PER_BLOCK:
        return ()
    return (
        _error(
            "too-much-smem",
            f"A block asks for {trace.smem_bytes:,} bytes of SMEM, and can have"
            f" {_SMEM_BYTES_PER_BLOCK:,} at most.",
            why="An SM of a Hopper or Blackwell data-centre GPU has 228 KiB, of which CUDA keeps"
            " 1 KiB per block. On a GPU this kernel does not compile.",
            fix="Take smaller tiles, fewer buffers, or one buffer for two purposes.",
        ),
    )


def _unwritten(value: Any, args: Any) -> tuple[Finding, ...]:
    """A note if the output holds NaN although no input does: memory starts as NaN here."""
    if any(_nans(x).any() for x in jax.tree.leaves(args)):
        return ()
    for leaf in jax.tree.leaves(value):
        nans = _nans(leaf)
        if nans.any():
            first = tuple(int(i) for i in np.argwhere(nans)[0])
            return (
                Finding(
                    "uninitialised",
                    Severity.NOTE,
                    f"{int(nans.sum())} of {nans.size} elements of the output are NaN, the first"
                    f" at index {first}.",
                    why="Memory that nothing has written holds NaN on the CPU model (on a GPU:"
                    " whatever was there before).",
                    fix="Check that the blocks together write every element, and that SMEM is"
                    " written before it is read.",
                ),
            )
    return ()


def _nans(x: Any) -> np.ndarray:
    array = np.asarray(x)
    if not jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        return np.zeros(array.shape, bool)
    return np.isnan(array.astype(np.float32))


def _error(rule: str, what: str, **kwargs: Any) -> Finding:
    return Finding(rule, Severity.ERROR, what, **kwargs)


def _deadlock() -> Finding:
    return _error(
        "deadlock",
        "The kernel waits for ever: every Pallas thread is blocked in a wait.",
        why="A wait ends only when the arrivals, copies or signals that it counts have come.",
        fix="For each wait, find the call that should end it, and check that it runs: is the"
        " arrival missing, behind a condition, or one short of num_arrivals?",
    )


def _too_long(timeout_s: float) -> Finding:
    return _error(
        "timeout",
        f"The kernel was stopped after {timeout_s:g} s.",
        fix="Does a loop end? If the kernel is only large, give it more time (timeout_s=...) or"
        " smaller arrays: on the CPU each step of a kernel costs about a millisecond.",
    )


def _died(error: WorkerDied) -> Finding:
    memory = "MemoryError" in error.stderr or "bad_alloc" in error.stderr
    what = (
        "The kernel asked for more memory than this machine has."
        if memory
        else f"The process that ran the kernel died (status {error.returncode})."
    )
    return _error("crash", what, fix="Look at the sizes of the arrays and allocations.")


def _cannot_travel(error: Exception) -> Finding:
    return _error(
        "exception",
        f"The function cannot be handed to the process that runs kernels: {error}.",
        fix="Let it use only arrays and values that can be pickled.",
    )


def _explain(kind: str, message: str, frames: list[tuple[str, int, str]]) -> Finding:
    """A finding from an exception of the interpret mode or of the learner's own code."""
    own = innermost_own(frames)
    if "RACE DETECTED" in message:
        return _race(message)
    if match := _OUT_OF_BOUNDS.search(message):
        return _out_of_bounds(match, own)
    if "copy_smem_to_gmem read-side operations" in message:
        return _unfinished_copy(message)
    for rule, pattern, what, fix in _PROTOCOL:
        if re.search(pattern, message):
            return _error(rule, what, fix=fix, where=own)
    if kind == "NotImplementedError" and own is None:
        return _error("unsupported", f"The CPU model cannot run this kernel: {_tail(message)}.")
    unfinished = kind == "NotImplementedError" and not _raised_here(frames)
    if "CpuCallback error" in message or unfinished:
        return _error("unsupported", f"The CPU model stopped: {_tail(message)}", where=own)
    return _error("exception", f"{kind}: {_first_sentence(message)}", where=own)


_PROTOCOL = (
    (
        "barrier-overrun",
        r"meaning thread .* missed observing|no threads observed phase 0|but barrier is already at",
        "A barrier completed again before a thread had waited for its previous completion.",
        "Let the arriving side wait too (a second barrier in the other direction), so that no"
        " completion can come before the last one was waited for.",
    ),
    (
        "barrier-pending-arrivals",
        r"deallocated with \d+ arrivals? pending",
        "A barrier's scope ended while some of the arrivals of a phase were still missing.",
        "Make the number of arrivals a multiple of num_arrivals.",
    ),
    (
        "barrier-unwaited",
        r"had only observed that barrier up to phase|must observe all of its completions",
        "A barrier's scope ended although a thread had not waited for all of its completions.",
        "Wait once for every completion before the scope ends.",
    ),
)


def _raised_here(frames: list[tuple[str, int, str]]) -> bool:
    """Whether the innermost frame is the learner's own: the error is theirs."""
    last = frames[-1:]
    return bool(last) and innermost_own(last) is not None


def _race(message: str) -> Finding:
    found = _RACE.findall(message)[:2]
    # JAX names the later access first
    accesses = tuple(_access(*parts) for parts in reversed(found))
    lines = [_line(a.where) for a in accesses]
    space = _SPACES.get(found[0][1], "TMEM") if found else "memory"
    if space == "SMEM" and len(_threads(found)) == 1:
        if any("copy_smem_to_gmem" in x for x in lines):
            return _missing_commit(accesses)
        if [kind for kind, *_ in found] == ["write", "read"]:
            return _overtaken_read(accesses)
        if any("copy_gmem_to_smem" in x for x in lines):
            return _read_too_early(accesses)
    # blocks run one after the other here and share their names: equal names mean two blocks
    blocks = len(_threads(found)) == 1 or len({b for b, _ in _threads(found)}) > 1
    if blocks:
        accesses = tuple(Access(a.what, "one block", a.where) for a in accesses[:1]) + tuple(
            Access(a.what, "another block", a.where) for a in accesses[1:]
        )
    return _error(
        "data-race",
        f"Two {'blocks' if blocks else 'Pallas threads'} touch the same {space} and nothing orders"
        " them.",
        accesses=accesses,
        why="They may run in either order or at the same time, so the result is a matter of luck.",
        fix="Give each block its own part of the array: does its slice depend on axis_index?"
        if blocks
        else "Give each thread its own part, or let one wait for the other with a Barrier.",
    )


def _missing_commit(accesses: tuple[Access, ...]) -> Finding:
    return _error(
        "missing-commit",
        "A copy to GMEM reads SMEM whose new values were never committed.",
        accesses=accesses,
        why="The copy engine (TMA) reads SMEM through another proxy: without a fence it may still"
        " see what was there before.",
        fix="Call plgpu.commit_smem() after the write and before the copy; before SMEM is written"
        " again, plgpu.wait_smem_to_gmem(0).",
    )


def _overtaken_read(accesses: tuple[Access, ...]) -> Finding:
    return _error(
        "missing-commit",
        "A copy into SMEM overwrites what a thread has read, and the read was never committed.",
        accesses=accesses,
        why="The copy engine (TMA) writes SMEM through another proxy: without a fence its write"
        " may overtake the read.",
        fix="Call plgpu.commit_smem() after the read and before the copy (in a pipeline: before"
        " the step ends).",
    )


def _read_too_early(accesses: tuple[Access, ...]) -> Finding:
    return _error(
        "copy-not-awaited",
        "SMEM is used while a copy into it may still be running.",
        accesses=accesses,
        why="copy_gmem_to_smem only starts the copy; the copy engine (TMA) fills SMEM later.",
        fix="Call plgpu.barrier_wait(barrier), with the barrier given to the copy, before you use"
        " the data.",
    )


def _access(kind: str, space: str, box: str, thread: str, file: str, line: str) -> Access:
    where = locate(file, int(line)) if line else None
    verb = "reads" if kind == "read" else "writes"
    what = f"{verb} {_SPACES.get(space, 'TMEM')}{_box(box)}"
    return Access(what, who=_thread(thread), where=where)


def _box(text: str) -> str:
    """`(slice(0, 128, 1), slice(64, 128, 1))` as `[0:128, 64:128]`."""
    parts = re.findall(r"slice\((\d+), (\d+), \d+\)", text)
    return "[" + ", ".join(f"{a}:{b}" for a, b in parts) + "]" if parts else ""


def _thread(text: str) -> str:
    match = _WARPGROUP.search(text)
    return f"block {match[1]}, thread {match[2]}" if match else ""


def _ids(found: tuple[str, ...]) -> tuple[str, str]:
    match = _WARPGROUP.search(found[3])
    return (match[1], match[2]) if match else ("", "")


def _threads(found: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    return {_ids(f) for f in found}


def _line(where: Location | None) -> str:
    return linecache.getline(where.file, where.line) if where else ""


def _out_of_bounds(match: re.Match[str], own: Location | None) -> Finding:
    kind, space, box, shape = match.groups()
    name = _SPACES.get(space, "TMEM")
    return _error(
        "out-of-bounds",
        f"A {'read' if kind == 'read' else 'write'} of {name}{_box(box)} leaves the buffer, whose shape is {shape}.",
        why="On a GPU nothing checks this: it reads or overwrites other data.",
        fix="Check the index: the number of blocks times the rows of one block is the number of"
        " rows of the array.",
        where=own,
    )


def _unfinished_copy(message: str) -> Finding:
    return _error(
        "unfinished-copy",
        f"The kernel ends while a copy from SMEM to GMEM is still running ({_thread(message)}).",
        why="When the block ends, its SMEM is given to another block, and the copy may read that.",
        fix="Call plgpu.wait_smem_to_gmem(0) before the kernel ends.",
    )


def _tail(message: str) -> str:
    """The last line that says what happened; interpret mode puts a traceback before it."""
    lines = [x.strip() for x in message.strip().splitlines() if x.strip()]
    return lines[-1] if lines else "no message"


def _first_sentence(message: str) -> str:
    """The message up to the first blank line, on one line."""
    return " ".join(message.strip().split("\n\n")[0].split())
