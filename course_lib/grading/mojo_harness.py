"""How the kernels of the Mojo exercises are compiled and launched: the instructor's part.

For each hidden case stands a kernel of ours around the student's: its parameters are plain
pointers and numbers, so that its PTX can be run without knowing what a tensor looks like. An
exercise without an entry here is marked by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from course_lib.exercises.registry import Case

Size = tuple[int, int, int]
Static = Mapping[str, int]

BLOCKS = "blocks"  # the kernel that says how many blocks the answer wants
MOST_BLOCKS = 4096


@dataclasses.dataclass(frozen=True)
class Harness:
    """One exercise's kernels.

    Attributes:
      takes: what it imports from the answer.
      kernel: the parameters and the body of a case's kernel, Mojo text; the case's static
        numbers stand in braces. Inputs come first, then outputs, then what is in `numbers`.
      pointers: the type of each input and output, "Floats" or "Ints".
      block: how many lanes a block has, in x, y and z.
      grid: how many blocks a case has.
      numbers: the static numbers that are handed over when the kernel is launched.
      zeroed: whether outputs are zeros before the launch rather than NaN.
      blocks: the body of a kernel that writes how many blocks the answer wants for `size`
        elements in blocks of `block` lanes; then `grid` gives these two.
      whole: whether the answer's `main` has a gap: then it is compiled as it stands, too.
    """

    takes: tuple[str, ...]
    kernel: str
    pointers: tuple[str, ...]
    block: Size
    grid: Callable[[Static], Size]
    numbers: tuple[str, ...] = ()
    zeroed: bool = False
    blocks: str = ""
    whole: bool = False

    def module(self, answer: str, cases: Sequence[Case]) -> str:
        """The Mojo module with the kernels `c0`, `c1`, ... and a `launch` of all of them.

        Args:
          answer: the name of the module with the student's program.
          cases: the hidden cases.
        """
        lines = [
            "from std.math import ceildiv",
            "from layout import TileTensor, row_major",
            "from max.gpu.host import DeviceContext",
            f"from {answer} import {', '.join(self.takes)}",
            "",
            "comptime Floats = MutPointer[Float32, MutAnyOrigin]",
            "comptime Ints = MutPointer[Int32, MutAnyOrigin]",
            "",
        ]
        names = [f"a{i}" for i in range(len(self.pointers))]
        params = [f"{n}: {kind}" for n, kind in zip(names, self.pointers, strict=True)]
        params += [f"{name}: Int32" for name in self.numbers]
        for number, case in enumerate(cases):
            lines += [
                f"def c{number}({', '.join(params)}):",
                _indented(self.kernel, case.static),
                "",
            ]
        if self.blocks:
            lines += [f"def {BLOCKS}(a0: Ints, size: Int32, block: Int32):"]
            lines += [_indented(self.blocks, {}), ""]
        return "\n".join([*lines, *self._launch(len(cases))])

    def _launch(self, count: int) -> list[str]:
        kinds = {"Floats": ("floats", "float32"), "Ints": ("ints", "int32")}
        lines = ["def launch() raises:", "    var ctx = DeviceContext()"]
        for name, dtype in kinds.values():
            buffer = f"ctx.enqueue_create_buffer[DType.{dtype}](8)"
            pointer = "unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()"
            lines.append(f"    var {name} = {buffer}.{pointer}")
        given = [kinds[p][0] for p in self.pointers] + ["Int32(1)"] * len(self.numbers)
        calls = [(f"c{n}", given) for n in range(count)]
        calls += [(BLOCKS, ["ints", "Int32(1)", "Int32(1)"])] if self.blocks else []
        for name, arguments in calls:
            what = ", ".join([*arguments, "grid_dim=1", "block_dim=1"])
            lines.append(f"    ctx.enqueue_function[{name}]({what})")
        return [*lines, ""]


def _indented(text: str, static: Static) -> str:
    return "\n".join(f"    {line}" for line in text.format(**static).strip().splitlines())


def program(modules: Sequence[str], call: str) -> str:
    """The program that calls a function of each of these modules: what is compiled."""
    lines = [f"import {m}" for m in modules]
    return "\n".join(
        [*lines, "", "def main() raises:", *(f"    {m}.{call}()" for m in modules), ""]
    )


def _blocks(x: int, y: int = 1) -> Size:
    return (x, y, 1)


HARNESSES: Mapping[str, Harness] = {
    "mojo_launches.from_cuda": Harness(
        takes=("axpy_kernel", "layout"),
        kernel=(
            "var x = TileTensor(a0, layout)\n"
            "var y = TileTensor(a1, layout)\n"
            "axpy_kernel(-1.5, x, y, TileTensor(a2, layout), size)"
        ),
        pointers=("Floats",) * 3,
        block=(256, 1, 1),
        grid=lambda s: _blocks(4),
        numbers=("size",),
    ),
    "mojo_launches.vector_add": Harness(
        takes=("add_kernel", "blocks_for"),
        kernel=(
            "comptime layout = row_major[{n}]()\n"
            "add_kernel[type_of(layout)](\n"
            "    TileTensor(a0, layout), TileTensor(a1, layout), TileTensor(a2, layout), n\n"
            ")"
        ),
        pointers=("Floats",) * 3,
        block=(128, 1, 1),
        grid=lambda s: (s["n"], 128, 1),
        numbers=("n",),
        blocks="a0[unsafe_offset=0] = Int32(blocks_for(Int(size), Int(block)))",
        whole=True,
    ),
    "mojo_launches.scale_rows": Harness(
        takes=("scale_kernel",),
        kernel=(
            "comptime matrix = row_major[{rows}, {cols}]()\n"
            "comptime vector = row_major[{rows}]()\n"
            "scale_kernel[type_of(matrix), type_of(vector)](\n"
            "    TileTensor(a0, matrix), TileTensor(a1, vector), TileTensor(a2, matrix)\n"
            ")"
        ),
        pointers=("Floats",) * 3,
        block=(16, 16, 1),
        grid=lambda s: _blocks(-(-s["cols"] // 16), -(-s["rows"] // 16)),
        whole=True,
    ),
    "mojo_tiles.block_sum": Harness(
        takes=("block_sum",),
        kernel="block_sum(a1, a0)",
        pointers=("Ints",) * 2,
        block=(512, 1, 1),
        grid=lambda s: _blocks(s["blocks"]),
        zeroed=True,
    ),
    "mojo_tiles.histogram": Harness(
        takes=("histogram",),
        kernel="histogram(a1, a0)",
        pointers=("Ints",) * 2,
        block=(256, 1, 1),
        grid=lambda s: _blocks(s["blocks"]),
        zeroed=True,
    ),
    "mojo_tiles.load": Harness(
        takes=("matmul", "layout"),
        kernel="matmul(TileTensor(a0, layout), TileTensor(a1, layout), TileTensor(a2, layout))",
        pointers=("Floats",) * 3,
        block=(16, 16, 1),
        grid=lambda s: _blocks(4, 4),
    ),
    "mojo_tiles.copy_part": Harness(
        takes=("copy_tiles",),
        kernel=(
            "comptime layout = row_major[{m}, {n}]()\n"
            "copy_tiles[type_of(layout)](TileTensor(a0, layout), TileTensor(a1, layout))"
        ),
        pointers=("Floats",) * 2,
        block=(32, 1, 1),
        grid=lambda s: _blocks(s["n"] // 32, s["m"] // 16),
    ),
    "two_languages.standardize_lanes": Harness(
        takes=("standardize",),
        kernel=(
            "comptime layout = row_major[{rows}, {cols}]()\n"
            "standardize[type_of(layout)](TileTensor(a0, layout), TileTensor(a1, layout))"
        ),
        pointers=("Floats",) * 2,
        block=(256, 1, 1),
        grid=lambda s: _blocks(s["rows"] // 8),
    ),
    "two_languages.place": Harness(
        takes=("place",),
        kernel="place(a0, a1)",
        pointers=("Floats",) * 2,
        block=(128, 1, 1),
        grid=lambda s: _blocks(1),
    ),
}
