"""Judges a function: runs it on every case, and names the one thing to mend first.

The CPU model comes first; only what is clean there runs on the GPU, and there in
a process that can be killed. Of several faults the verdict names the one that
the others follow from, in this order:

1. the function's arguments do not fit, or it is not done yet;
2. what stopped it: an exception, a deadlock, a time-out, a crash;
3. what its kernels did wrong on the way: out of bounds, a race, a barrier;
4. the work is not done by a kernel at all (`jnp.dot` gives the right values too);
5. the result: number of outputs, shape, dtype, NaN, values;
6. the right result without an operation asked for, or with one not allowed;
7. the right result without an instruction that the compiler is expected to make of it.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from course_lib.diagnostics import CourseError, Finding, Severity
from course_lib.exercises import cases as drawing
from course_lib.exercises import variations, verdict
from course_lib.exercises.advice import advise
from course_lib.exercises.compare import compare
from course_lib.exercises.registry import Case, Exercise
from course_lib.exercises.verdict import Verdict
from course_lib.model import Outcome, execute

TIMEOUT_S = 60.0
_NOT_DONE = "NotImplementedError: not done yet"

Array = np.ndarray[Any, Any]
Execute = Callable[..., Outcome]
Expects = Mapping[str, Mapping[str, int | str]]


class WrongReturn(Exception):  # noqa: N818 - its name starts a finding's text
    """A function returned something other than arrays; the message says what."""


def judge(
    exercise_id: str,
    fn: Callable[..., Any] | None,
    *,
    cases: Sequence[Case] | None = None,
    seed: int | None = None,
    native: bool | None = None,
    expects: Expects | None = None,
    variant: str = "",
) -> Verdict:
    """Judges `fn` as an answer to an exercise; prints nothing.

    Args:
      exercise_id: the exercise's id.
      fn: the function, from arrays to arrays.
      cases: what to try it on instead of the exercise's own cases.
      seed: what to draw the data from; by default fresh entropy.
      native: whether to run it on the GPU too, once it is clean on the CPU model;
        by default where the machine's GPU has what the kernel needs.
      expects: what the compiler must make of it, beside what the exercise asks for, by
        architecture: `{"sm_90a": {"wgmma.mma_async": ">=4", "spill_bytes": 0}}`.
      variant: which variant of the exercise, as "factor=5, slots=3"; "" is the course's own.

    Raises:
      CourseError: there is no such exercise or variant, `fn` is not a function, or `native`
        is True and no GPU here has what the kernel needs.
    """
    exercise = variations.exercise(exercise_id, variant)
    cases = exercise.cases if cases is None else tuple(cases)
    seed = drawing.fresh_seed() if seed is None else seed
    if exercise.program is not None:
        judged = exercise.program.judge(exercise, fn, cases=cases, seed=seed, native=native)
        assert isinstance(judged, Verdict)
        return judged
    fn = _function(exercise, fn)
    if misfit := _misfit(exercise, fn, cases[0]):
        return Verdict(exercise.id, "signature", (misfit,), seed, str(cases[0]))
    notes: list[Finding] = []
    remarks: list[str] = []
    found = _judge_cases(exercise, fn, cases, seed, execute, where="", notes=notes, remarks=remarks)
    unseen = ""
    if found is None:
        found, unseen = _judge_code(exercise, fn, cases[0], seed, expects or {})
    if found is None and native is not False and exercise.needs_kernel:
        found = _judge_on_gpu(exercise, fn, cases, seed, insist=native is True)
    if found is not None:
        return found
    lines = verdict.describe_finding(notes[0]) if notes else ()
    lines += tuple(dict.fromkeys(filter(None, (*remarks, unseen))))
    return Verdict(exercise.id, "", lines, seed, passed=len(cases), findings=tuple(notes))


def _judge_code(
    exercise: Exercise, fn: Callable[..., Any], case: Case, seed: int, expects: Expects
) -> tuple[Verdict | None, str]:
    """The verdict on what the compiler makes of it, and a remark if there is no compiler."""
    wanted = {
        arch: {**exercise.expects.get(arch, {}), **expects.get(arch, {})}
        for arch in {**exercise.expects, **expects}
    }
    if not wanted:
        return None, ""
    from course_lib.compiler import ToolchainMissing, unmet_expectations

    shapes = tuple(jax.ShapeDtypeStruct(a.shape, jnp.dtype(a.dtype)) for a in case.args)
    try:
        unmet = unmet_expectations(_call(fn, case), shapes, wanted)
    except ToolchainMissing as error:
        return None, f"What the compiler makes of it was not looked at. {error}"
    lines = ("The values are right.", *unmet)
    return (Verdict(exercise.id, "means", lines, seed, str(case)) if unmet else None), ""


def _judge_on_gpu(
    exercise: Exercise, fn: Callable[..., Any], cases: Sequence[Case], seed: int, *, insist: bool
) -> Verdict | None:
    from course_lib import runtime

    fit = [
        case
        for index, case in enumerate(cases)
        if runtime.can_run_natively(
            _call(fn, case), *drawing.draw_case(case, seed=seed, index=index)
        )
    ]  # a case may need more GPUs than there are
    if fit:
        return _judge_cases(exercise, fn, fit, seed, runtime.execute_native, where="the GPU")
    if insist:
        raise CourseError("native=True needs a GPU that has what the kernel needs: there is none.")
    return None


def _judge_cases(
    exercise: Exercise,
    fn: Callable[..., Any],
    cases: Sequence[Case],
    seed: int,
    run: Execute,
    *,
    where: str,
    notes: list[Finding] | None = None,
    remarks: list[str] | None = None,
) -> Verdict | None:
    """The verdict on the first case that goes wrong, or None if none does.

    What is noted on cases that are right is added to `notes`, what could not be looked
    at to `remarks`.
    """
    for index, case in enumerate(cases):
        arrays = drawing.draw_case(case, seed=seed, index=index)
        outcome = run(_call(fn, case), arrays, timeout_s=TIMEOUT_S)
        fault, lines = _fault(exercise, fn, case, arrays, outcome)
        if fault:
            rule = verdict.most_important(outcome.errors).rule if outcome.errors else ""
            found = outcome.findings
            return Verdict(
                *(exercise.id, fault, lines, seed, str(case), index, where, found, rule),
                drawn=bool(case.args),
            )
        if notes is not None:
            notes += [f for f in outcome.findings if f.severity is Severity.NOTE]
        if remarks is not None:
            remarks += outcome.remarks
    return None


def _fault(
    exercise: Exercise,
    fn: Callable[..., Any],
    case: Case,
    arrays: tuple[Array, ...],
    outcome: Outcome,
) -> tuple[str, tuple[str, ...]]:
    """`(fault, sentences)` of one run; `("", ())` if nothing is wrong."""
    if not outcome.ok:
        return _failure(outcome)
    trace = outcome.trace
    assert trace is not None, "whatever gave a value was traced"
    if exercise.needs_kernel and not trace.kernels:
        return "means", verdict.describe_no_kernel(trace.outside)
    if exercise.needs_kernel and not trace.from_kernel:
        return "means", verdict.describe_not_from_kernel(trace.outside)
    wanted = _wanted(exercise, case, arrays)
    inputs = dict(zip(_argument_names(fn, len(arrays)), arrays, strict=True))
    found = compare(outcome.value, wanted, inputs=inputs, rtol=exercise.rtol, atol=exercise.atol)
    # plgpu.kernel itself opens one scope, for scratch_types
    means = verdict.describe_means(exercise, trace.inside - Counter(run_scoped=trace.kernels))
    if found is not None:
        return found.fault, (*found.lines, *verdict.describe_unwritten(outcome.findings), *means)
    return ("means", ("The values are right.", *means)) if means else ("", ())


def _failure(outcome: Outcome) -> tuple[str, tuple[str, ...]]:
    finding = verdict.most_important(outcome.errors)
    fault = verdict.fault_of(finding)
    if fault != "exception":
        advised = advise(finding) if fault == "unsupported" else finding
        return fault, verdict.describe_finding(advised)
    if finding.what.startswith(_NOT_DONE):
        return "not-done", ()
    if finding.what.startswith(WrongReturn.__name__):
        return "outputs", (finding.what.partition(": ")[2],)
    return fault, verdict.describe_advice(finding, advise(finding))


def _wanted(exercise: Exercise, case: Case, arrays: tuple[Array, ...]) -> list[Array]:
    value = exercise.reference(*(a.copy() for a in arrays), **case.static)
    outputs = list(value) if isinstance(value, tuple | list) else [value]
    return [np.asarray(v) for v in outputs]


def _call(fn: Callable[..., Any], case: Case) -> Callable[..., Any]:
    """What travels to the process that runs it: `fn` with the case's plain numbers."""
    return functools.partial(_call_and_look, fn, dict(case.static))


def _call_and_look(fn: Callable[..., Any], static: Mapping[str, int], *args: Any) -> Any:
    """`fn` on JAX arrays; refuses a result that is not made of JAX arrays."""
    value = fn(*map(jnp.asarray, args), **static)
    for item in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(item, jax.Array):
            inside = "" if item is value else f" in a {type(value).__name__}"
            raise WrongReturn(f"The function returns {_thing(item)}{inside}, should return arrays.")
    return value


def _thing(value: Any) -> str:
    if value is None:
        return "nothing (None: is a `return` missing?)"
    if isinstance(value, np.ndarray | np.generic):
        return "a NumPy array (not a JAX array)"
    if isinstance(value, bool | int | float | complex):
        return f"the plain number {value}"
    if callable(value):
        return "a function (is a call missing?)"
    return f"a {type(value).__name__}"


def _function(exercise: Exercise, fn: object) -> Callable[..., Any]:
    if callable(fn):
        return fn
    right = f'check("{exercise.id}", {exercise.function})'
    if isinstance(fn, jax.Array | np.ndarray):
        raise CourseError(f"check needs the function itself, not what it returns: {right}.")
    if fn is None:
        raise CourseError(f"check needs your function as well: {right}.")
    raise CourseError(f"check needs a function, this is {_thing(fn)}: {right}.")


def _misfit(exercise: Exercise, fn: Callable[..., Any], case: Case) -> str:
    """Why `fn` cannot take a case's arguments, or ""."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have none: calling them will tell
        return ""
    try:
        signature.bind(*case.args, **case.static)
    except TypeError as error:
        name = getattr(fn, "__name__", exercise.function)
        bare = signature.replace(
            parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
            return_annotation=signature.empty,
        )
        return f"`{name}{bare}` does not fit `{exercise.signature}`: {error}."
    return ""


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """The names that the learner gave the arguments, as far as they are known."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds][:count]
    return names + [f"argument {i + 1}" for i in range(len(names), count)]
