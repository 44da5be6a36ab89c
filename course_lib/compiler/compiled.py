"""What the compiler made of a kernel: its PTX, its SASS, and what they ask of a GPU."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from course_lib.compiler import layouts as layouts_module
from course_lib.compiler.layouts import Layouts
from course_lib.compiler.listing import Instruction, matches, parse_ptx, parse_sass, with_titles
from course_lib.diagnostics import Location

# PTX ISA, "Cluster of Cooperative Thread Arrays": the size that is portable.
_PORTABLE_CLUSTER = 8

if TYPE_CHECKING:
    from course_lib.compiler.view import View


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a compiled function.

    Attributes:
      name: the kernel function's name.
      grid: blocks along x, y and z.
      block: CUDA threads of a block along x, y and z; 128 make a Pallas thread.
      cluster: blocks of a cluster along x, y and z.
      smem_bytes: shared memory per block, in bytes, barriers included.
      tmem_columns: columns of tensor memory per block.
      registers: registers per lane (CUDA thread).
      spill_bytes: bytes written and read per lane because registers ran out.
      stack_bytes: local memory per lane, in bytes.
      ptx: the listing in PTX.
      sass: the listing in SASS.
      layouts: what layout inference decided.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    smem_bytes: int
    tmem_columns: int
    registers: int
    spill_bytes: int
    stack_bytes: int
    ptx: str
    sass: str
    layouts: Layouts
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        parts = [
            f"grid {_times(self.grid)}",
            f"{_times(self.block)} lanes per block",
            *([f"clusters of {_times(self.cluster)}"] if max(self.cluster) > 1 else []),
            f"{self.registers} registers per lane",
            f"{self.spill_bytes} bytes spilled",
            f"{self.smem_bytes} bytes of SMEM",
            *([f"{self.tmem_columns} columns of TMEM"] if self.tmem_columns else []),
        ]
        return f"{self.name}: {', '.join(parts)}"


@dataclasses.dataclass(frozen=True)
class Lines:
    """The lines of the listings that one line of Python became, counted from 1."""

    ptx: tuple[int, ...]
    sass: tuple[int, ...]


class SourceMap(dict[Location, Lines]):
    """Lines of Python, in order, and the lines of the listings that each became."""

    def __repr__(self) -> str:
        rows = (
            f"{where}: PTX {_ranges(n.ptx)}, SASS {_ranges(n.sass)}" for where, n in self.items()
        )
        return "\n".join(rows)


@dataclasses.dataclass(frozen=True, repr=False)
class Compiled:
    """A function's kernels, compiled for one architecture. Nothing was run.

    Attributes:
      arch: the architecture ("sm_90a").
      kernels: the kernels, in the order in which they are called.
      notes: sentences that the reader should know of (deprecations, a recorded listing).
    """

    arch: str
    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...] = ()

    @property
    def ptx(self) -> str:
        """All kernels' PTX."""
        return "\n".join(k.ptx for k in self.kernels)

    @property
    def sass(self) -> str:
        """All kernels' SASS."""
        return "\n".join(k.sass for k in self.kernels)

    @property
    def registers(self) -> int:
        """Registers per lane, of the kernel that needs most."""
        return max(k.registers for k in self.kernels)

    @property
    def spill_bytes(self) -> int:
        """Bytes written and read per lane because registers ran out, in all kernels."""
        return sum(k.spill_bytes for k in self.kernels)

    @property
    def smem_bytes(self) -> int:
        """Shared memory per block in bytes, of the kernel that needs most."""
        return max(k.smem_bytes for k in self.kernels)

    @property
    def tmem_columns(self) -> int:
        """Columns of tensor memory per block, of the kernel that needs most."""
        return max(k.tmem_columns for k in self.kernels)

    @property
    def layouts(self) -> Layouts:
        """What layout inference decided for each value and each buffer, in the course's words."""
        return Layouts(decision for k in self.kernels for decision in k.layouts)

    def instructions(self, pattern: str = "") -> tuple[Instruction, ...]:
        """The PTX and SASS instructions whose name contains `pattern`; all without one.

        PTX names are in lower case and SASS names in upper case, so a pattern means one
        of the two. `*` stands for any characters.

        Args:
          pattern: whole dotted parts of a name ("wgmma.mma_async", "UTMALDG").
        """
        found = (i for kernel in self._placed for i in kernel)
        return tuple(i for i in found if not pattern or matches(pattern, i.opcode))

    def count(self, pattern: str) -> int:
        """How many instructions `instructions(pattern)` has; one in a loop counts once."""
        return len(self.instructions(pattern))

    @functools.cached_property
    def source_map(self) -> SourceMap:
        """For each line of Python the lines of `ptx` and `sass` that it became.

        As far as the compiler keeps track: what it shares between lines, and the code
        before the first line, it books on one of them.
        """
        found: dict[Location, dict[str, list[int]]] = {}
        for instruction in self.instructions():
            if instruction.where is not None:
                lines = found.setdefault(instruction.where, {"ptx": [], "sass": []})
                lines[instruction.language].append(instruction.line)
        return SourceMap(
            (where, Lines(*(tuple(dict.fromkeys(n)) for n in found[where].values())))
            for where in sorted(found, key=lambda w: (w.file, w.line))
        )

    def show(self, *, language: str = "sass") -> None:
        """Displays the kernel's source beside its instructions, to look through in a notebook.

        Outside of a notebook it prints the plain-text twin.

        Args:
          language: the listing to begin with, "sass" or "ptx".
        """
        view = self.view(language=language)
        ipython = sys.modules.get("IPython")
        if ipython is not None and ipython.get_ipython() is not None:
            ipython.display.display(view)
        else:
            print(view)

    def view(self, *, language: str = "sass") -> View:
        """What `show` displays: an object with an HTML and a plain-text form."""
        from course_lib.compiler.view import View

        return View(self, language)

    def __repr__(self) -> str:
        head = f"Compiled for {self.arch}"
        return "\n".join([head, *(f"  {k}" for k in self.kernels), *(f"  {n}" for n in self.notes)])

    @functools.cached_property
    def _placed(self) -> tuple[tuple[Instruction, ...], ...]:
        """Each kernel's instructions, with their lines counted in the listings of all kernels."""
        before = {"ptx": 0, "sass": 0}
        placed = []
        for k in self.kernels:
            placed.append(
                tuple(
                    dataclasses.replace(i, line=i.line + before[i.language]) for i in k.instructions
                )
            )
            before["ptx"] += k.ptx.count("\n") + 1
            before["sass"] += k.sass.count("\n") + 1
        return tuple(placed)


def from_data(data: Mapping[str, Any], *, arch: str, notes: Iterable[str] = ()) -> Compiled:
    """The `Compiled` of what the worker answered.

    Args:
      data: `{"kernels": [...], "buffers": [[name, array], ...]}`.
      arch: the architecture that it was compiled for.
      notes: sentences to hand on.
    """
    kernels = tuple(_kernel(k, data["buffers"]) for k in data["kernels"])
    found = [*notes, *(note for k in kernels for note in _notes(k))]
    return Compiled(arch, kernels, tuple(dict.fromkeys(found)))


def _notes(kernel: Kernel) -> Iterator[str]:
    """What compiles and yet may not launch, or not well."""
    blocks = math.prod(kernel.cluster)
    if blocks > _PORTABLE_CLUSTER:
        yield (
            f"{kernel.name} asks for clusters of {blocks} blocks, and every card with clusters "
            f"launches {_PORTABLE_CLUSTER} at most."
        )
    if kernel.spill_bytes:
        yield (
            f"{kernel.name} keeps more values than fit into registers and moves "
            f"{kernel.spill_bytes} bytes per lane through memory: use smaller tiles."
        )


def _kernel(raw: Mapping[str, Any], buffers: Iterable[Iterable[str]]) -> Kernel:
    sass, sass_instructions = parse_sass(raw["sass"])
    sizes = ("smem_bytes", "tmem_columns", "registers", "spill_bytes", "stack_bytes")
    return Kernel(
        name=raw["name"],
        grid=tuple(raw["grid"]),
        block=tuple(raw["block"]),
        cluster=tuple(raw["cluster"]),
        **{name: raw[name] for name in sizes},
        ptx=with_titles(raw["ptx"]),
        sass=sass,
        layouts=layouts_module.decisions(raw["layouts"], [(n, a) for n, a in buffers]),
        instructions=(*parse_ptx(raw["ptx"]), *sass_instructions),
    )


def _ranges(numbers: tuple[int, ...]) -> str:
    """(3, 4, 5, 9) as "3-5 9"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return " ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs) or "none"


def _times(sizes: tuple[int, ...]) -> str:
    """(16, 8, 1) as "16x8"; trailing ones say nothing."""
    shown = list(sizes)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return "x".join(map(str, shown))
