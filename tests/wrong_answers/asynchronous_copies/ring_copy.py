"""Wrong answers to asynchronous_copies.ring_copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _answer(lines: Callable[..., None]) -> Callable[..., jax.Array]:
    """The exercise's frame; `lines` gets everything that the learner's code can see."""

    def ring_copy(x: jax.Array, *, stages: int, unread: int) -> jax.Array:
        steps, ahead = x.shape[0] // 128, stages - unread

        def kernel(x_gmem: Any, y_gmem: Any, ring_smem: Any, loaded: Any) -> None:
            def place(step: Any) -> Any:
                return pl.ds((step * 2 + jax.lax.axis_index("block")) * 64, 64)

            def load(step: Any) -> None:
                slot = step % stages
                plgpu.copy_gmem_to_smem(x_gmem.at[place(step)], ring_smem.at[slot], loaded.at[slot])

            def send(step: Any) -> None:
                plgpu.copy_smem_to_gmem(ring_smem.at[step % stages], y_gmem.at[place(step)])

            def wait(step: Any) -> None:
                plgpu.barrier_wait(loaded.at[step % stages])

            lines(stages, unread, steps, ahead, load, wait, send)

        scratch: dict[str, Any] = dict(
            ring_smem=plgpu.SMEM((stages, 64, x.shape[1]), x.dtype),
            loaded=plgpu.Barrier(num_barriers=stages),
        )
        return plgpu.kernel(
            kernel, out_type=x, grid=(2,), grid_names=("block",), scratch_types=scratch
        )(x)

    return ring_copy


def _first(count: int, load: Any) -> None:
    for step in range(count):
        load(step)


def _loop(
    steps: int, ahead: int, load: Any, wait: Any, send: Any, *, n: int, last: bool = True
) -> None:
    @pl.loop(0, steps)
    def _(step: Any) -> None:
        wait(step)
        send(step)
        plgpu.wait_smem_to_gmem(n, wait_read_only=True)
        pl.when(step + ahead < steps)(lambda: load(step + ahead))

    if last:
        plgpu.wait_smem_to_gmem(0)


@_answer
def lets_one_more_run(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(min(ahead, steps), load)
    _loop(steps, ahead, load, wait, send, n=unread + 1)


@_answer
def fills_all_slots_first(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(min(stages, steps), load)
    _loop(steps, ahead, load, wait, send, n=unread)


@_answer
def starts_with_no_load(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _loop(steps, ahead, load, wait, send, n=unread)


@_answer
def loads_past_the_end(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(min(ahead, steps), load)

    @pl.loop(0, steps)
    def _(step: Any) -> None:
        wait(step)
        send(step)
        plgpu.wait_smem_to_gmem(unread, wait_read_only=True)
        load(step + ahead)

    plgpu.wait_smem_to_gmem(0)


@_answer
def forgets_that_there_may_be_few_steps(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(ahead, load)
    _loop(steps, ahead, load, wait, send, n=unread)


@_answer
def refills_before_it_waits(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(min(ahead, steps), load)

    @pl.loop(0, steps)
    def _(step: Any) -> None:
        wait(step)
        send(step)
        pl.when(step + ahead < steps)(lambda: load(step + ahead))
        plgpu.wait_smem_to_gmem(unread, wait_read_only=True)

    plgpu.wait_smem_to_gmem(0)


@_answer
def forgets_to_wait_for_loads(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(min(ahead, steps), load)
    _loop(steps, ahead, load, lambda step: None, send, n=unread)


@_answer
def forgets_the_last_wait(
    stages: int, unread: int, steps: int, ahead: int, load: Any, wait: Any, send: Any
) -> None:
    _first(min(ahead, steps), load)
    _loop(steps, ahead, load, wait, send, n=unread, last=False)


def copies_through_registers(x: jax.Array, *, stages: int, unread: int) -> jax.Array:
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
        y_gmem[rows] = x_gmem[rows]

    grid = (x.shape[0] // 64,)
    return plgpu.kernel(kernel, out_type=x, grid=grid, grid_names=("tile",))(x)


WRONG = {
    "lets one more run": Wrong(
        lets_one_more_run, "store-source-overwritten", ("ring_smem[0, 0:64, 0:128] is overwritten",)
    ),
    "fills all slots first": Wrong(
        fills_all_slots_first, "data-race", ("ring_smem[2, 0:64, 0:128]",)
    ),
    "starts with no load": Wrong(starts_with_no_load, "deadlock", ("0 of 1 arrival",)),
    "loads past the end": Wrong(loads_past_the_end, "unfinished-copy", ("loaded",)),
    "forgets that there may be few steps": Wrong(
        forgets_that_there_may_be_few_steps, "unfinished-copy", ("float32[128, 128]",)
    ),
    "refills before it waits": Wrong(
        refills_before_it_waits,
        "store-source-overwritten",
        ("ring_smem[0, 0:64, 0:128] is overwritten",),
    ),
    "forgets to wait for loads": Wrong(
        forgets_to_wait_for_loads, "read-before-arrival", ("plgpu.barrier_wait",)
    ),
    "forgets the last wait": Wrong(
        forgets_the_last_wait, "unfinished-copy", ("plgpu.wait_smem_to_gmem(0)",)
    ),
    "copies through registers": Wrong(
        copies_through_registers, "means", ("plgpu.copy_gmem_to_smem",)
    ),
}
