"""Tries a learner's Mojo functions on arrays: on the CPU, and on the GPU of this machine.

An exercise comes with a harness, Mojo text that calls the learner's functions
(the module `answer`) on arrays that it gets from the module `course`, see
`course.mojo`. On the CPU it calls the body of a kernel for one thread after the
other; compiled with `-DON_GPU=1` it launches the kernel.

Around every array stand guards: what is written beyond an array's end is
noticed, and what is read there is NaN.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.mojo import running, toolchain
from course_lib.mojo.answers import Answer
from course_lib.mojo.compiling import ANSWER
from course_lib.mojo.errors import MojoMissing

Array = np.ndarray[Any, Any]

SUPPORT = Path(__file__).with_name("course.mojo")
# As in course.mojo: what stands around an output is no NaN, as a wrong program may well write one.
GUARD_BYTES = 4096
_INPUT_GUARD = 255
_OUTPUT_GUARD = 165
ON_GPU = ("ON_GPU=1",)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One case for a harness.

    Attributes:
      inputs: the arrays that go in.
      outputs: shape and dtype of each array that comes out.
      static: the parameters of the harness's `try_case`.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    static: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Came:
    """An array that came out.

    Attributes:
      value: the array.
      beyond: how many elements away from the array it wrote, nearest first: -1 is the one before
        its first, 1 the one behind its last; 0 where it kept to the array.
    """

    value: Array
    beyond: int


def modules(answer: Answer, harness: str) -> dict[str, str]:
    """What the program of `program` imports."""
    return {
        ANSWER: answer.source,
        "course": SUPPORT.read_text(encoding="utf-8"),
        "harness": harness,
    }


def program(statics: Sequence[Mapping[str, int]]) -> str:
    """The program that tries the cases with these parameters, one after the other."""
    lines = [
        "from std.sys import argv",
        "from course import Arrays",
        "from harness import try_case",
        "",
        "def main() raises:",
    ]
    for number, static in enumerate(statics):
        parameters = ", ".join(f"{name}={value}" for name, value in static.items())
        call = f"try_case[{parameters}]" if parameters else "try_case"
        lines += [
            f"    var arrays{number} = Arrays(String(argv()[1]), {number})",
            f"    {call}(arrays{number})",
            f"    arrays{number}.finish()",
        ]
    return "\n".join([*lines, ""])


def try_on_cpu(
    answer: Answer, harness: str, trials: Sequence[Trial], *, timeout_s: float
) -> list[list[Came]]:
    """What came out of each trial on the CPU.

    Raises:
      MojoCompileError: the answer, or the harness with it, does not compile.
      MojoRunError: it died, or did not end in time.
      MojoMissing: there is no Mojo here.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(trials, folder)
        source = program([t.static for t in trials])
        running.run_on_cpu(
            source,
            modules=modules(answer, harness),
            arguments=(str(folder),),
            timeout_s=timeout_s,
        )
        return _read(trials, folder)


def try_on_gpu(
    answer: Answer, harness: str, trials: Sequence[Trial], *, timeout_s: float
) -> list[list[Came]]:
    """What came out of each trial on this machine's GPU.

    Raises:
      MojoMissing: there is no Mojo to build it with, nor was it built elsewhere.
      MojoCompileError: the harness does not compile with the answer for this GPU.
      MojoRunError: it died, or did not end in time.
    """
    built = running.on_this_gpu(
        program([t.static for t in trials]), modules=modules(answer, harness), defines=ON_GPU
    )
    if built is None:
        raise MojoMissing(
            "This GPU is not asked, as the program would have to be built for it, and there is no "
            f"Mojo here. Run `{toolchain.COMMAND}` in the course's folder."
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(trials, folder)
        running.execute([built, str(folder)], timeout_s=timeout_s)
        return _read(trials, folder)


def _write(trials: Sequence[Trial], folder: Path) -> None:
    guard = bytes([_INPUT_GUARD]) * GUARD_BYTES
    for number, trial in enumerate(trials):
        for place, array in enumerate(trial.inputs):
            data = np.ascontiguousarray(array).tobytes()
            (folder / f"{number}_in{place}.bin").write_bytes(guard + data + guard)


def _read(trials: Sequence[Trial], folder: Path) -> list[list[Came]]:
    return [
        [
            _came((folder / f"{number}_out{place}.bin").read_bytes(), shape, dtype)
            for place, (shape, dtype) in enumerate(trial.outputs)
        ]
        for number, trial in enumerate(trials)
    ]


def _came(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Came:
    size = len(data) - 2 * GUARD_BYTES
    value = np.frombuffer(data, dtype, size // dtype.itemsize, GUARD_BYTES).reshape(shape)
    touched = np.frombuffer(data, np.uint8) != _OUTPUT_GUARD
    before = np.flatnonzero(touched[:GUARD_BYTES][::-1])
    behind = np.flatnonzero(touched[GUARD_BYTES + size :])
    if behind.size:
        return Came(value, int(behind[0]) // dtype.itemsize + 1)
    if before.size:
        return Came(value, -(int(before[0]) // dtype.itemsize + 1))
    return Came(value, 0)
