"""Runs a suite: contenders against a library's kernel, on the card in this machine.

A suite gives, for each size, the inputs, the baseline and the contenders. What is
the same for all of them is here: compile, look at each contender's output, time them
in turns, look at the outputs again, and make a record of it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

import jax
import jax.numpy as jnp

from course_lib import runtime
from course_lib.benchmarks import card, records, timing
from course_lib.benchmarks.progress import Progress
from course_lib.benchmarks.records import Record, Row
from course_lib.benchmarks.timing import Clock
from course_lib.diagnostics import CourseError

_COMPILERS = 8
_LOAD_S = 1 / 3
_ANY_ERROR = 1e9  # stands for infinity, which JSON does not know
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5}
"""The largest relative error that counts as right, ||out - reference|| / ||reference||."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """A function of the inputs that is timed.

    Attributes:
      name: what the table calls it.
      function: takes the case's inputs, returns one array.
      config: what it was configured with, for the record.
      kernel: whether it is a Mosaic GPU kernel, so that it can be asked what it needs.
      reference: what it computes, where that is not what the case's reference does.
      clock: what times it, where that is not CUPTI; then it is called as it is, not compiled.
      prepare: what is done to each set of inputs once, before the timing, where it asks for
        something else than the others (an attention that does not scale gets scaled queries).
      wrong: whether it leaves something out on purpose, to see what that costs: then its error
        is recorded and not judged.
    """

    name: str
    function: Callable[..., Any]
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kernel: bool = True
    reference: Callable[..., Any] | None = None
    clock: Clock | None = None
    prepare: Callable[..., tuple[Any, ...]] | None = None
    wrong: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """One size of a suite.

    Attributes:
      name: what the table calls it.
      dtype: of the inputs; decides how far off counts as right.
      work: what one launch does, in the suite's unit times seconds (FLOP / 1e12, bytes / 1e9).
      draw: makes one set of inputs from a key.
      reference: the truth, in float32 or exactly, of a set of inputs.
      baseline: the library's function.
      contenders: who runs against it.
      bytes_of_inputs: how large one set of inputs is.
    """

    name: str
    dtype: str
    work: float
    draw: Callable[[Any], tuple[Any, ...]]
    reference: Callable[..., Any]
    baseline: Contender
    contenders: tuple[Contender, ...]
    bytes_of_inputs: int


@dataclasses.dataclass
class Log:
    """What happened besides the numbers: said at once, and kept for the record.

    Attributes:
      say: is told every sentence at once.
      notes: the sentences.
      loads: for each case, the card's state while it ran the baseline without a pause.
      progress: is told what is under way, and how far; nothing of that is kept.
    """

    say: Callable[[str], None] = print
    notes: list[str] = dataclasses.field(default_factory=list)
    loads: dict[str, card.State] = dataclasses.field(default_factory=dict)
    progress: Callable[..., None] = lambda stage, detail="": None

    def note(self, sentence: str) -> None:
        """Says a sentence and keeps it."""
        self.say(sentence)
        self.notes.append(sentence)


type Compiling = Mapping[str, Future[Callable[..., Any]]]
"""A case's functions, by the contender's name, as soon as they are compiled."""


def compile_cases(cases: Sequence[Case], log: Log) -> Sequence[Compiling]:
    """Compiles everybody of all cases at the same time; nothing is timed meanwhile.

    LLVM and ptxas do most of it, outside of Python's lock, so that threads are enough.
    """
    with ThreadPoolExecutor(_COMPILERS) as pool:
        compiling = [
            {c.name: pool.submit(_compile, c, case) for c in (case.baseline, *case.contenders)}
            for case in cases
        ]
        futures = [future for of_case in compiling for future in of_case.values()]
        for done, _ in enumerate(as_completed(futures), start=1):
            log.progress("compiling", f"{done} of {len(futures)} functions")
    return compiling


def measure_case(
    case: Case,
    log: Log,
    *,
    rounds: int = 5,
    launches: int = 8,
    compiling: Compiling | None = None,
) -> list[Row]:
    """Times one case's contenders against its baseline.

    Contenders that the card cannot run, that do not compile or that are wrong are left
    out, and the log says why.
    """
    if compiling is None:
        [compiling] = compile_cases([case], log)
    log.progress(case.name, "inputs and the truth")
    inputs = _input_sets(case)
    everyone = {c.name: c for c in (case.baseline, *case.contenders)}
    judge = Judge(case, inputs, log)
    running = {}
    for name, c in everyone.items():
        log.progress(case.name, f"is {name} right?")
        try:
            compiled = compiling[name].result()
        except _LeftOut as reason:
            log.note(f"{case.name}: {name} is left out: {reason}.")
            continue
        if judge.error(c, compiled) is not None:
            running[name] = compiled
    if case.baseline.name not in running:
        return []
    times = timing.interleave(
        running,
        inputs,
        rounds=rounds,
        launches=launches,
        clocks={name: c.clock for name, c in everyone.items() if c.clock},
        own_inputs={name: judge.inputs_of(everyone[name]) for name in running},
        say=functools.partial(log.progress, case.name),
    )
    if (state := _under_load(running[case.baseline.name], inputs)) is not None:
        log.loads[case.name] = state
    # After timing: a kernel that was right once and then not has a race.
    errors = {name: judge.error(everyone[name], f) for name, f in running.items()}
    base_us = times[case.baseline.name].median_us
    return [
        _row(case, everyone[name], times[name], base_us, error)
        for name, error in errors.items()
        if error is not None
    ]


def _under_load(
    function: Callable[..., Any], inputs: Sequence[tuple[Any, ...]]
) -> card.State | None:
    """The card's state after a third of a second of a function's launches, one after another."""

    def look() -> card.State | None:
        time.sleep(_LOAD_S)
        return card.state()

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        while not looking.done():
            jax.block_until_ready([function(*inputs[i % len(inputs)]) for i in range(4)])
    return looking.result()


class Judge:
    """Says how far a contender's outputs are from the truth, over all sets of inputs."""

    def __init__(self, case: Case, inputs: Sequence[tuple[Any, ...]], log: Log):
        self.case, self.inputs, self.log = case, inputs, log
        self._truth = [jax.block_until_ready(case.reference(*args)) for args in inputs]
        self._prepared: dict[str, list[tuple[Any, ...]]] = {}

    def inputs_of(self, c: Contender) -> Sequence[tuple[Any, ...]]:
        """The sets of inputs as this contender wants them; what they come to is the same."""
        if c.prepare is None:
            return self.inputs
        if c.name not in self._prepared:
            sets = [jax.block_until_ready(c.prepare(*args)) for args in self.inputs]
            self._prepared[c.name] = sets
        return self._prepared[c.name]

    def error(self, c: Contender, function: Callable[..., Any]) -> float | None:
        """The largest relative error; None, and a note, if that is too large by mistake."""
        worst, limit = 0.0, TOLERANCE[self.case.dtype]
        for args, truth in zip(self.inputs_of(c), self._truth, strict=True):
            want = c.reference(*args) if c.reference else truth
            error = float(_relative_error(function(*args), want))
            worst = max(worst, math.inf if math.isnan(error) else error)
        if worst <= limit or c.wrong:
            return min(worst, _ANY_ERROR)
        self.log.note(
            f"{self.case.name}: {c.name} is wrong: its relative error is {worst:.1e};"
            f" up to {limit:.0e} is right."
        )
        return None


@jax.jit
def _relative_error(out: Any, want: Any) -> Any:
    """||out - want|| / ||want||, in float32."""
    out, want = (jnp.ravel(x).astype(jnp.float32) for x in (out, want))
    return jnp.linalg.norm(out - want) / jnp.linalg.norm(want)


def _row(case: Case, c: Contender, times: timing.Timing, base_us: float, error: float) -> Row:
    low, high = times.quartiles_us
    return Row(
        case=case.name,
        name=c.name,
        median_us=round(times.median_us, 2),
        low_us=round(low, 2),
        high_us=round(high, 2),
        launches=len(times.times_us),
        rate=round(case.work / (times.median_us * 1e-6), 1),
        ratio=round(base_us / times.median_us, 4),
        error=float(f"{error:.2e}"),
        config=dict(c.config),
    )


def _input_sets(case: Case) -> list[tuple[Any, ...]]:
    """Enough sets that the first has left the L2 cache when its turn comes again."""
    ceilings = card.roofline()
    l2_bytes = ceilings.l2_bytes if ceilings else 64 << 20
    count = max(2, math.ceil(2 * l2_bytes / case.bytes_of_inputs) + 1)
    keys = jax.random.split(jax.random.key(secrets.randbits(31)), count)
    return [jax.block_until_ready(case.draw(key)) for key in keys]


class _LeftOut(Exception):  # noqa: N818
    """Why a contender does not take part, as the end of a sentence."""


def _compile(c: Contender, case: Case) -> Callable[..., Any]:
    try:
        args = jax.eval_shape(case.draw, jax.random.key(0))
        args = jax.eval_shape(c.prepare, *args) if c.prepare else args
        if c.kernel:
            needs = runtime.requirements(c.function, *args)
            if why := runtime.lacks(needs, runtime.device()):
                raise _LeftOut(why)
        return c.function if c.clock else jax.jit(c.function).lower(*args).compile()
    except _LeftOut:
        raise
    except Exception as error:  # a shape that its tiles do not divide, too much SMEM, ...
        words = " ".join(str(error).split())[:200].rstrip(".")
        raise _LeftOut(words or type(error).__name__) from error


def run_suite(
    suite: str,
    unit: str,
    cases: Sequence[Case],
    *,
    rounds: int = 5,
    launches: int = 8,
    anyway: bool = False,
    say: Callable[[str], None] = print,
    progress: Callable[..., None] | None = None,
) -> Record:
    """Measures all cases of a suite.

    Args:
      suite: its name, for the record.
      unit: the unit of the rates.
      cases: what to measure.
      rounds: turns per contender.
      launches: launches per turn; rounds * launches should be at least 20.
      anyway: measure on a busy or slowed card, too, and say so in the record.
      say: is told what a reader of the record should know, too.
      progress: is told what is under way and how far; None writes it to stderr.

    Raises:
      CourseError: there is no GPU; or the card is busy or slowed and `anyway` is False.
    """
    card.need_gpu()
    log = Log(say, progress=progress or Progress())
    started = time.perf_counter()
    before = settled_state()
    look_at(before, log, anyway=anyway)
    rows: list[Row] = []
    compiled = compile_cases(cases, log)
    seconds = {"compiling": time.perf_counter() - started}
    for case, compiling in zip(cases, compiled, strict=True):
        try:
            rows += measure_case(case, log, rounds=rounds, launches=launches, compiling=compiling)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            log.note(f"{case.name} does not fit in the card's memory: --sizes takes smaller ones.")
    seconds["all"] = time.perf_counter() - started
    log.progress("done", f"{len(rows)} rows")
    after = card.state()
    if after and (slowed := [s for s in after.objections() if "slowed" in s]):
        log.note(f"After the run: {' '.join(slowed)}")
    return Record(
        suite=suite,
        baseline=cases[0].baseline.name,
        unit=unit,
        rows=tuple(rows),
        card=records.card_of(before, after, log.loads),
        software=records.software(),
        date=records.now(),
        notes=tuple(log.notes),
        seconds={what: round(value, 1) for what, value in seconds.items()},
    )


def settled_state(pause_s: float = 2.0) -> card.State | None:
    """The card's state; asked again after a pause if it seems busy, perhaps with our own work."""
    state = card.state()
    if state is None or not state.objections():
        return state
    time.sleep(pause_s)
    return card.state()


def look_at(state: card.State | None, log: Log, *, anyway: bool) -> None:
    if state is None:
        log.note("nvidia-smi does not answer, so clocks and other users of the card are unknown.")
        return
    objections = state.objections()
    if objections and not anyway:
        raise CourseError(
            f"{' '.join(objections)} Its numbers would not be this card's. Try again later, or"
            " measure with --anyway: the record then says so."
        )
    for sentence in objections:
        log.note(sentence)
