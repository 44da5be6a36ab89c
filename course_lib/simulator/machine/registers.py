"""Registers that the threads of a block hand to each other (PTX ISA, setmaxnreg)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import WaitFor

_LANES = 128  # of a Pallas thread
_PER_SM = 65_536  # registers of 32 bits (CUDA Programming Guide, technical specifications)
_LEAST, _MOST = 24, 256  # what setmaxnreg takes


class Registers:
    """The registers of one block, counted per lane of a Pallas thread.

    Each thread starts with its share, in multiples of 8; whoever gives some up leaves them to
    those that ask for more. The pool is what the block was launched with (PTX ISA, setmaxnreg: it
    is the CTA's), and not all that an SM has: three threads start with 168 each, so they share
    504, and 8 of the SM's 512 are nobody's. A compiler may ask for fewer at launch, so what
    waits for ever here does so on every card.
    """

    name = "registers"

    def __init__(self, threads: int) -> None:
        self.each = min(_PER_SM // (_LANES * threads) // 8 * 8, _MOST)
        self.total = self.each * threads
        self.held: dict[Any, int] = {}

    def of(self, thread: Any) -> int:
        return self.held.get(thread.index, self.each)

    def free_for(self, thread: Any, threads: int) -> int:
        """How many a thread could have now: those that no other one holds."""
        others = sum(self.held.get(i, self.each) for i in range(threads) if i != thread.index)
        return self.total - others


def _set_max(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    n, action = int(op.params["n"]), op.params["action"]
    if not _LEAST <= n <= _MOST:
        raise KernelFault(
            "register-budget",
            f"A lane cannot have {n} registers: setmaxnreg takes {_LEAST} to {_MOST}",
        )

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        registers, threads = thread.block.registers, thread.block.cluster.device.kernel.num_threads
        if action == "increase" and registers.free_for(thread, threads) < n:
            yield WaitFor(registers, op, lambda: registers.free_for(thread, threads) >= n, n)
        registers.held[thread.index] = n
        thread.machine.changed = True

    return Step(run, waits=True, shared=True)


REGISTERS: dict[str, Maker] = {"set_max_registers": _set_max}
