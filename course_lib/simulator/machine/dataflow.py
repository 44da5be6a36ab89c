"""Which refs a kernel can write: memory that nobody writes needs no log."""

from __future__ import annotations

from collections.abc import Iterator

from course_lib.simulator import ir

_WRITES = {
    "swap": ("ref",), "addupdate": ("ref",), "masked_swap": ("ref",), "atomic": ("ref",),
    "copy_smem_to_gmem": ("dst",), "copy_gmem_to_smem": ("dst",), "try_cluster_cancel": ("dst",),
}  # fmt: skip


def written_params(program: ir.Program, index: int) -> frozenset[int]:
    """The positions of a block's params that it, or a block it calls, can write."""
    key = ("written", index)
    if key not in program.compiled:
        program.compiled[key] = _written(program, index, {})
    return program.compiled[key]


def _written(program: ir.Program, index: int, known: dict[int, frozenset[int]]) -> frozenset[int]:
    if index in known:
        return known[index]
    known[index] = frozenset()
    block = program.blocks[index]
    positions = {slot: i for i, slot in enumerate(block.params)}
    found: set[int] = set()
    for op in block.ops:
        slots = [op.refs[r].slot for r in _WRITES.get(op.name, ()) if r in op.refs]
        slots += list(_written_inputs(program, op, known))
        found |= {positions[s] for s in slots if s in positions}
    known[index] = frozenset(found)
    return known[index]


def _written_inputs(
    program: ir.Program, op: ir.Op, known: dict[int, frozenset[int]]
) -> Iterator[int]:
    """The slots that an op hands to a block which writes them."""
    for which, sub in enumerate(ir.sub_blocks(op)):
        inputs = _inputs_of(op, which)
        for position in _written(program, sub, known):
            if position < len(inputs):
                yield inputs[position]


def _inputs_of(op: ir.Op, which: int) -> tuple[int, ...]:
    """The slots that fill the params of an op's block, in order."""
    if op.name == "cond":
        return op.inputs[1:]
    if op.name == "while":
        n, m = op.params["cond_consts"], op.params["body_consts"]
        consts = op.inputs[:n] if which == 0 else op.inputs[n : n + m]
        return (*consts, *op.inputs[n + m :])
    return op.inputs


def uses_mma(program: ir.Program, kernel: ir.Op) -> bool:
    """Whether a kernel has an MMA in it."""
    ops = program.walk(kernel.params["blocks"][0])
    return any(op.name in ("wgmma_ref", "tcgen05_mma") for op, _ in ops)
