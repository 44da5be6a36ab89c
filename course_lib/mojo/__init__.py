"""Mojo programs in notebooks: compiled everywhere, run where there is a GPU.

%load_ext course_lib.mojo      # then: %%mojo_gpu
compile_program(text)          # PTX, registers, spills of each kernel
run_program(text)              # on the GPU of this machine, else the record of one
run_on_cpu(text)               # a program without kernels, on this machine's CPU
"""

from typing import Any

from course_lib.mojo.answers import Answer
from course_lib.mojo.compiling import Kernel, Program, compile_program
from course_lib.mojo.errors import (
    MojoCompileError,
    MojoError,
    MojoMissing,
    MojoRunError,
    MojoTimeout,
)
from course_lib.mojo.expecting import unmet
from course_lib.mojo.running import Output, run_on_cpu, run_program

__all__ = [
    "Answer",
    "Kernel",
    "MojoCompileError",
    "MojoError",
    "MojoMissing",
    "MojoRunError",
    "MojoTimeout",
    "Output",
    "Program",
    "compile_program",
    "load_ipython_extension",
    "run_on_cpu",
    "run_program",
    "unmet",
]


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext course_lib.mojo` calls."""
    from course_lib.mojo import magic

    magic.load_ipython_extension(ipython)
