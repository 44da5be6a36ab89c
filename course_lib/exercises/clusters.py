"""The exercises of chapter 09: a neighbour's memory, shared loads, and slots that all have left."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import clusters as kernels
from course_lib.tracing import BARRIER_OF_ALL


def _tiles(blocks: int, rows: int = 32) -> Case:
    return Case((Spec((blocks, rows, 128), "float32"),))


def _shared(blocks: int, rows: int = 32) -> Case:
    return Case((Spec((rows, 128), "float32"), Spec((blocks, rows, 128), "float32")))


def _stream(queries: int, tiles: int, **static: int) -> Case:
    specs = (Spec((queries, 32, 128), "float32"), Spec((tiles, 32, 128), "float32"))
    return Case(specs, static)


def _product(m: int, n: int, k: int) -> Case:
    return Case((Spec((m, k), "float16"), Spec((k, n), "float16")))


register(
    Exercise(
        id="clusters.smooth",
        function="smooth",
        title="Ask both neighbours",
        statement=(
            "Return (x[i - 1] + x[i] + x[i + 1]) / 3 for each tile i of x, in a circle: tile 0 has "
            "the last one before it. Each block of the cluster has one tile, puts it into "
            "tile_smem, and reads its two neighbours' from theirs."
        ),
        signature="smooth(x: float32[blocks, rows, 128]) -> float32, as x; 3 to 8 blocks",
        lines=10,
        reference=kernels.smooth_reference,
        cases=(_tiles(4), _tiles(3, 8), _tiles(8, 16)),
        hints=(
            "It is rotate with two neighbours. Two meetings: one before anybody reads a "
            "neighbour's tile, and one before anybody ends.",
            "The block before is jax.lax.rem(rank + blocks - 1, blocks), the one after "
            "jax.lax.rem(rank + 1, blocks). plgpu.cluster_ref(tile_smem, {'cluster': ...})[...] "
            "reads its tile. A meeting is plgpu.barrier_arrive(ready), plgpu.barrier_wait(ready).",
            "tile_smem[...] = x_gmem[rank]\n"
            "... meet\n"
            "total = tile_smem[...]\n"
            "for step in (1, blocks - 1):\n"
            "    other = jax.lax.rem(rank + step, blocks)\n"
            "    total = total + plgpu.cluster_ref(tile_smem, {'cluster': other})[...]\n"
            "y_gmem[rank] = total / 3\n"
            "... meet again",
        ),
        requires={"barrier_arrive": 2, "barrier_wait": 2},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="clusters.normalize",
        function="normalize",
        title="One row, several blocks",
        statement=(
            "Divide each row of x by its root mean square, sqrt(mean of the squares). The four "
            "blocks of a cluster share 64 rows: each has a quarter of the columns in `tile`, and "
            "reads the others' sums of squares from their part_smem."
        ),
        signature="normalize(x: float32[m, n]) -> float32[m, n]; m of 64, n of 32",
        lines=10,
        reference=kernels.normalize_reference,
        cases=(
            Case((Spec((64, 256), "float32"),)),
            Case((Spec((128, 128), "float32"),)),
            Case((Spec((192, 512), "float32"),)),
        ),
        hints=(
            "A block knows the sum of squares of its own columns. The row's sum is that of all "
            "four parts. So: say mine, meet, add up all four, use the total, meet again.",
            "part_smem[...] = jnp.sum(tile * tile, axis=1) has one number per row. After the "
            "meeting plgpu.cluster_ref(part_smem, {'cluster': block})[...] is another block's, "
            "for block 0 to 3 (your own, too). x has n columns, not just yours.",
            "part_smem[...] = jnp.sum(tile * tile, axis=1)\n"
            "... meet\n"
            "total = jnp.zeros_like(part_smem[...])\n"
            "for block in range(4):\n"
            "    total = total + plgpu.cluster_ref(part_smem, {'cluster': block})[...]\n"
            "scale = jax.lax.rsqrt(total / n)\n"
            "y_gmem[rows, cols] = tile * jax.lax.broadcast_in_dim(scale, tile.shape, (0,))\n"
            "... meet again",
        ),
        requires={"barrier_arrive": 2, "barrier_wait": 2},
        rtol=1e-4,
        atol=1e-4,
    )
)

register(
    Exercise(
        id="clusters.scale_own",
        function="scale_own",
        title="One for all, and one of my own",
        statement=(
            "Return x * own[i] for each i, in a cluster with a block for each i. All blocks need "
            "x: let one collective copy bring it. own[i] is needed by block i only. Wait once for "
            "both, and allocate the barrier for it."
        ),
        signature="scale_own(x: float32[rows, 128], own: float32[blocks, rows, 128]) -> as own",
        lines=5,
        reference=kernels.scale_own_reference,
        cases=(_shared(2), _shared(4), _shared(8, 16)),
        hints=(
            "Two copies, of which one is collective. In each block both arrive on its own "
            "barrier. How many arrivals is that?",
            "plgpu.Barrier(num_arrivals=2). The copy of x_gmem has collective_axes='cluster' and "
            "is the same in all blocks; that of own_gmem.at[rank] is not, so it has none.",
            "plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded, collective_axes='cluster')\n"
            "plgpu.copy_gmem_to_smem(own_gmem.at[rank], own_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "y_gmem[rank] = x_smem[...] * own_smem[...]\n"
            "... and below loaded = plgpu.Barrier(num_arrivals=2)",
        ),
        requires={"copy_gmem_to_smem": 2, "barrier_wait": 1},
        expects={"sm_90a": {"multicast": ">=1"}},
    )
)

register(
    Exercise(
        id="clusters.distances",
        function="distances",
        title="A shared ring",
        statement=(
            "Return the sum over t of |x[t] - q[i]| for each i. A block has one q[i] and needs all "
            "tiles of x; the `blocks` blocks of a cluster bring them together, through a ring of "
            "`slots` slots. Write one step, and allocate consumed."
        ),
        signature=(
            "distances(q: float32[queries, 32, 128], x: float32[tiles, 32, 128], *, blocks: int, "
            "slots: int) -> as q"
        ),
        lines=15,
        reference=lambda q, x, **_: kernels.distances_reference(q, x),
        cases=(
            _stream(2, 9, blocks=2, slots=4),
            _stream(4, 6, blocks=4, slots=2),
            _stream(4, 3, blocks=2, slots=3),
        ),
        hints=(
            "A slot may be filled again when all blocks of the cluster have read it: the copy "
            "writes into all of them. Each says so when it has, and whoever fills the slot waits "
            "for all. Say it only where somebody will wait: when there is a tile ti + slots.",
            "Read the slot, commit, then arrive on consumed.at[slot] if ti + slots < tiles. In "
            "the same step wait for the slot of the step before, and fetch tile ti - 1 + slots "
            "into it, if ti > 0 and there is such a tile. consumed is a plgpu.ClusterBarrier over "
            "('cluster',), one for each slot.",
            "plgpu.barrier_wait(loaded.at[slot])\n"
            "total = total + jnp.abs(x_smem[slot] - query)\n"
            "plgpu.commit_smem()\n"
            "\n"
            "@pl.when(ti + slots < tiles)\n"
            "def done():\n"
            "    plgpu.barrier_arrive(consumed.at[slot])\n"
            "\n"
            "@pl.when((ti > 0) & (ti - 1 + slots < tiles))\n"
            "def refill():\n"
            "    before = jax.lax.rem(ti - 1, slots)\n"
            "    ... wait for consumed.at[before], then fetch(ti - 1 + slots, before)\n"
            "... and consumed = plgpu.ClusterBarrier(collective_axes=('cluster',), "
            "num_barriers=slots)",
        ),
        requires={"copy_gmem_to_smem": 2, "barrier_arrive": 1, "barrier_wait": 2},
        rtol=1e-4,
        atol=1e-4,
    )
)

register(
    Exercise(
        id="clusters.shared_matmul",
        function="shared_matmul",
        title="Share both operands",
        statement=(
            "Multiply a and b in clusters of 2 x 2 blocks, each of which brings half of what it "
            "needs. kernels.product has the ring; write fetch, before_refill and consumed. A "
            "block waits for those that it shares a tile with, and not for the one on the diagonal."
        ),
        signature="shared_matmul(a: float16[m, k], b: float16[k, n]) -> float16[m, n]",
        lines=6,
        reference=kernels.matmul_reference,
        cases=(_product(128, 128, 256), _product(256, 128, 192), _product(128, 256, 448)),
        hints=(
            "Blocks beside each other, along cluster_n, have the same rows of A. Blocks above "
            "each other, along cluster_m, have the same columns of B. And before a slot is filled "
            "again: whose copies write into my slot, and into whose slots do mine?",
            "A goes along collective_axes='cluster_n', B along 'cluster_m'. before_refill arrives "
            "on consumed and waits for it. It has to be shared with the blocks of the row and "
            "with those of the column, one for each slot.",
            "plgpu.copy_gmem_to_smem(a_tile, a_smem, loaded, collective_axes='cluster_n')\n"
            "plgpu.copy_gmem_to_smem(b_tile, b_smem, loaded, collective_axes='cluster_m')\n"
            "... plgpu.barrier_arrive(consumed), plgpu.barrier_wait(consumed)\n"
            "... consumed = plgpu.ClusterBarrier(collective_axes=('cluster_m', 'cluster_n'), "
            "num_barriers=CONFIG.slots)",
        ),
        requires={"copy_gmem_to_smem": 4, "barrier_arrive": 1, "wgmma_ref": 1},
        forbids=(BARRIER_OF_ALL,),
        rtol=1e-2,
        atol=2e-2,
    )
)
