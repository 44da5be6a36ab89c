"""Runs a student's functions on a card, in the sandbox, and writes down the arrays they give.

    python -m course_lib.grading.card_child        (in a folder with request.json)

Each exercise gets a process of its own, which is killed when its time is up: a kernel that never
ends, or breaks the card's context, costs its own exercise only. Nothing in here is worth stealing:
the inputs are others than those that marks come from, and there is no reference and no expected
value. Nothing that is written here is believed to be right: arrays leave as they are, and are
compared elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from course_lib.grading.tracing_child import arguments, checked_call, define, write, write_error

START_S = 90.0  # for importing JAX and waking the card
_POLL_S = 0.02


def main() -> None:
    """Works through the request, an exercise at a time; without any it says what the card is."""
    request = _request()
    if not request["exercises"]:
        _in_a_process(-1, Path("."), START_S)
    for number, asked in enumerate(request["exercises"]):
        folder = Path(asked["folder"])
        folder.mkdir()
        (folder / "begun").touch()
        _in_a_process(number, folder, request["seconds"])
        (folder / "ended").touch()


def _request() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path("request.json").read_text(encoding="utf-8"))
    return data


def _in_a_process(number: int, folder: Path, seconds: float) -> None:
    """Runs one exercise, and ends its process and all of that one's when its time is up.

    The time counts from the moment that the card is awake.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "course_lib.grading.card_child", str(number)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    end, awake = time.monotonic() + START_S, False
    while process.poll() is None:
        if not awake and (folder / "ready").exists():
            end, awake = time.monotonic() + seconds, True
        if time.monotonic() > end:
            (folder / "too-long").touch()
            break
        time.sleep(_POLL_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def what_card() -> None:
    """Writes down which card JAX can use here, or why there is none."""
    from course_lib import runtime

    card = runtime.device()
    said: dict[str, Any] = {"why": runtime.doctor()[-1].removeprefix("Why: ")}
    if card is not None:
        why = trouble()
        said = {"name": card.name, "capability": card.capability, "count": card.count}
        said = {"why": f"{card.name} does not run a kernel: {why}"} if why else said
    write(Path("card.json"), json.dumps(said).encode())


def trouble(run: Callable[..., Any] | None = None) -> str:
    """Why a kernel that is known to be right does not come out right here; "" if it does.

    Without an assembler, say, no student's kernel would, and it would look like the student's
    doing.

    Args:
      run: what runs it; by default the card.
    """
    import jax
    import jax.experimental.pallas.mosaic_gpu as plgpu
    import numpy as np

    x = np.random.default_rng().standard_normal(128).astype(np.float32)

    def double(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = 2 * x_gmem[...]

    kernel = plgpu.kernel(double, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))
    try:
        y = np.asarray(run(kernel, x) if run else kernel(jax.numpy.asarray(x)))
    except Exception as error:
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:300] if lines else 'it does not say why'}"
    return "" if np.array_equal(y, 2 * x) else "its values are wrong"


def one_exercise(number: int) -> None:
    """Calls a student's function with the arguments of each case, and writes what it returns."""
    from course_lib import runtime

    request = _request()
    asked, case = request["exercises"][number], 0
    folder = Path(asked["folder"])
    if request["native"] and runtime.device() is None:
        return
    (folder / "ready").touch()
    try:
        function, _ = define(request["cells"], asked)
        for case, given in enumerate(asked["cases"]):
            call, args = checked_call(function, given["static"]), arguments(given, Path("."))
            # Kernels that are simulated are those of tests of what stands around a card.
            value = call(*args) if request["native"] else runtime.run(call, *args)
            _write_arrays(folder, case, value if isinstance(value, tuple | list) else [value])
    except BaseException as error:
        write_error(folder, error, case)


def _write_arrays(folder: Path, case: int, outputs: Sequence[Any]) -> None:
    import numpy as np

    arrays = [np.asarray(o, order="C") for o in outputs]
    for place, array in enumerate(arrays):
        plain = array if array.dtype.kind in "biuf" else array.view(f"u{array.itemsize}")
        file = io.BytesIO()
        np.save(file, plain, allow_pickle=False)
        write(folder / f"{case}-{place}.npy", file.getvalue())
    dtypes = [a.dtype.name for a in arrays]
    write(folder / f"{case}.dtypes", json.dumps(dtypes).encode())


if __name__ == "__main__":
    sys.setrecursionlimit(5_000)
    if len(sys.argv) == 1:
        main()
    elif sys.argv[1] == "-1":
        what_card()
    else:
        one_exercise(int(sys.argv[1]))
