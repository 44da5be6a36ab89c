"""Wrong answers to clusters.distances."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(q, x, blocks, slots, *, done=None, refill=None, consumed=None, axes="cluster"):
    """The notebook's frame; `done` and `refill` are the two halves of a step's hand-over."""
    tiles, rows, n = x.shape

    def right_done(ti, slot, consumed):
        @pl.when(ti + slots < tiles)
        def _():
            plgpu.barrier_arrive(consumed.at[slot])

    def right_refill(ti, consumed, fetch):
        @pl.when((ti > 0) & (ti - 1 + slots < tiles))
        def _():
            before = jax.lax.rem(ti - 1, slots)
            plgpu.barrier_wait(consumed.at[before])
            fetch(ti - 1 + slots, before)

    def kernel(q_gmem, x_gmem, y_gmem, x_smem, loaded, consumed):
        mine = jax.lax.axis_index("group") * blocks + jax.lax.axis_index("cluster")
        query = q_gmem[mine]

        def fetch(ti, slot):
            plgpu.copy_gmem_to_smem(
                x_gmem.at[ti], x_smem.at[slot], loaded.at[slot], collective_axes=axes
            )

        def step(ti, total):
            slot = jax.lax.rem(ti, slots)
            plgpu.barrier_wait(loaded.at[slot])
            total = total + jnp.abs(x_smem[slot] - query)
            plgpu.commit_smem()
            (done or right_done)(ti, slot, consumed)
            (refill or right_refill)(ti, consumed, fetch)
            return total

        for slot in range(slots):
            fetch(slot, slot)
        y_gmem[mine] = jax.lax.fori_loop(0, tiles, step, jnp.zeros((rows, n), q.dtype))

    shared = plgpu.ClusterBarrier(collective_axes=("cluster",), num_barriers=slots)
    return plgpu.kernel(
        kernel,
        out_type=q,
        grid=(q.shape[0] // blocks,),
        grid_names=("group",),
        cluster=(blocks,),
        cluster_names=("cluster",),
        scratch_types=dict(
            x_smem=plgpu.SMEM((slots, rows, n), x.dtype),
            loaded=plgpu.Barrier(num_barriers=slots),
            consumed=consumed or shared,
        ),
    )(q, x)


def no_hand_over(q, x, *, blocks, slots):
    """Fills the slot again as soon as it has read it itself."""
    tiles = x.shape[0]

    def refill(ti, consumed, fetch):
        @pl.when((ti > 0) & (ti - 1 + slots < tiles))
        def _():
            fetch(ti - 1 + slots, jax.lax.rem(ti - 1, slots))

    return _run(q, x, blocks, slots, done=lambda *_: None, refill=refill)


def a_barrier_of_its_own(q, x, *, blocks, slots):
    """A Barrier: it counts this block's arrival only."""
    return _run(q, x, blocks, slots, consumed=plgpu.Barrier(num_barriers=slots))


def an_arrival_per_block(q, x, *, blocks, slots):
    """num_arrivals is per block, not for the cluster."""
    consumed = plgpu.ClusterBarrier(
        collective_axes=("cluster",), num_barriers=slots, num_arrivals=blocks
    )
    return _run(q, x, blocks, slots, consumed=consumed)


def one_barrier_for_all_slots(q, x, *, blocks, slots):
    """One barrier where there must be one for each slot."""
    return _run(*(q, x, blocks, slots), consumed=plgpu.ClusterBarrier(collective_axes=("cluster",)))


def names_the_wrong_slot(q, x, *, blocks, slots):
    """Says of the next slot that it is free."""
    tiles = x.shape[0]

    def done(ti, slot, consumed):
        @pl.when(ti + slots < tiles)
        def _():
            plgpu.barrier_arrive(consumed.at[jax.lax.rem(slot + 1, slots)])

    return _run(q, x, blocks, slots, done=done)


def forgets_the_last_tiles(q, x, *, blocks, slots):
    """Stops to refill one tile too early, and waits for it all the same."""
    tiles = x.shape[0]

    def refill(ti, consumed, fetch):
        @pl.when((ti > 0) & (ti + slots < tiles))
        def _():
            before = jax.lax.rem(ti - 1, slots)
            plgpu.barrier_wait(consumed.at[before])
            fetch(ti - 1 + slots, before)

    return _run(q, x, blocks, slots, refill=refill)


def leader_fetches(q, x, *, blocks, slots):
    """Only block 0 refills."""
    tiles = x.shape[0]

    def refill(ti, consumed, fetch):
        @pl.when((ti > 0) & (ti - 1 + slots < tiles))
        def _():
            before = jax.lax.rem(ti - 1, slots)
            plgpu.barrier_wait(consumed.at[before])
            pl.when(jax.lax.axis_index("cluster") == 0)(lambda: fetch(ti - 1 + slots, before))

    return _run(q, x, blocks, slots, refill=refill)


WRONG = {
    "no hand-over": Wrong(no_hand_over, "cluster-smem-reuse", ("ClusterBarrier", "distances.py")),
    "a barrier of its own": Wrong(
        a_barrier_of_its_own, "cluster-smem-reuse", ("ClusterBarrier", "distances.py")
    ),
    "an arrival per block": Wrong(an_arrival_per_block, "deadlock", ("2 of 4 arrivals",)),
    "one barrier for all slots": Wrong(
        one_barrier_for_all_slots, "exception", ("must not be longer", "distances.py")
    ),
    "names the wrong slot": Wrong(
        names_the_wrong_slot, "deadlock", ("consumed[0]", "0 of 2 arrivals")
    ),
    "forgets the last tiles": Wrong(forgets_the_last_tiles, "deadlock", ("loaded",)),
    "the leader fetches": Wrong(leader_fetches, "deadlock", ("loaded[0]",)),
}
