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
        roles = op.refs if op.name == "inline_model" else _WRITES.get(op.name, ())
        slots = [op.refs[r].slot for r in roles if r in op.refs]
        slots += list(_written_inputs(program, op, known))
        found |= {positions[s] for s in slots if s in positions}
    known[index] = frozenset(found)
    return known[index]


def _written_inputs(
    program: ir.Program, op: ir.Op, known: dict[int, frozenset[int]]
) -> Iterator[int]:
    """The slots that an op hands to a block which writes them."""
    for which, sub in enumerate(ir.sub_blocks(op)):
        inputs = inputs_of(op, which)
        for position in _written(program, sub, known):
            if position < len(inputs):
                yield inputs[position]


def inputs_of(op: ir.Op, which: int) -> tuple[int, ...]:
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


def outer_scopes(program: ir.Program, kernel: ir.Op) -> frozenset[int]:
    """The scopes (by the uid of their op) that end where the kernel ends.

    plgpu.kernel wraps a body in one; a body that is nothing but a scope, or ends with
    one, adds its own. Nothing that comes after could be given their memory.
    """
    index = kernel.params["blocks"][0]
    key = ("outer", index)
    if key not in program.compiled:
        found = {kernel.uid}
        while program.blocks[index].ops:
            last = program.blocks[index].ops[-1]
            if last.name not in ("run_scoped", "call"):
                break
            found.add(last.uid)
            index = last.params["blocks"][0]
        program.compiled[key] = frozenset(found)
    return program.compiled[key]
