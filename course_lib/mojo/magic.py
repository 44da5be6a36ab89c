"""`%%mojo_gpu` and `%%mojo_cpu`: cells that hold a Mojo program.

    %load_ext course_lib.mojo

    %%mojo_gpu --arch sm_90a --expect "ld.shared>=1" --expect spill_bytes=0 --as first
    ...the program...

The cell's program is compiled for the architecture and its kernels are shown
with their PTX. Where this machine has a GPU that Mojo supports, it runs there;
elsewhere the cell shows the record of a GPU, and says so. `--as` makes what the
cell shows a variable of the notebook, a `Result`.

`--exercise` marks the answer to an exercise: a cell with gaps says that it is not
done yet. `--wrong` marks a program that Mojo has to refuse. A program of `%%mojo_cpu`
has no kernels and runs on this machine's CPU.
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
from course_lib.mojo.answers import Answer
from course_lib.mojo.compiling import Kernel, Program
from course_lib.mojo.errors import MojoCompileError, MojoError
from course_lib.mojo.expecting import unmet
from course_lib.mojo.running import Output

USAGE_GPU = (
    '%%mojo_gpu [--arch sm_90a|sm_100a] [--expect "ld.shared>=1"] [--no-run] [--timeout 60] '
    "[--as name] [--exercise chapter.name] [--wrong]"
)
USAGE_CPU = "%%mojo_cpu [--timeout 60] [--as name]"

_NO_OUTPUT = (
    "Not run: there is no GPU here that Mojo supports, and no record of this program. "
    "The programs of the chapters, unchanged, have one."
)
_MENDED = "It compiles: nothing is wrong with this program any more."


class MojoExpectationError(MojoError):
    """A program compiles, but not to what the cell expects."""


class Result:
    """What a cell shows: the kernels with their PTX, and the program's output.

    Attributes:
      program: the compiled program; None for one that Mojo refused, or that has run on the CPU.
      output: what it printed; None where it did not run.
      error: why Mojo refused it, in the clinic's words; "" where it did not.
      refused: the clinic's entry that knows the mistake ("mojo-int-argument"), "" for none.
      line: the line of the program that Mojo refused, from 1; 0 for none.
    """

    def __init__(
        self,
        program: Program | None = None,
        output: Output | None = None,
        *,
        ran: bool = False,
        refusal: MojoCompileError | None = None,
        mended: bool = False,
    ):
        self.program = program
        self.output = output
        self.error = str(refusal) if refusal else ""
        self.refused = refusal.entry if refusal else ""
        self.line = refusal.line if refusal else 0
        self._note = _MENDED if mended else _NO_OUTPUT if ran and output is None else ""

    @property
    def compiled(self) -> bool:
        """Whether Mojo accepted the program."""
        return not self.error

    @property
    def printed(self) -> list[str]:
        """The lines that the program printed."""
        return self.output.text.splitlines() if self.output is not None else []

    def count(self, pattern: str) -> int:
        """How many instructions of all kernels have a name that contains `pattern`."""
        return self._compiled().count(pattern)

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name."""
        return self._compiled().kernel(name)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels, by name."""
        return self._compiled().kernels

    @property
    def registers(self) -> int:
        """Registers per lane, of the kernel that needs most."""
        return self._compiled().registers

    @property
    def spill_bytes(self) -> int:
        """Bytes spilled per lane, in all kernels."""
        return self._compiled().spill_bytes

    @property
    def smem_bytes(self) -> int:
        """Static shared memory per block in bytes, of the kernel that needs most."""
        return self._compiled().smem_bytes

    def _compiled(self) -> Program:
        if self.program is None:
            raise MojoError("This program has no kernels: it was refused, or ran on the CPU.")
        return self.program

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        lines = []
        if self.program is not None:
            lines += [f"Compiled for {self.program.arch}"]
            lines += [f"  {k}" for k in self.program.kernels]
        if self.error:
            lines += ["Refused, as it should be.", self.error]
        elif self.output is not None:
            lines += [f"Output {self.output.origin}:", self.output.text.rstrip()]
        elif self._note:
            lines += [self._note]
        return "\n".join(lines)

    def html(self) -> str:
        """The same for a notebook; the listings are folded."""
        parts = []
        if self.program is not None:
            arch = escape(self.program.arch)
            parts += [f"<p>Compiled for {arch}; open a line to see the PTX.</p>"]
            parts += [_folded(k) for k in self.program.kernels]
        if self.error:
            parts += ["<p>Refused, as it should be.</p>", _block(self.error)]
        elif self.output is not None:
            parts += [f"<p>Output <em>{escape(self.output.origin)}</em>:</p>"]
            parts += [_block(self.output.text.rstrip())]
        elif self._note:
            parts += [f"<p>{self._note}</p>"]
        return f'<section aria-label="Mojo program">{"".join(parts)}</section>'


def _folded(kernel: Kernel) -> str:
    return f"<details><summary>{escape(str(kernel))}</summary>{_block(kernel.ptx)}</details>"


def _block(text: str) -> str:
    return f'<pre style="white-space: pre-wrap">{escape(text)}</pre>'


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a magic's line, and how it should read."""

    def __init__(self, line: str):
        super().__init__(prog=line.split()[0], add_help=False)
        self._line = line

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}. Usage: {self._line}")


def _name(text: str) -> str:
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f'"{text}" is no name for a variable')
    return text


def _parser(usage: str) -> _Parser:
    parser = _Parser(usage)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--as", dest="name", type=_name)
    return parser


def _gpu_parser() -> _Parser:
    parser = _parser(USAGE_GPU)
    parser.add_argument("--arch", default="sm_90a", choices=compiling.ARCHITECTURES)
    parser.add_argument("--expect", action="append", default=[])
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--exercise", default="")
    parser.add_argument("--wrong", action="store_true")
    return parser


@magics_class
class MojoMagics(Magics):
    """The cell magics `%%mojo_gpu` and `%%mojo_cpu`."""

    @cell_magic
    def mojo_gpu(self, line: str, cell: str) -> None:
        """Compiles the cell's Mojo program, shows its kernels, and runs it where it can."""
        options = _gpu_parser().parse_args(shlex.split(line))
        if options.exercise:
            answer = Answer(cell)
            self._keep(options.exercise.split(".")[-1], answer)
            if not answer.done:
                print(f"{options.exercise}: not done yet: fill in the gap and run the cell again.")
                return
        if options.wrong:
            self._show(_refused(cell, options.arch), options.name)
            return
        program = compiling.compile_program(cell, arch=options.arch)
        failed = unmet(program, options.expect)
        running_it = not failed and not options.no_run
        output = running.run_program(cell, timeout_s=options.timeout) if running_it else None
        self._show(Result(program, output, ran=running_it), options.name)
        if failed:
            raise MojoExpectationError("\n".join(failed))

    @cell_magic
    def mojo_cpu(self, line: str, cell: str) -> None:
        """Runs the cell's Mojo program, which has no kernels, on this machine's CPU."""
        options = _parser(USAGE_CPU).parse_args(shlex.split(line))
        self._show(Result(output=running.run_on_cpu(cell, timeout_s=options.timeout)), options.name)

    def _show(self, result: Result, name: str | None) -> None:
        if name:
            self._keep(name, result)
        display(result)

    def _keep(self, name: str, value: object) -> None:
        if self.shell is not None:
            self.shell.user_ns[name] = value


def _refused(source: str, arch: str) -> Result:
    """What Mojo says to a program that is wrong on purpose, or to one that a reader has mended."""
    try:
        return Result(compiling.compile_program(source, arch=arch), mended=True)
    except MojoCompileError as error:
        return Result(refusal=error)


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext course_lib.mojo` calls."""
    ipython.register_magics(MojoMagics)
