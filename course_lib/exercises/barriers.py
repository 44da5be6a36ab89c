"""The exercises of chapter 06: threads that hand over, take turns, queue, and specialize."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import barriers as kernels


def _vector(n: int, **static: int) -> Case:
    return Case((Spec((n,), "float32"),), static)


def _matrix(m: int, n: int, **static: int) -> Case:
    return Case((Spec((m, n), "float32"),), static)


def _batches(steps: int, n: int, **static: int) -> Case:
    return Case((Spec((2, steps, n), "float32"),), static)


register(
    Exercise(
        id="barriers.hand_off",
        function="hand_off",
        title="Hand a value over",
        statement=(
            "Return exp(x) + 1 from two Pallas threads. Thread 0 puts exp(x) into item_smem and "
            "says so; thread 1 waits for that, adds 1 and writes y_gmem."
        ),
        signature="hand_off(x: float32[n]) -> float32[n], n a multiple of 128",
        lines=8,
        reference=kernels.hand_off_reference,
        cases=(_vector(128), _vector(512)),
        hints=(
            "All of the kernel is executed by both threads. Two functions under @pl.when, one "
            "for each thread. Who has to wait for whom, and for what?",
            "Thread 0: store to item_smem, then plgpu.barrier_arrive(ready). Thread 1: "
            "plgpu.barrier_wait(ready), then load from item_smem.",
            "@pl.when(thread == 0)\n"
            "def producer():\n"
            "    item_smem[...] = jnp.exp(x_gmem[...])\n"
            "    plgpu.barrier_arrive(ready)\n"
            "... and the consumer under thread == 1: wait, then y_gmem[...] = item_smem[...] + 1",
        ),
        requires={"barrier_arrive": 1, "barrier_wait": 1},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="barriers.exp_minus",
        function="exp_minus",
        title="Two producers, one barrier",
        statement=(
            "Return exp(x[0]) - x[1] from three Pallas threads: thread 0 puts exp(x[0]) into "
            "items_smem[0], thread 1 puts -x[1] into items_smem[1], and thread 2 adds the two "
            "and writes y_gmem. There is one barrier, which you allocate."
        ),
        signature="exp_minus(x: float32[2, n]) -> float32[n], n a multiple of 128",
        lines=13,
        reference=kernels.exp_minus_reference,
        cases=(_matrix(2, 128), _matrix(2, 256)),
        hints=(
            "Thread 2 needs both halves before it may read. How many arrivals make the barrier "
            "complete?",
            "plgpu.Barrier(num_arrivals=2). Threads 0 and 1 each arrive once, after their own "
            "store. Thread 2 waits once.",
            "both = plgpu.Barrier(num_arrivals=2)\n"
            "... and in the kernel\n"
            "@pl.when(thread == 0)\n"
            "def exponential():\n"
            "    items_smem[0] = jnp.exp(x_gmem[0])\n"
            "    plgpu.barrier_arrive(both)\n"
            "... the same for thread 1 with -x_gmem[1]; thread 2 waits for both and writes "
            "items_smem[0] + items_smem[1]",
        ),
        requires={"barrier_arrive": 2, "barrier_wait": 1},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="barriers.take_turns",
        function="take_turns",
        title="Take turns",
        statement=(
            "Start from x and replace it `rounds` times by x / 2 + 1. Thread 0 halves what is in "
            "item_smem, thread 1 adds 1 to it, in turn. Thread 0 also fills item_smem at the "
            "start and writes y_gmem at the end."
        ),
        signature="take_turns(x: float32[n], *, rounds: int) -> float32[n], n a multiple of 128",
        lines=16,
        reference=kernels.take_turns_reference,
        cases=(_vector(128, rounds=3), _vector(256, rounds=1), _vector(128, rounds=6)),
        hints=(
            "Each thread has to know when it is its turn, so there are two messages in every "
            "round: 'I have halved', and 'I have added'. Each is one barrier, with one who "
            "arrives and one who waits.",
            "In a round, thread 0 halves, arrives on halved and waits for added; thread 1 waits "
            "for halved, adds and arrives on added. Both loop `rounds` times. After its loop, "
            "thread 0 has waited for the last `added` and may write y_gmem.",
            "@pl.when(thread == 0)\n"
            "def halves():\n"
            "    item_smem[...] = x_gmem[...]\n"
            "\n"
            "    @pl.loop(0, rounds)\n"
            "    def _(i):\n"
            "        item_smem[...] = item_smem[...] / 2\n"
            "        plgpu.barrier_arrive(halved)\n"
            "        plgpu.barrier_wait(added)\n"
            "\n"
            "    y_gmem[...] = item_smem[...]",
        ),
        requires={"barrier_arrive": 2, "barrier_wait": 2, "scan": 2},
    )
)

register(
    Exercise(
        id="barriers.queue",
        function="queue",
        title="A queue that keeps every rule",
        statement=(
            "Return 2 * x + 1, row by row, each batch through a queue of `slots` slots. Thread 0 "
            "puts 2 * x[i] into slot i % slots, thread 1 adds 1 and writes row i. When a batch's "
            "scope ends, every completion of both arrays of barriers has been waited for, also "
            "where there are fewer rows than slots."
        ),
        signature="queue(x: float32[batches, steps, n], *, slots: int) -> float32, as x",
        lines=20,
        reference=kernels.queue_reference,
        cases=(_batches(8, 128, slots=3), _batches(2, 128, slots=3), _batches(5, 256, slots=1)),
        hints=(
            "Two messages for each slot: produced[slot] says that it is full, consumed[slot] "
            "that it is free again. The producer waits for consumed[slot] before it fills the "
            "slot again, so not in the first `slots` steps. Count: how many completions has "
            "consumed[slot] in the end, and how many waits?",
            "@pl.when(i >= slots) above the producer's wait. After its loop the producer still "
            "owes one wait for every slot that was ever used: min(slots, steps) of them.",
            "@pl.when(thread == 0)\n"
            "def producer():\n"
            "    @pl.loop(0, steps)\n"
            "    def _(i):\n"
            "        slot = jax.lax.rem(i, slots)\n"
            "        ... wait for consumed.at[slot] if i >= slots\n"
            "        items_smem[slot] = x_gmem[i] * 2\n"
            "        plgpu.barrier_arrive(produced.at[slot])\n"
            "\n"
            "    for slot in range(min(slots, steps)):\n"
            "        plgpu.barrier_wait(consumed.at[slot])\n"
            "... the consumer waits for produced, writes row i, and arrives on consumed",
        ),
        requires={"barrier_arrive": 2, "barrier_wait": 2, "run_scoped": 1, "scan": 1},
    )
)

register(
    Exercise(
        id="barriers.ring",
        function="ring",
        title="Mend a ring",
        statement=(
            "Three threads pass token_smem around, `laps` times, and thread t adds t + 1 to it. "
            "Thread 0 fills it with x at the start and writes y_gmem at the end, so the result "
            "is x + 6 * laps. turn[t] says that it is thread t's turn. Mend the deadlock of the "
            "ring above."
        ),
        signature="ring(x: float32[n], *, laps: int) -> float32[n], n a multiple of 128",
        lines=14,
        reference=kernels.ring_reference,
        cases=(_vector(128, laps=1), _vector(128, laps=3), _vector(256, laps=2)),
        hints=(
            "The finding says that all three wait for the first completion of their own turn. "
            "Somebody has to begin without being told. And after the last lap: who is told that "
            "it is their turn, and does anybody wait for that?",
            "Thread 0 waits in every lap but the first: @pl.when((thread > 0) | (lap > 0)). "
            "After the last lap thread 2 has arrived on turn[0] once more: thread 0 waits for "
            "that, and then the token is home.",
            "@pl.loop(0, laps)\n"
            "def _(lap):\n"
            "    @pl.when((thread > 0) | (lap > 0))\n"
            "    def _():\n"
            "        plgpu.barrier_wait(turn.at[thread])\n"
            "    ... add thread + 1 to the token, arrive on the next one's turn\n"
            "\n"
            "@pl.when(thread == 0)\n"
            "def end():\n"
            "    plgpu.barrier_wait(turn.at[0])\n"
            "    y_gmem[...] = token_smem[...]",
        ),
        requires={"barrier_arrive": 1, "barrier_wait": 1, "scan": 1},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="barriers.two_compute_threads",
        function="sum_exp",
        title="Two threads that compute",
        statement=(
            "Return the sum of exp(tile) over the tiles of 64 rows of x. Thread 2 brings the "
            "tiles (bring_tiles, above). Threads 0 and 1 compute: each has 32 of the 64 rows of "
            "every tile, takes 232 registers per lane, and writes its half of y_gmem."
        ),
        signature="sum_exp(x: float32[tiles * 64, 128]) -> float32[64, 128], 3 tiles or more",
        lines=12,
        reference=kernels.sum_exp_reference,
        cases=(_matrix(512, 128), _matrix(192, 128), _matrix(320, 128)),
        hints=(
            "compute is add_up, on half of the rows: thread 0 has rows 0 to 31, thread 1 rows 32 "
            "to 63. How many registers does each of two compute threads get? And a slot may be "
            "filled again when both have read it: what does that say about the barriers of "
            "consumed?",
            "232 registers. rows = pl.ds(thread * 32, 32), x_smem[slot, rows], and a total of "
            "(32, 128), which goes to y_gmem[rows]. consumed needs num_arrivals=2; produced does "
            "not, as the copy is its one arrival, and both threads wait for it.",
            "plgpu.set_max_registers(232, action='increase')\n"
            "rows = pl.ds(thread * 32, 32)\n"
            "def step(ti, total):\n"
            "    slot = jax.lax.rem(ti, SLOTS)\n"
            "    plgpu.barrier_wait(produced.at[slot])\n"
            "    total = total + jnp.exp(x_smem[slot, rows])\n"
            "    plgpu.commit_smem()\n"
            "    plgpu.barrier_arrive(consumed.at[slot])\n"
            "    return total\n"
            "... then the loop, as in add_up, with zeros of (32, 128); and below\n"
            "produced = plgpu.Barrier(num_barriers=SLOTS)\n"
            "consumed = plgpu.Barrier(num_barriers=SLOTS, num_arrivals=2)",
        ),
        requires={"copy_gmem_to_smem": 1, "set_max_registers": 2, "barrier_arrive": 1},
        rtol=1e-4,
        atol=1e-4,
    )
)

register(
    Exercise(
        id="barriers.sum_of_products",
        function="sum_of_products",
        title="A specialized pipeline",
        statement=(
            "Return the sum of a_tile * b_tile over the tiles of 64 rows of a and b. Let "
            "plgpu.emit_pipeline_warp_specialized bring the tiles with its memory thread, and "
            "two threads compute, each on 32 of the 64 rows."
        ),
        signature="sum_of_products(a: float32[tiles * 64, 128], b: the same) -> float32[64, 128]",
        lines=18,
        reference=kernels.sum_products_reference,
        cases=tuple(Case((Spec((m, 128), "float32"),) * 2) for m in (512, 64, 704)),
        hints=(
            "Start from the example above. What changes: two inputs, so two specs and two "
            "references in step; two threads compute, so num_compute_wgs=2, and each reads and "
            "writes 32 rows.",
            "step(indices, a_smem, b_smem, total) multiplies a_smem[rows] and b_smem[rows], with "
            "rows = pl.ds(thread * 32, 32). compute(pipeline) calls pipeline with zeros of "
            "(32, 128) and stores what it returns to y_gmem[rows].",
            "def step(indices, a_smem, b_smem, total):\n"
            "    total = total + a_smem[rows] * b_smem[rows]\n"
            "    plgpu.commit_smem()\n"
            "    return total\n"
            "def compute(pipeline):\n"
            "    y_gmem[rows] = pipeline(jnp.zeros((32, 128), jnp.float32))\n"
            "... then emit_pipeline_warp_specialized(step, grid=(tiles,), in_specs=[spec, spec], "
            "max_concurrent_steps=3, wg_axis='thread', num_compute_wgs=2, memory_registers=40, "
            "compute_context=compute)(a_gmem, b_gmem)",
        ),
        requires={"copy_gmem_to_smem": 2, "set_max_registers": 2},
        rtol=1e-4,
        atol=1e-4,
    )
)
