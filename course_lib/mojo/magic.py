"""`%%mojo_gpu`: a cell that holds a Mojo program.

    %load_ext course_lib.mojo

    %%mojo_gpu --arch sm_90a --expect "ld.shared>=1" --expect spill_bytes=0
    ...the program...

The cell's program is compiled for the architecture and its kernels are shown
with their PTX. Where this machine has a GPU that Mojo supports, it runs there;
elsewhere the cell shows the record of a GPU, and says so.
"""

from __future__ import annotations

import argparse
import shlex
from html import escape
from typing import Any, NoReturn

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import display

from course_lib.diagnostics import OptionError
from course_lib.mojo import compiling, running
from course_lib.mojo.compiling import Program
from course_lib.mojo.errors import MojoError
from course_lib.mojo.expecting import unmet
from course_lib.mojo.running import Output

USAGE = '%%mojo_gpu [--arch sm_90a|sm_100a] [--expect "ld.shared>=1"] [--no-run] [--timeout 60]'


class MojoExpectationError(MojoError):
    """A program compiles, but not to what the cell expects."""


class Result:
    """What a cell shows: the kernels with their PTX, and the program's output."""

    def __init__(self, program: Program, output: Output | None, *, ran: bool):
        self.program = program
        self.output = output
        self._ran = ran

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        lines = [f"Compiled for {self.program.arch}", *(f"  {k}" for k in self.program.kernels)]
        if self.output is not None:
            lines += [f"Output {self.output.origin}:", self.output.text.rstrip()]
        elif self._ran:
            lines += [_NO_OUTPUT]
        return "\n".join(lines)

    def html(self) -> str:
        """The same for a notebook; the listings are folded."""
        kernels = "".join(
            f"<details><summary>{escape(str(k))}</summary><pre>{escape(k.ptx)}</pre></details>"
            for k in self.program.kernels
        )
        parts = [f"<p>Compiled for {escape(self.program.arch)}; open a line to see the PTX.</p>"]
        parts += [kernels]
        if self.output is not None:
            origin = f"<p>Output <em>{escape(self.output.origin)}</em>:</p>"
            parts += [origin, f"<pre>{escape(self.output.text.rstrip())}</pre>"]
        elif self._ran:
            parts += [f"<p>{_NO_OUTPUT}</p>"]
        return f'<section aria-label="Mojo program">{"".join(parts)}</section>'


_NO_OUTPUT = (
    "Not run: there is no GPU here that Mojo supports, and no record of this program. "
    "The programs of the chapters, unchanged, have one."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}. Usage: {USAGE}")


def _parser() -> _Parser:
    parser = _Parser(prog="%%mojo_gpu", add_help=False)
    parser.add_argument("--arch", default="sm_90a", choices=compiling.ARCHITECTURES)
    parser.add_argument("--expect", action="append", default=[])
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--timeout", type=float, default=60.0)
    return parser


@magics_class
class MojoMagics(Magics):
    """The cell magic `%%mojo_gpu`."""

    @cell_magic
    def mojo_gpu(self, line: str, cell: str) -> None:
        """Compiles the cell's Mojo program, shows its kernels, and runs it where it can."""
        options = _parser().parse_args(shlex.split(line))
        program = compiling.compile_program(cell, arch=options.arch)
        failed = unmet(program, options.expect)
        output = None
        if not failed and not options.no_run:
            output = running.run_program(cell, timeout_s=options.timeout)
        display(Result(program, output, ran=not failed and not options.no_run))
        if failed:
            raise MojoExpectationError("\n".join(failed))


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext course_lib.mojo` calls."""
    ipython.register_magics(MojoMagics)
