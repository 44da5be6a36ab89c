"""The rules: what the simulator finds, how sure it is, and where that is written.

Each rule has a stable id, a severity and a source. `error`: the hardware may do
wrong. `note`: probably unneeded to fix, or the sources leave open whether it
can go wrong (then `source` says "unknown" and why). `why` and `fix` are what a
finding prints; `tests/simulator/litmus` has a wrong kernel and its right twin
for every id.
"""

from __future__ import annotations

import dataclasses

from course_lib.diagnostics import Severity

_PTX = "PTX ISA"
_REF = "Pallas:MGPU reference"


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule. `what` is a template of the finding's first sentence."""

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    source: str


_E, _N = Severity.ERROR, Severity.NOTE

_TABLE = (
    # Order between accesses.
    Rule(
        "data-race", _E, "two accesses to the same memory without an order between them",
        "Nothing makes one of them wait for the other, so the hardware may do them in either "
        "order, or at the same time.",
        "Let one side signal after its access, and the other wait before its own: with a Barrier "
        "in a block, a ClusterBarrier in a cluster, a semaphore between devices.",
        f"{_PTX}, Memory Consistency Model (data races); {_REF}, Barrier",
    ),
    Rule(
        "missing-commit-smem", _E, "an asynchronous unit touches shared memory written by a thread",
        "The TMA engine and the tensor core look at shared memory through another path (the async "
        "proxy): without a fence they may see what was there before the write.",
        "Call plgpu.commit_smem() after the write and before the asynchronous operation is issued "
        "(before the barrier_arrive, if another thread issues it).",
        f"{_PTX}, fence.proxy.async; {_REF}, commit_smem",
    ),
    Rule(
        "missing-commit-smem-after-read", _N, "shared memory is refilled after a plain read",
        "The reference page asks for a fence here too; JAX's own pipelines leave it out, and "
        "whether hardware needs it is unknown.",
        "If in doubt, call plgpu.commit_smem() between the read and the copy.",
        f"{_REF}, commit_smem (unknown: JAX's emit_pipeline_warp_specialized does without)",
    ),
    Rule(
        "read-before-arrival", _E, "a copy's destination is read before the copy is done",
        "A copy runs in the background: until its barrier completes, the memory may hold old "
        "values, new ones, or a mixture.",
        "Call plgpu.barrier_wait on the copy's barrier before the read.",
        f"{_PTX}, cp.async.bulk (asynchronous completion); {_REF}, asynchronous copies",
    ),
    Rule(
        "mma-operand-not-arrived", _E, "an MMA is issued before its operand is known to be there",
        "The tensor core reads the operand while the copy may still be writing it.",
        "Call plgpu.barrier_wait on the operand's barrier before the operation that reads it.",
        f"{_PTX}, wgmma.mma_async and tcgen05.mma (async proxy); {_REF}, MMA",
    ),
    Rule(
        "mma-operand-overwritten", _E, "an operand is overwritten while an MMA may still read it",
        "The MMA runs in the background and reads its operands until it is waited for.",
        "Wait for the MMA first: for wgmma with plgpu.wgmma_wait(n), for tcgen05 on the barrier "
        "that it arrives on.",
        f"{_PTX}, wgmma.wait_group; {_REF}, waiting for the operation to complete",
    ),
    Rule(
        "store-source-overwritten", _E, "shared memory is overwritten while a copy still reads it",
        "The copy to global memory reads its source in the background.",
        "Call plgpu.wait_smem_to_gmem(n, wait_read_only=True), with n small enough that this copy "
        "is not among the n left running, before the write (and let every thread know).",
        f"{_PTX}, cp.async.bulk.wait_group.read; {_REF}, SMEM to GMEM copies",
    ),
    Rule(
        "store-not-waited", _E, "global memory is read or written while a copy still writes it",
        "The copy from shared memory lands in the background; wait_read_only only says that its "
        "source was read.",
        "Call plgpu.wait_smem_to_gmem(n) without wait_read_only, n small enough, first.",
        f"{_PTX}, cp.async.bulk.wait_group; {_REF}, SMEM to GMEM copies",
    ),
    Rule(
        "wait-from-another-thread", _E, "a copy to global memory is waited for by another thread",
        "wait_smem_to_gmem only waits for the copies that the calling thread issued.",
        "Wait in the thread that issued the copy, then signal the others with a barrier.",
        f"{_REF}, SMEM to GMEM copies; {_PTX}, cp.async.bulk.wait_group (executing thread)",
    ),
    Rule(
        "cluster-smem-reuse", _E, "a block overwrites another block's memory that may be in use",
        "The blocks of a cluster run at their own pace: the first at a collective operation "
        "overwrites the others' memory too.",
        "Let all blocks barrier_arrive on and barrier_wait for a plgpu.ClusterBarrier (for tensor "
        "memory, with orders_tensor_core=True) between the last use and the next collective "
        "operation. Or give that one a slot of its own, if there is room.",
        f"{_REF}, reusing SMEM for collective copies, reusing TMEM for collective MMA",
    ),
    Rule(
        "cluster-memory-ended", _E, "a block uses another block's memory that may have ended",
        "Shared memory ends with its scope, and with its block: who comes later reads, writes or "
        "arrives on memory that is somebody else's by then.",
        "Let all blocks meet at a plgpu.ClusterBarrier (barrier_arrive, barrier_wait) after the "
        "last use, before any of them leaves the scope or the kernel.",
        f"CUDA C++ Programming Guide, distributed shared memory; {_PTX}, mapa",
    ),
    # Tensor memory.
    Rule(
        "tmem-load-not-waited", _E, "tensor memory is overwritten while a load may still read it",
        "The loaded values are safe to use, but the load itself is only over after a wait.",
        "Call plgpu.wait_load_tmem() after the load and before the memory is used again.",
        f"{_PTX}, tcgen05.wait::ld; {_REF}, TMEM load",
    ),
    Rule(
        "tmem-store-not-committed", _E, "tensor memory is used before a store to it is done",
        "A store to tensor memory runs in the background.",
        "Call plgpu.commit_tmem() after the store.",
        f"{_PTX}, tcgen05.wait::st; {_REF}, TMEM store",
    ),
    Rule(
        "tmem-mma-not-waited", _E, "tensor memory is used before the MMA that writes it is done",
        "tcgen05 operations run in the background and signal a barrier when they are done.",
        "Pass a Barrier to the MMA (or call plgpu.tcgen05_commit_arrive) and barrier_wait for it.",
        f"{_PTX}, tcgen05.commit; {_REF}, waiting for the operation to complete",
    ),
    Rule(
        "missing-orders-tensor-core", _E, "a barrier hands over unordered tensor-core work",
        "By default, tensor-core and TMEM operations may move across a barrier's arrive and wait.",
        "Allocate the barrier with orders_tensor_core=True.",
        f"{_REF}, waiting for tcgen05 instructions (warning); {_PTX}, tcgen05.fence",
    ),
    Rule(
        "tmem-indexed", _E, "tensor memory is read or written with [...]",
        "TMEM is read and written asynchronously: the instructions only start a load or a store, "
        "and [...] would hide that.",
        "Read with plgpu.async_load_tmem(ref), and write with plgpu.async_store_tmem(ref, value), "
        "followed by plgpu.commit_tmem().",
        f"{_PTX}, tcgen05.ld and tcgen05.st; {_REF}, TMEM load and TMEM store",
    ),
    # Barriers.
    Rule(
        "barrier-overrun", _E, "a barrier may complete twice without a wait in between",
        "A barrier only remembers whether its phase is even or odd: a waiter that misses a phase "
        "waits for the wrong one, and the barrier's state is corrupted.",
        "Add back pressure: before arriving again, wait for a second barrier on which the waiting "
        "thread arrives after its wait.",
        f"{_REF}, Barrier (first warning); {_PTX}, mbarrier phases",
    ),
    Rule(
        "barrier-unwaited", _E, "a barrier ends with a completion that nobody waited for",
        "Completions and waits must be equal in number: the compiler reuses the barrier's memory.",
        "Wait for the last completion too, or do not arrive.",
        f"{_REF}, Barrier (second warning)",
    ),
    Rule(
        "barrier-unwaited-at-exit", _N, "a kernel ends with a completion nobody waited for",
        "The reference asks for a wait per completion; whether it matters when the whole kernel "
        "ends is unknown (JAX's own Blackwell matmul leaves some).",
        "If in doubt, wait for the last completion too.",
        f"{_REF}, Barrier (second warning; unknown at a kernel's end)",
    ),
    Rule(
        "barrier-skipped-phase", _E, "a thread waits for some of a barrier's completions only",
        "Each thread counts the phases it waited for; one that skips a phase waits for the wrong "
        "parity from then on.",
        "Let every thread that waits on the barrier wait for every completion of it.",
        f"{_REF}, Barrier (third warning)",
    ),
    Rule(
        "barrier-arrivals-pending", _E, "a barrier ends in the middle of a phase",
        "Some arrivals came and the rest never did: the next owner of its memory finds a barrier "
        "half way.",
        "Arrive exactly num_arrivals times per phase.",
        f"{_PTX}, mbarrier.inval (pending operations); {_REF}, Barrier",
    ),
    Rule(
        "deadlock", _E, "every thread that is left waits for ever",
        "Nothing is under way that could complete what they wait for.",
        "Check that every wait has its arrivals: the right barrier, num_arrivals, and a copy or an "
        "arrive on every path that leads to the wait.",
        f"{_PTX}, mbarrier.try_wait; {_REF}, Barrier",
    ),
    Rule(
        "semaphore-left-nonzero", _N, "a semaphore does not end at zero",
        "A later kernel that gets the same memory would start from a wrong count.",
        "Wait (with decrement) for as much as was signalled.",
        f"{_REF}, Semaphore (unknown: JAX zeroes a kernel's own semaphores)",
    ),
    # Copies.
    Rule(
        "unfinished-copy", _E, "a kernel ends while a copy still uses shared memory",
        "The shared memory belongs to the next block as soon as this one ends.",
        "Wait before the end: plgpu.barrier_wait for a copy into shared memory, "
        "plgpu.wait_smem_to_gmem(0) for a copy out of it.",
        f"{_PTX}, cp.async.bulk (shared memory lifetime); {_REF}, asynchronous copies",
    ),
    Rule(
        "uncommitted-copy", _E, "a copy is in no group, so no wait covers it",
        "A copy with commit_group=False belongs to the next group that is committed; waits count "
        "groups.",
        "Call plgpu.commit_smem_to_gmem_group() after the last copy of the group.",
        f"{_REF}, grouping several copies; {_PTX}, cp.async.bulk.commit_group",
    ),
    Rule(
        "collective-mismatch", _E, "blocks of a cluster issue different collective copies",
        "Each block loads a part of the data and sends it to all: all must ask for the same.",
        "Issue the same copy (same source, same destination) from every block along the axis, "
        "or drop collective_axes.",
        f"{_REF}, collective copies (first warning)",
    ),
    Rule(
        "leader-tracked-wait", _E, "the following block waits for a leader-tracked copy",
        "With leader_tracked only the first block's barrier sees the copy complete.",
        "Wait in the leader, and let the other block wait for a ClusterBarrier or for the MMA.",
        f"{_REF}, leader-tracked collective copies",
    ),
    # Values and shapes.
    Rule(
        "uninitialized-read", _E, "memory is read that nobody has written",
        "Fresh memory holds whatever was there before.",
        "Write it first (or start the accumulation with accumulate=False).",
        f"{_PTX}, state spaces; {_REF}, memory spaces",
    ),
    Rule(
        "unwritten-output", _N, "a kernel leaves a part of its output unwritten",
        "JAX does not clear an output: what no block writes holds whatever was there before (in "
        "this model NaN, or the largest integer).",
        "Check that the blocks together cover the whole output.",
        f"{_REF}, plgpu.kernel (outputs are allocated, not initialised)",
    ),
    Rule(
        "out-of-bounds", _E, "an access outside of its ref",
        "The hardware does not check: it reads or overwrites whatever lies there.",
        "Check the index and the size of the slice against the ref's shape.",
        f"{_PTX}, ld and st; JAX indexing semantics for refs",
    ),
    Rule(
        "unaligned-offset", _E, "a slice of a tiled ref does not start at a tile",
        "A copy moves whole tiles of the shared memory layout; other offsets are silently wrong.",
        "Make the offset and the size multiples of the tiling.",
        f"{_REF}, memory reference transforms (note)",
    ),
    Rule(
        "illegal-mma", _E, "an MMA that the tensor core does not have: shape, dtype or layout",
        "The instruction does not exist: the kernel would not compile.",
        "Choose a shape and dtypes of the table in the reference.",
        f"{_PTX}, wgmma and tcgen05 shapes; {_REF}, issuing the operation",
    ),
    Rule(
        "wrong-architecture", _E, "an operation that this generation of GPUs does not have",
        "The instruction does not exist there: the kernel would not compile.",
        "Simulate for the architecture that has it (arch=\"sm_100a\" is Blackwell, \"sm_90a\" "
        "Hopper), or write it with what this one has.",
        f"{_PTX}, target notes of wgmma, tcgen05, clusterlaunchcontrol, cp.async.bulk.tensor",
    ),
    Rule(
        "over-capacity", _E, "a block asks for more memory than an SM has",
        "The launch would fail.",
        "Use smaller tiles or fewer buffers.",
        "CUDA Programming Guide, technical specifications per compute capability",
    ),
    Rule(
        "register-budget", _E, "a thread asks for a number of registers that a lane cannot have",
        "The instruction does not exist: the kernel would not compile.",
        "Ask for a multiple of 8 from 24 to 256.",
        f"{_PTX}, setmaxnreg",
    ),
    Rule(
        "not-collective", _E, "an allocation is not made by all that use it together",
        "Without collective_axes each thread would get memory of its own, which does not exist; "
        "with it, all threads must make the same allocation.",
        "Pass the thread axis: run_scoped(..., collective_axes=<thread_name>), from every thread.",
        f"{_REF}, collective allocations in run_scoped, collective MMA",
    ),
    Rule(
        "accumulator-read-early", _E, "an accumulator is read while its MMA may still run",
        "The tensor core writes the accumulator's registers in the background.",
        "Read it with acc[...] (which waits), or after plgpu.wgmma_wait(0).",
        f"{_PTX}, wgmma.wait_group",
    ),
    Rule(
        "cancel-result-early", _E, "a cluster-cancel result is read before its barrier",
        "The answer arrives in the background, like a copy.",
        "barrier_wait on the barrier given to try_cluster_cancel before query_cluster_cancel.",
        f"{_PTX}, clusterlaunchcontrol.try_cancel; {_REF}, cluster launch control",
    ),
    Rule(
        "cancel-not-collective", _E, "several threads or blocks each cancel a cluster",
        "Each of these calls takes a cluster of its own out of the grid, and its answer goes to "
        "all blocks of this one: one answer overwrites the other, and a tile is never computed.",
        "Name all axes along which it is called: collective_axes of try_cluster_cancel, or "
        "thread_axis and cluster_axes of dynamic_scheduling_loop.",
        f"{_PTX}, clusterlaunchcontrol.try_cancel (.multicast::cluster::all); JAX, "
        "try_cluster_cancel (collective_axes), dynamic_scheduling_loop (cluster_axes)",
    ),
    Rule(
        "cancel-after-failure", _E, "a cluster is asked for after the answer that none is left",
        "Once a block has seen a request fail, another request has no defined effect.",
        "Leave the loop when query_cluster_cancel says that the request did not succeed.",
        f"{_PTX}, clusterlaunchcontrol.try_cancel (undefined behavior after a failure is observed)",
    ),
    # The program itself.
    Rule(
        "exception", _E, "the kernel's Python code raised",
        "", "", "Python",
    ),
    Rule(
        "step-limit", _E, "the kernel did not come to an end within the step limit",
        "A loop may never end; the limit keeps the notebook alive.",
        "Check the loop's condition, or raise max_steps.",
        "course_lib.simulator",
    ),
    Rule(
        "unsupported", _E, "the simulator does not know an operation",
        "", "Simulate a kernel without it, or run it on a GPU.", "course_lib.simulator",
    ),
)  # fmt: skip

RULES: dict[str, Rule] = {r.id: r for r in _TABLE}
