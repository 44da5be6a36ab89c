"""PTX, SASS, resources and layout errors of a kernel, on any machine.

    code = compile_for(kernel, x, arch="sm_100a")
    code.registers, code.spill_bytes, code.smem_bytes
    code.count("tcgen05.mma")
    code.show()

A kernel is handed to a worker process, one for each architecture, and lowered
there: Mosaic takes the architecture from the process's default device, so what
the notebook's process would lower is always for sm_90. Compiling proves which
instructions and resources a kernel has; it proves neither that it is right nor
that it is fast.
"""

from course_lib.compiler.api import close_workers, compile_for, unmet_expectations
from course_lib.compiler.compiled import Compiled, Kernel, Lines
from course_lib.compiler.errors import CompileError, ToolchainMissing
from course_lib.compiler.expectations import expectations
from course_lib.compiler.layouts import LayoutDecision, Layouts
from course_lib.compiler.listing import Instruction
from course_lib.compiler.targets import TARGETS, Target

__all__ = [
    "TARGETS",
    "CompileError",
    "Compiled",
    "Instruction",
    "Kernel",
    "LayoutDecision",
    "Layouts",
    "Lines",
    "Target",
    "ToolchainMissing",
    "close_workers",
    "compile_for",
    "expectations",
    "unmet_expectations",
]
