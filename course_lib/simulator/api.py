"""`simulate` and `replay`: the machine behind two functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.diagnostics import (
    CourseError,
    Finding,
    Severity,
    check_jax,
    clinic,
    own_frame,
)
from course_lib.simulator import ir
from course_lib.simulator.machine.faults import Fault
from course_lib.simulator.machine.host import Host
from course_lib.simulator.machine.machine import Fallback, Machine, Stopped
from course_lib.simulator.machine.occupancy import occupancy
from course_lib.simulator.performance import predict
from course_lib.simulator.report import Report, Resources

MAX_STEPS = 20_000_000


def simulate(
    f: Callable[..., Any],
    *args: Any,
    arch: str = "sm_90a",
    schedule: str | int = "in_order",
    max_steps: int = MAX_STEPS,
    timeline: bool | str = False,
    values: bool = True,
    sms: int | None = None,
) -> Report:
    """Runs `f(*args)` with its Mosaic GPU kernels on the model of the GPU.

    Args:
      f: a function of arrays that calls plgpu.kernel, pl.kernel(mesh=plgpu.Mesh(...)) or
        pl.core_map; jit, vmap and scan around them are fine.
      args: its arguments, numpy or JAX arrays; without `values`, jax.ShapeDtypeStructs too.
      arch: "sm_90a" (Hopper) or "sm_100a" (Blackwell).
      schedule: "in_order"; "adversarial": asynchronous effects land as late (or as early) as
        the rules allow; or an int, the seed of a random schedule.
      max_steps: how many operations may be simulated.
      timeline: whether to keep the time, too (by a documented cost model; slower); "detailed":
        with arithmetic in registers, and copies from L2.
      values: False to predict the time only (`report.performance`), of grids of any size: nothing
        is computed and nothing is checked.
      sms: run it on a GPU with so many SMs, a block on each, whose threads take turns by the
        clock of the timeline; with `schedule="in_order"` only.

    Returns:
      The value (numpy arrays) and the findings. It never raises for what the kernel does.

    Raises:
      CourseError: there is no Mosaic GPU kernel in `f`, or one for another backend; an argument
        is no array, or has no values and they are needed; an option has a value that it cannot
        have; a kernel cannot be timed without values; this JAX is not supported.
    """
    check_jax()
    import jax

    from course_lib.simulator import frontend

    if not callable(f):
        raise CourseError(
            f"The first argument is a {type(f).__name__}; it must be a kernel or a function that "
            "calls one, and its arguments come after it: simulate(kernel, x)."
        )
    check_values(frontend.leaves(args))
    try:
        program, tree = frontend.trace(f, *args)
    except CourseError:
        raise
    except Exception as error:
        if backend := frontend.other_backend(error):
            raise CourseError(
                f"This kernel is for Pallas' {backend} backend; the simulator runs those of Mosaic "
                "GPU: plgpu.kernel, or pl.kernel with mesh=plgpu.Mesh(...)."
            ) from None
        return Report(None, (_exception(error),))
    if not any(op.name == "kernel" for op, _ in program.walk()):
        raise CourseError(
            "This function calls no Mosaic GPU kernel; give one that calls plgpu.kernel "
            "(or pl.kernel with mesh=plgpu.Mesh(...))."
        )
    if not values:
        return Report(None, performance=predict(program, arch=arch, max_steps=max_steps))
    leaves = frontend.leaves(args)
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
        raise CourseError(
            "A jax.ShapeDtypeStruct has a shape and no values: give arrays, or ask for the time "
            "only with values=False."
        )
    report = _run(
        program, leaves, arch, schedule, max_steps, _jax_of(program), timeline=timeline, sms=sms
    )
    if report.value is None:
        return report
    value = frontend.unflatten(tree, report.value)
    return dataclasses.replace(report, value=value)


def trace_kernels(f: Callable[..., Any], *args: Any) -> ir.Program:
    """The program of `f(*args)` as plain data, for `replay` or `ir.save`."""
    check_jax()
    from course_lib.simulator import frontend

    return frontend.trace(f, *args)[0]


def check_values(leaves: Sequence[Any]) -> None:
    """Complains about the first argument that is no array, or an array that is nowhere.

    Raises:
      CourseError: one sentence that says which, and what would be right.
    """
    import jax

    for number, x in enumerate(leaves, 1):
        if isinstance(x, jax.core.Tracer):
            raise CourseError(
                f"Array {number} of the arguments has no values yet: simulate is called while JAX "
                "traces a function (jit, vmap, grad). Call it from outside."
            )
        if isinstance(x, jax.Array):
            if x.is_deleted():
                raise CourseError(
                    f"Array {number} of the arguments is on no device any more: it was deleted, or "
                    "donated to a function. Make it again."
                )
        elif _is_no_array(x):
            kind = "array of Python objects" if isinstance(x, np.ndarray) else type(x).__name__
            raise CourseError(
                f"Array {number} of the arguments is a {kind}; kernels take numpy or JAX arrays."
            )


def _is_no_array(x: Any) -> bool:
    import jax

    if isinstance(x, jax.ShapeDtypeStruct) or hasattr(x, "__jax_array__"):
        return False
    return isinstance(x, str | bytes) or np.asarray(x).dtype.hasobject


def replay(
    program: ir.Program,
    inputs: Sequence[Any],
    *,
    arch: str = "sm_90a",
    schedule: str | int = "in_order",
    max_steps: int = MAX_STEPS,
    timeline: bool | str = False,
) -> Report:
    """Runs a program (of `trace_kernels`, or loaded from a file) without JAX.

    `inputs` are the flat arguments, numpy arrays. The report's value is the flat list of
    results. Where the process that traced the program still holds it, JAX helps out.
    """
    return _run(
        program, list(inputs), arch, schedule, max_steps, _jax_of(program), timeline=timeline
    )


def _jax_of(program: ir.Program) -> Fallback | None:
    """What JAX can still run of a program: equations, and the models of inline code.

    None for a program that was loaded, which needs no JAX.
    """
    if not program.live:
        return None
    from course_lib.simulator import frontend

    return lambda op, args: frontend.bind(program, op, args)


def _run(
    program: ir.Program, inputs: Sequence[Any], arch: str, schedule: str | int, max_steps: int,
    fallback: Fallback | None, *, timeline: bool | str = False, sms: int | None = None,
) -> Report:  # fmt: skip
    machine = Machine(
        program, arch=arch, schedule=schedule, max_steps=max_steps, fallback=fallback,
        timeline=timeline, sms=sms,
    )  # fmt: skip
    value: list[Any] | None
    try:
        value = [_numpy(v) for v in Host(machine).run(program.entry, inputs)]
    except Stopped:
        value = None
    except Fault as fault:
        machine.recorder.add(fault.rule, f"{fault}.", op=getattr(fault, "op", None))
        value = None
    times = machine.clockwork.timeline() if machine.clockwork else None
    fits = None
    if machine.peak_threads:
        fits = occupancy(
            machine.arch, threads=machine.peak_threads, smem_bytes=machine.peak_smem,
            accumulator_bytes=machine.peak_accumulator, tmem_columns=machine.peak_tmem,
        )  # fmt: skip
    resources = Resources(
        machine.kernels, machine.peak_smem, machine.peak_tmem, machine.steps, fits
    )
    printed = tuple(machine.printed)
    return Report(value, tuple(machine.recorder.found), times, resources, printed=printed)


def _numpy(value: Any) -> Any:
    try:
        return np.asarray(value)
    except TypeError:  # a random key stays what it is
        return value


_SHORT = 200  # characters: two lines and a half


def _first_sentences(line: str) -> str:
    """As many sentences as are short together, one at least."""
    first, *more = line.rstrip(".").split(". ")
    for sentence in more:
        if len(first) + len(sentence) > _SHORT:
            break
        first = f"{first}. {sentence}"
    return f"{first}."


# What JAX finds while it traces, or leaves to the simulator where it has seen the function before.
_RULES_OF_JAX = {"tmem-not-collective": "not-collective"}


def _exception(error: Exception) -> Finding:
    """What the learner's own code raised while it was traced.

    Where the clinic explains it, JAX's first sentences are enough: the rest talks about JAX's
    own files, and names a cell's temporary one.
    """
    text = clinic.shorten(str(error).strip() or "no message")
    advice = clinic.consult_exception(error)
    if advice:
        text = _first_sentences(text.splitlines()[0])
    return Finding(
        rule=_RULES_OF_JAX.get(advice.entry, "exception") if advice else "exception",
        severity=Severity.ERROR,
        what=f"{type(error).__name__}: {text}",
        why=advice.means if advice else "",
        fix=advice.change[:1].upper() + advice.change[1:] if advice else "",
        where=own_frame(error),
    )
