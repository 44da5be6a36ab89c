"""The words of a race: what happened, and what mends it, which depends on who races by what.

The rules have words for every case; here are those for the case at hand.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.findings import region
from course_lib.simulator.machine.memory import View

_WHAT = {
    "read-before-arrival": "{} is read while a copy may still be writing it.",
    "mma-operand-not-arrived": "An MMA reads {} while a copy may still be writing it.",
    "mma-operand-overwritten": "{} is overwritten while an MMA may still read it.",
    "store-source-overwritten": "{} is overwritten while a copy may still read it.",
    "store-not-waited": "{} is used while a copy may still write it.",
    "wait-from-another-thread": "{} is used after a wait by a thread that did not issue the copy.",
    "cluster-smem-reuse": "{} is overwritten while another block of the cluster may use it.",
    "tmem-load-not-waited": "{} is overwritten while a load may still read it.",
    "tmem-store-not-committed": "{} is used while a store may still write it.",
    "tmem-mma-not-waited": "{} is used while a tcgen05 operation may still write it.",
    "missing-orders-tensor-core": "{} is handed over by a barrier without orders_tensor_core.",
    "cancel-result-early": "{} is read while the cluster cancel may still write it.",
}
# Where the operation that reads or writes is a copy to tensor memory, not an MMA.
_WHAT_OF_COPIES = {
    "mma-operand-not-arrived": "A copy to tensor memory reads {} while another copy may still be "
    "writing it.",
    "mma-operand-overwritten": "{} is overwritten while a copy to tensor memory may still read it.",
}


@dataclasses.dataclass(frozen=True)
class Advice:
    """A finding's first sentence, and its fix ("": the rule's own)."""

    what: str
    fix: str = ""


def advise(
    rule: str, r: races.Record, thread: Any, view: View, op: ir.Op, *, write: bool
) -> Advice:
    """The words for an access of `thread` that nothing orders after `r`."""
    if rule == "data-race":
        return _data_race(r, thread, view, write)
    copies = op if rule == "mma-operand-not-arrived" else r.op
    what = _WHAT[rule]
    if copies.name == "copy_smem_to_tmem":
        what = _WHAT_OF_COPIES.get(rule, what)
    return Advice(what.format(view), _fix(rule, r, thread, write))


def _fix(rule: str, r: races.Record, thread: Any, write: bool) -> str:
    if rule == "mma-operand-overwritten":
        return _WGMMA_FIRST if r.kind == races.WGMMA else _tcgen05_first(r.op)
    if rule == "tmem-mma-not-waited":
        return _tcgen05_first(r.op)
    remote = (races.REMOTE, races.UPDATE)
    if rule == "cluster-smem-reuse" and r.kind in remote and r.write and write:
        return _OWN_SLOT.format(rank=_rank(thread))
    return ""


_WGMMA_FIRST = (
    "Wait for the MMA first: plgpu.wgmma_wait(n), with n small enough that this MMA is not among "
    "the n left running (in a pipeline, a larger delay_release)."
)


def _tcgen05_first(op: ir.Op) -> str:
    """How to wait for a tcgen05 operation: on a barrier."""
    if op.name == "copy_smem_to_tmem":
        return (
            "Wait for the copy first: plgpu.tcgen05_commit_arrive(barrier) after it, and "
            "plgpu.barrier_wait(barrier). (An MMA of the same thread needs no wait.)"
        )
    return (
        "Wait for the MMA first: pass a barrier to it, or call "
        "plgpu.tcgen05_commit_arrive(barrier) after it, and plgpu.barrier_wait(barrier)."
    )


def _data_race(r: races.Record, thread: Any, view: View, write: bool) -> Advice:
    """Who races, and what orders them: it depends on how far apart they are."""
    here, there = str(view), region(view, r)
    both = here if here == there else f"overlapping parts of {view.buffer.name}"
    who, fix = _parties(r.thread, thread)
    if who == "Two blocks of a cluster" and r.write and write:
        fix = _OWN_PART.format(rank=_rank(thread))
    return Advice(f"{who} touch {both} and nothing orders them.", fix)


def _parties(one: Any, other: Any) -> tuple[str, str]:
    if one is other:
        return "Two accesses", "Wait for the first one to be over before the second."
    here, there = one.block, other.block
    if here is there:
        return "Two threads", _SAME_BLOCK
    if here.cluster is there.cluster:
        return "Two blocks of a cluster", _SAME_CLUSTER
    if here.cluster.device is there.cluster.device:
        return "Two blocks", _OTHER_BLOCKS
    return "Two devices", _OTHER_DEVICES


def _rank(thread: Any) -> str:
    """What tells the blocks of a cluster apart, as the learner would write it."""
    names = thread.block.cluster.device.kernel.cluster_names
    return " and ".join(f'jax.lax.axis_index("{name}")' for name in names)


_SAME_BLOCK = (
    "Give the two threads a plgpu.Barrier: the first calls barrier_arrive after its access, the "
    "second barrier_wait before its own."
)
_SAME_CLUSTER = (
    "Give the two blocks a plgpu.ClusterBarrier: the first calls barrier_arrive after its access, "
    "the second barrier_wait before its own."
)
_OWN_PART = (
    "If both results are wanted, give each block a part of its own: an index that depends on "
    "{rank}. If one is to follow the other, a plgpu.ClusterBarrier orders them: the first calls "
    "barrier_arrive after its access, the second barrier_wait before its own."
)
_OWN_SLOT = (
    "Give each block that stores a slot of its own, at an index that depends on {rank}, and let "
    "the reader take all of them. Or let the blocks meet at a plgpu.ClusterBarrier between the "
    "two stores."
)
_OTHER_BLOCKS = (
    "Give each block its own part of the array: does its slice depend on jax.lax.axis_index? Where "
    "one must see the other's, a semaphore (pl.get_global) orders them, if both run at a time."
)
_OTHER_DEVICES = (
    "Let the first device call pl.semaphore_signal(..., device_id=...) after its access, and the "
    "second pl.semaphore_wait before its own."
)
