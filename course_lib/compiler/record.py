"""Makes the recorded listings: `python -m course_lib.compiler.record`.

`CALLS` names what is recorded: what the chapters show of the course's kernels.
A test fails when a recording no longer belongs to its kernel.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from course_lib.compiler import api, recordings, requests, toolchain
from course_lib.compiler.recordings import Recording

_ARRAY = re.compile(r"(\w+)\[([\d, ]*)\]")


@dataclasses.dataclass(frozen=True)
class Call:
    """A call to record.

    Attributes:
      function: the kernel function, "module:name" below `course_lib.kernels`.
      args: its arrays ("float16[4096, 4096]").
      archs: the architectures to record it for.
      config: fields of the module's `Config` that differ from its defaults; {} passes none.
      keywords: other keyword arguments.
    """

    function: str
    args: tuple[str, ...]
    archs: tuple[str, ...]
    config: Mapping[str, Any] = MappingProxyType({})
    keywords: Mapping[str, Any] = MappingProxyType({})

    def load(self) -> tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]:
        """The function, with its configuration bound, and its arguments."""
        module_name, _, name = self.function.partition(":")
        module = importlib.import_module(f"course_lib.kernels.{module_name}")
        function = getattr(module, name)
        keywords = dict(self.keywords)
        if self.config:
            keywords["config"] = module.Config(**self.config)
        if keywords:
            function = functools.partial(function, **keywords)
        return function, tuple(map(_array, self.args))


_BOTH = ("sm_90a", "sm_100a")
_HOPPER = ("sm_90a",)
_SQUARE = ("float16[4096, 4096]", "float16[4096, 4096]")
CALLS = (
    Call("matmul_hopper:matmul", _SQUARE, ("sm_90a",)),
    Call("matmul_hopper:matmul_multicast", _SQUARE, ("sm_90a",)),
    Call("matmul_blackwell:matmul", _SQUARE, ("sm_100a",)),
    Call("matmul_blackwell:matmul_collective", _SQUARE, ("sm_100a",)),
    Call("start_here:add_one", ("float32[1024]",), _BOTH),
    Call("start_here:double_through_smem", ("float32[1024]",), _BOTH),
    Call("start_here:reverse_rows", ("float32[8, 128]",), _BOTH),
    Call("start_here:shift_tiles", ("float32[128, 256]",), _BOTH),
    Call("memory_spaces:sum_halves", ("float32[256, 128]",), _BOTH),
    Call("memory_spaces:add_in_one_buffer", ("float32[128, 128]", "float32[128, 128]"), _BOTH),
    Call("memory_spaces:largest_of_tiles", ("float32[256, 128]",), _BOTH),
    Call("memory_spaces:sum_of_products", ("float32[64, 512]", "float32[64, 512]"), _BOTH),
    Call("memory_spaces:square_through_smem", ("float32[256, 128]",), _BOTH),
    Call("memory_spaces:stage_through_smem", ("float32[256, 128]",), _BOTH),
    Call("memory_spaces:shift_whole", ("float32[128, 128]",), _BOTH),
    Call("memory_spaces:shift_in_slices", ("float32[128, 128]",), _BOTH),
    Call("grid_scheduling:matmul", ("float32[256, 256]", "float32[256, 256]"), _BOTH),
    Call("barriers:hand_over", ("float32[128]",), _BOTH),
    Call("barriers:sum_exp_by_hand", ("float32[512, 128]",), _BOTH, {"compute_threads": 2}),
    Call("asynchronous_copies:ring_copy", ("float32[4194304, 256]",), _BOTH),
    Call("asynchronous_copies:copy", ("float32[4194304, 256]",), _BOTH),
    Call("asynchronous_copies:triple", ("float32[320, 128]",), _BOTH),
    Call("asynchronous_copies:gather_rows", ("float32[1000, 128]", "int32[64]"), ("sm_100a",)),
    Call("register_layouts:add_one", ("float32[64, 128]",), _HOPPER),
    Call("register_layouts:fill_like", ("float32[64, 256]",), _HOPPER),
    Call("register_layouts:subtract_row_max", ("float32[64, 128]",), _HOPPER),
    Call("register_layouts:subtract_column_max", ("float32[64, 128]",), _HOPPER),
    Call("register_layouts:add_mixed", ("float32[64, 128]", "float32[64, 128]"), _HOPPER),
    Call("register_layouts:softmax_rows", ("float32[64, 64]",), _HOPPER),
    Call("register_layouts:softmax_rows", ("float32[64, 128]",), _HOPPER),
    Call("register_layouts:softmax_rows", ("bfloat16[64, 128]",), _HOPPER),
    Call("register_layouts:softmax_rows", ("float32[64, 512]",), _HOPPER),
    Call("transforms:transposed", ("float32[64, 64]",), _HOPPER),
    Call("transforms:tiled_by_hand", ("bfloat16[32, 128]",), _HOPPER),
    Call("transforms:through_smem", ("bfloat16[32, 128]",), _HOPPER, {"tile": (8, 64)}),
    Call("transforms:through_smem", ("bfloat16[64, 64]",), _HOPPER),
    Call("transforms:doubled", ("bfloat16[64, 64]",), _HOPPER),
    Call("transforms:doubled", ("float32[64, 64]",), _HOPPER),
    Call("transforms:product", ("bfloat16[64, 64]", "bfloat16[64, 64]"), _HOPPER),
    *(
        Call("transforms:window", ("bfloat16[128, 64]",), _HOPPER, keywords={"first": first})
        for first in (8, 4, 1)
    ),
)


def record(call: Call) -> Iterator[tuple[str, Recording]]:
    """Compiles a call for each of its architectures; yields file names and recordings."""
    function, args = call.load()
    text = recordings.describe(function, args)
    assert text is not None, f"{call.function} is no kernel of the course's"
    tools = toolchain.find()
    for arch in call.archs:
        request = requests.prepare(function, args)
        answer = json.dumps(api.answer(request, arch=arch, tools=tools), ensure_ascii=False)
        yield (
            recordings.file_name(text, arch),
            Recording(
                call=text,
                arch=arch,
                made_with=tools.version,
                jax=jax.__version__,
                program=program_digest(request),
                source=source_digest(call),
                answer=requests.portable(answer),
            ),
        )


def program_digest(request: requests.Request) -> str:
    """Stands for the traced program, with the lines that it comes from."""
    return hashlib.sha256(request.program.encode()).hexdigest()


def source_digest(call: Call) -> str:
    """Stands for the source text of the kernel's module."""
    module = importlib.import_module(f"course_lib.kernels.{call.function.partition(':')[0]}")
    return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()


def main() -> None:
    """Records every call, and removes recordings that no call asks for."""
    folder = Path(__file__).parent / "recorded"
    made = {name: recording for call in CALLS for name, recording in record(call)}
    for name, recording in made.items():
        (folder / name).write_bytes(recording.to_bytes())
        print(f"{name}: {recording.call} for {recording.arch}")
    for name in set(recordings.names()) - set(made):
        (folder / name).unlink()
        print(f"{name}: removed")


def _array(text: str) -> jax.ShapeDtypeStruct:
    match = _ARRAY.fullmatch(text)
    assert match is not None, f"{text} is no array"
    return jax.ShapeDtypeStruct(
        [int(n) for n in match[2].split(",") if n.strip()], jnp.dtype(match[1])
    )


if __name__ == "__main__":
    main()
