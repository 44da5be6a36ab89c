"""Wrong answers to collective_mma.take_over."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, tile, *, grid=None):
    """The notebook's frame: `tile(x, y, answers, answered, i, slot)` gives the row and success."""

    def body(x_gmem, y_gmem, answers, answered):
        def round_(carry):
            i, _, step = carry
            following, success = tile(x_gmem, y_gmem, answers, answered, i, jax.lax.rem(step, 2))
            return following, success, step + 1

        first = (jax.lax.axis_index("tile"), True, jnp.int32(0))
        jax.lax.while_loop(lambda carry: carry[1], round_, first)

    return plgpu.kernel(
        body,
        out_type=x,
        grid=(grid or x.shape[0],),
        grid_names=("tile",),
        scratch_types=dict(
            answers=plgpu.TryClusterCancelResult(2), answered=plgpu.Barrier(num_barriers=2)
        ),
    )(x)


def _look(answers, slot):
    (following,), success = plgpu.query_cluster_cancel(answers.at[slot], ("tile",))
    plgpu.commit_smem()
    return following, success


def looks_early(x):
    """Reads the answer before it waits for it."""

    def tile(x_gmem, y_gmem, answers, answered, i, slot):
        plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])
        y_gmem[i] = 2 * x_gmem[i]
        answer = _look(answers, slot)
        plgpu.barrier_wait(answered.at[slot])
        return answer

    return _run(x, tile)


def computes_the_next(x):
    """Works on the row that it was given for the next round."""

    def tile(x_gmem, y_gmem, answers, answered, i, slot):
        plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])
        plgpu.barrier_wait(answered.at[slot])
        following, success = _look(answers, slot)
        y_gmem[following] = 2 * x_gmem[following]
        return following, success

    return _run(x, tile)


def one_round(x):
    """Takes a row over, and leaves without computing it."""

    def tile(x_gmem, y_gmem, answers, answered, i, slot):
        plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])
        y_gmem[i] = 2 * x_gmem[i]
        plgpu.barrier_wait(answered.at[slot])
        following, _ = _look(answers, slot)
        return following, jnp.bool_(False)

    return _run(x, tile)


def other_slot(x):
    """Waits for the slot that it did not ask for."""

    def tile(x_gmem, y_gmem, answers, answered, i, slot):
        plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])
        y_gmem[i] = 2 * x_gmem[i]
        plgpu.barrier_wait(answered.at[1 - slot])
        return _look(answers, slot)

    return _run(x, tile)


def by_hand(x):
    """No cluster launch control: every block does its own row."""

    def body(x_gmem, y_gmem):
        i = jax.lax.axis_index("tile")
        y_gmem[i] = 2 * x_gmem[i]

    return plgpu.kernel(body, out_type=x, grid=(x.shape[0],), grid_names=("tile",))(x)


def one_block(x):
    """Launches one block, which finds nobody to take over from."""

    def tile(x_gmem, y_gmem, answers, answered, i, slot):
        plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])
        y_gmem[i] = 2 * x_gmem[i]
        plgpu.barrier_wait(answered.at[slot])
        return _look(answers, slot)

    return _run(x, tile, grid=1)


def one_slot(x):
    """Right values through slot 0 alone: the second slot is never used."""

    def tile(x_gmem, y_gmem, answers, answered, i, slot):
        plgpu.try_cluster_cancel(answers.at[0], answered.at[0])
        y_gmem[i] = 2 * x_gmem[i]
        plgpu.barrier_wait(answered.at[0])
        return _look(answers, 0)

    return _run(x, tile)


WRONG = {
    "looks early": Wrong(looks_early, "cancel-result-early", ("answers", "take_over.py")),
    "computes the next": Wrong(computes_the_next, "out-of-bounds", ("2147483647",)),
    "one round": Wrong(one_round, "nan", ("[1, 0]",)),
    "the other slot": Wrong(other_slot, "deadlock", ("answered[1]",)),
    "every block its own": Wrong(by_hand, "means", ("plgpu.try_cluster_cancel",)),
    "one slot": Wrong(one_slot, "means", ("values are right", "slots in turn")),
    "one block": Wrong(one_block, "nan", ("[1, 0]",)),
}
