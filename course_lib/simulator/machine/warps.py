"""warp_map: the four warps of a Pallas thread go their own ways for a while."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import WaitFor

WARPS = 4


class Join:
    """What a thread waits for while its warps run."""

    name = "its warps"


def _warp_map(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    _, plan = c.call(op.params["blocks"][0])
    inputs, axis = op.inputs, op.params["axis"]

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        values = [env[s] for s in inputs]
        thread.release()
        warps = thread.start_warps()
        for i, warp in enumerate(warps):
            warp.axes = {**thread.axes, axis: np.int32(i)}
            warp.clock = _with_own_time(warp, thread)
            warp.generator = plan.generate(warp, values)
            warp.done = False
            warp.time = thread.time
        thread.machine.launch.live.extend(warps)
        yield WaitFor(Join(), op, lambda: all(w.done for w in warps))
        for warp in warps:
            thread.clock.join(warp.clock, tensor=True)
            thread.time = max(thread.time, warp.time)
        thread.release()

    return Step(run, waits=True, shared=True)


def _with_own_time(warp: Any, thread: Any) -> Any:
    """A warp starts with what its thread knows, and keeps its own times."""
    clock = thread.clock.copy()
    clock.join(warp.clock, tensor=True)
    return clock


WARP: dict[str, Maker] = {"warp_map": _warp_map}
