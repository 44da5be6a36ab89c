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
_BLACKWELL = ("sm_100a",)
_SQUARE = ("float16[4096, 4096]", "float16[4096, 4096]")
_WIDE = ("bfloat16[4096, 4096]", "bfloat16[4096, 4096]")
_LARGE = ("bfloat16[8192, 8192]", "bfloat16[8192, 8192]")
_SCALED = ("float8_e4m3fn[256, 256]",) * 2 + ("float8_e8m0fnu[2, 2, 32, 16]",) * 2
_H200 = {"num_sms": 132}  # from step 6 of the ladder on, the grid depends on it
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
    Call("clusters:who", (), _BOTH),
    Call("clusters:rotate", ("float32[4, 32, 128]",), _BOTH),
    Call("clusters:swap", ("float32[2, 64, 64]",), _BOTH),
    Call("clusters:distances", ("float32[4, 32, 128]", "float32[16, 32, 128]"), _BOTH),
    Call("clusters:matmul", ("float16[512, 512]", "float16[512, 512]"), _HOPPER),
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
    Call("collective_mma:pair_product", ("float16[256, 64]", "float16[64, 128]"), _BLACKWELL),
    Call("collective_mma:scaled_pair_product", _SCALED, _BLACKWELL),
    Call("collective_mma:double", ("float32[12, 128]",), _BLACKWELL),
    Call("collective_mma:matmul", _SQUARE, _BLACKWELL),
    Call("wgmma:product", ("bfloat16[64, 128]", "bfloat16[128, 256]"), _HOPPER),
    Call("wgmma:product", ("bfloat16[64, 96]", "bfloat16[96, 64]"), _HOPPER),
    Call("wgmma:product", ("float32[64, 64]",) * 2, _HOPPER, {"transpose_b": True}),
    *(
        Call("wgmma:product", ("bfloat16[64, 64]",) * 2, _HOPPER, flags)
        for flags in ({"transpose_a": False}, {"transpose_a": True}, {"transpose_b": True})
    ),
    Call("wgmma:two_calls", ("bfloat16[64, 64]",) * 2, _HOPPER),
    Call("matmul_ladder.matmul0:matmul", ("bfloat16[128, 512]", "bfloat16[512, 128]"), _HOPPER),
    *(
        Call(f"flash_attention:{name}", ("float32[64, 128]",), _HOPPER, keywords={"head_dim": 64})
        for name in ("weights", "weights_with_exp")
    ),
    *(
        Call(
            f"attention_ladder.attention{n}:attention", ("float16[4, 4096, 16, 128]",) * 3, _HOPPER
        )
        for n in range(9)
    ),
    *(
        Call(
            f"attention_ladder.attention{n}:attention",
            (f"float16[4, 4096, 16, {head_dim}]",) * 3,
            _HOPPER,
            keywords={"causal": True},
        )
        for n in (5, 6)
        for head_dim in (64, 128)
    ),
    *(Call(f"matmul_ladder.matmul{i}:matmul", _LARGE, _HOPPER) for i in range(6)),
    *(Call(f"matmul_ladder.matmul{i}:matmul", _LARGE, _HOPPER, _H200) for i in range(6, 13)),
    *(
        Call(f"debugging:{name}", ("float32[256]",), _HOPPER, keywords={"approx": approx})
        for name in ("tanh", "reciprocal")
        for approx in (False, True)
    ),
    Call("two_languages:softmax", ("float32[64, 1024]",), _HOPPER),
    Call("debugging:nearest_tf32", ("float32[128]",), _HOPPER),
    Call("debugging:halves_of_each", ("float32[3, 256]",), _HOPPER),
    Call("tmem_and_tcgen05:add_one", ("float32[128, 128]",), _BLACKWELL),
    Call("tmem_and_tcgen05:product", ("float16[128, 64]", "float16[64, 128]"), _BLACKWELL),
    Call("tmem_and_tcgen05:product", ("float16[64, 64]", "float16[64, 128]"), _BLACKWELL),
    Call("tmem_and_tcgen05:hand_over", ("float32[128, 64]",), _BLACKWELL),
    Call(
        *("tmem_and_tcgen05:hand_over", ("float32[128, 64]",), _BLACKWELL),
        keywords={"orders": False},
    ),
    Call(
        "tmem_and_tcgen05:sparse_product",
        ("float16[128, 128]", "uint2[1, 2, 128, 64]", "float16[256, 128]"),
        _BLACKWELL,
    ),
    *(Call(f"blackwell_ladder.matmul{step}:matmul", _WIDE, _BLACKWELL) for step in range(5)),
    Call(
        *("blackwell_ladder.matmul1:matmul", _WIDE, _BLACKWELL),
        {"tile_n": 256, "max_concurrent_steps": 3},
    ),
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
    """Stands for the traced program, with the lines that it comes from.

    Where the program hides code (the inline PTX of `plgpu.dynamic_scheduling_loop`), the pickled
    function stands in for it, and that differs from process to process: here the source's own
    digest has to do.
    """
    hidden = hashlib.sha256(request.payload).hexdigest() if request.hides_code else "\0"
    return hashlib.sha256(request.program.replace(hidden, "").encode()).hexdigest()


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
