"""What `course bench` measures: for each suite, the sizes and who runs at them."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from course_lib import runtime
from course_lib.benchmarks import clusters
from course_lib.benchmarks.bench import Case, Contender
from course_lib.diagnostics import CourseError
from course_lib.kernels import attention_ladder, matmul_ladder

MATMUL_SIZES = ("8192x8192x8192", "4096x8192x4096", "4096x4096x4096:float16")
ATTENTION_SIZES = (
    "4x4096x16x128",
    "1x16384x16x128",
    "4x4096x16x64",
    "4x4096x16x128:causal",
    "1x16384x16x128:causal",
    "4x4096x16x64:causal",
)
_LAST_STEPS = attention_ladder.LAST - 2
COPY_SIZES = ("4GiB",)


def matmul(
    sizes: Sequence[str] = MATMUL_SIZES, *, steps: Sequence[int] | None = None
) -> list[Case]:
    """The ladder and JAX's own op (or Blackwell's kernels) against cuBLAS.

    Args:
      sizes: as MxNxK[:dtype].
      steps: the steps of the ladder, and nobody else; None is all of them, and the others.
    """
    return [_matmul_case(*_matmul_size(size), steps) for size in sizes or MATMUL_SIZES]


def _matmul_size(size: str) -> tuple[int, int, int, str]:
    match = re.fullmatch(r"(\d+)(?:x(\d+)x(\d+))?(?::(\w+))?", size)
    if match is None or (match[4] or "bfloat16") not in ("bfloat16", "float16"):
        raise CourseError(
            f"{size} is no size of a matmul. Write MxNxK, as 4096x8192x4096, with :float16 after"
            " it if it is not to be bfloat16."
        )
    m = int(match[1])
    return m, int(match[2] or m), int(match[3] or m), match[4] or "bfloat16"


def _matmul_case(m: int, n: int, k: int, dtype: str, steps: Sequence[int] | None) -> Case:
    def draw(key: Any) -> tuple[Any, ...]:
        left, right = jax.random.split(key)
        return jax.random.normal(left, (m, k), dtype), jax.random.normal(right, (k, n), dtype)

    return Case(
        name=f"{m}x{n}x{k} {dtype}",
        dtype=dtype,
        work=2 * m * n * k / 1e12,
        draw=draw,
        reference=jax.jit(functools.partial(jnp.dot, preferred_element_type=jnp.float32)),
        baseline=Contender("cuBLAS", jnp.dot, kernel=False),
        contenders=tuple(_matmuls(m, n, k, dtype, steps)),
        bytes_of_inputs=2 * (m * k + k * n),
    )


def _matmuls(
    m: int, n: int, k: int, dtype: str, steps: Sequence[int] | None
) -> Iterator[Contender]:
    """Who can run on this card; where nobody can, the last step, so that a sentence says why."""
    device = runtime.device()
    features = device.features if device else {"wgmma"}
    if "wgmma" in features:
        yield from _ladder(m, n, k, dtype, steps)
        yield from _jax_matmul(m, n, k) if steps is None else ()
    elif "tcgen05" in features:
        yield from _blackwell() if steps is None else ()
    elif steps is None:
        yield from _ladder(m, n, k, dtype, [matmul_ladder.LAST])


def _ladder(m: int, n: int, k: int, dtype: str, steps: Sequence[int] | None) -> list[Contender]:
    chosen = matmul_ladder.STEPS if steps is None else [matmul_ladder.step(i) for i in steps]
    found = []
    for step in chosen:
        config = step.config(m, n, k, dtype)
        function = functools.partial(step.matmul, config=config)
        found.append(Contender(step.name, function, _settings(config)))
    return found


def _settings(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def _jax_matmul(m: int, n: int, k: int) -> list[Contender]:
    """JAX's own Hopper op in the best configuration of a sweep of about 160 on an H200."""
    try:
        op: Any = importlib.import_module("jax.experimental.pallas.ops.gpu.hopper_matmul_mgpu")
    except ImportError:
        return []
    dimension = op.MatmulDimension
    width = 4 if max(m, n, k) <= 4096 else 8
    config = op.TuningConfig(
        tile_m=64, tile_n=256, tile_k=64, max_concurrent_steps=3, epi_tile_m=64, epi_tile_n=64,
        grid_minor_dim=dimension.M, grid_tile_width=width, wg_dimension=dimension.M,
    )  # fmt: skip
    settings = dict(tile_m=64, tile_n=256, tile_k=64, max_concurrent_steps=3, grid_tile_width=width)
    return [Contender("JAX's own", lambda a, b: op.matmul(a, b, None, config), settings)]


def _blackwell() -> list[Contender]:
    from course_lib.kernels import matmul_blackwell as kernels

    return [
        Contender("matmul_blackwell", kernels.matmul),
        Contender("matmul_blackwell collective", kernels.matmul_collective),
    ]


def attention(sizes: Sequence[str] = ()) -> list[Case]:
    """Attention, forward, against cuDNN.

    Args:
      sizes: as BxSxHxD[:causal][:bfloat16]; without any, `ATTENTION_SIZES`, where the whole
        ladder runs at the first of them and its last steps at the others.
    """
    if sizes:
        return [_attention_case(size, 0) for size in sizes]
    first, *others = ATTENTION_SIZES
    return [_attention_case(first, 0)] + [_attention_case(s, _LAST_STEPS) for s in others]


def _attention_case(size: str, since: int) -> Case:
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)(:causal)?(?::(float16|bfloat16))?", size)
    if match is None:
        raise CourseError(
            f"{size} is no size of an attention. Write batch x sequence x heads x head_dim, as"
            " 4x4096x16x128, with :causal after it if queries see no later keys, and then"
            " :bfloat16 if it is not to be float16."
        )
    batch, length, heads, depth = (int(match[i]) for i in range(1, 5))
    causal, dtype = bool(match[5]), match[6] or "float16"

    def draw(key: Any) -> tuple[Any, ...]:
        shape = (batch, length, heads, depth)
        return tuple(jax.random.normal(k, shape, dtype) for k in jax.random.split(key, 3))

    flop = 4 * batch * heads * length * length * depth / (2 if causal else 1)
    return Case(
        name=f"B{batch} S{length} H{heads} D{depth}{' causal' if causal else ''} {dtype}",
        dtype=dtype,
        work=flop / 1e12,
        draw=draw,
        reference=functools.partial(_exact_attention, causal=causal),
        baseline=Contender("cuDNN", functools.partial(_cudnn, causal=causal), kernel=False),
        contenders=(*_flash_attention(depth, causal, since), *_jax_attention(causal, dtype)),
        bytes_of_inputs=3 * 2 * batch * length * heads * depth,
    )


def _cudnn(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    scale = q.shape[-1] ** -0.5
    return jax.nn.dot_product_attention(
        q, k, v, scale=scale, is_causal=causal, implementation="cudnn"
    )


@functools.partial(jax.jit, static_argnames="causal")
def _exact_attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """In float32, head by head: all scores at once would fill the memory."""

    def head(args: tuple[Any, Any, Any]) -> Any:
        q1, k1, v1 = (x.astype(jnp.float32) for x in args)
        scores = jnp.dot(q1, k1.T, precision="highest") * depth**-0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones_like(scores, bool)), scores, -jnp.inf)
        return jnp.dot(jax.nn.softmax(scores), v1, precision="highest")

    batch, length, heads, depth = q.shape
    flat = [x.transpose(0, 2, 1, 3).reshape(batch * heads, length, depth) for x in (q, k, v)]
    out = jax.lax.map(head, tuple(flat))
    return out.reshape(batch, heads, length, depth).transpose(0, 2, 1, 3)


def _flash_attention(depth: int, causal: bool, since: int) -> list[Contender]:
    """The steps of the course's own ladder that can do it, from a number on."""
    return [
        Contender(
            step.name,
            functools.partial(step.attention, causal=causal, config=config),
            _settings(config),
        )
        for step, config in attention_ladder.contenders(depth, causal=causal)
        if step.number >= since
    ]


def _jax_attention(causal: bool, dtype: str) -> list[Contender]:
    """JAX's own op, which knows float16 only."""
    try:
        op: Any = importlib.import_module("jax.experimental.pallas.ops.gpu.attention_mgpu")
    except ImportError:
        return []
    if dtype != "float16":
        return []
    settings = dict(block_q=64, block_kv=128, max_concurrent_steps=2, causal=causal)
    config = op.TuningConfig(**settings)
    function = lambda q, k, v: op.attention(q, k, v, config)  # noqa: E731
    return [Contender("JAX's own", function, settings, prepare=_scaled)]


@jax.jit
def _scaled(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Inputs for an attention that leaves its scores as they are.

    Not only for the result's sake: scores that are not scaled lie so far apart that most
    probabilities are 0, and products with zeros take less power, which is time on a card
    at its limit.
    """
    return (q.astype(jnp.float32) * q.shape[-1] ** -0.5).astype(q.dtype), k, v


def copy(sizes: Sequence[str] = COPY_SIZES) -> list[Case]:
    """Copies of float32 matrices with 256 columns; sizes as 4GiB or 512MiB.

    Against XLA's x + 1 and the driver's own copy: a claim is a ratio to the better of them.
    """
    return [_copy_case(size) for size in sizes or COPY_SIZES]


def _copy_case(size: str) -> Case:
    match = re.fullmatch(r"(\d+)\s*([KMG])iB", size)
    if match is None:
        raise CourseError(f"{size} is no size of a copy. Write 512MiB or 4GiB.")
    size_bytes = int(match[1]) << {"K": 10, "M": 20, "G": 30}[match[2]]
    rows = size_bytes // (256 * 4)
    return Case(
        name=f"{size} float32",
        dtype="float32",
        work=2 * rows * 256 * 4 / 1e9,  # read and written
        draw=lambda key: (jax.random.normal(key, (rows, 256), "float32"),),
        reference=lambda x: x,
        # x + 1 reads and writes the same bytes; XLA makes no kernel of a plain copy
        baseline=Contender("XLA x + 1", _increment, kernel=False, reference=_increment),
        contenders=tuple(_copies()),
        bytes_of_inputs=size_bytes,
    )


# Rows of a tile (a row has 1 KiB), slots, and stores that may still read theirs.
_RINGS = (
    (16, 1, 0), (16, 2, 1), (16, 2, 0), (16, 3, 1), (16, 6, 3), (16, 12, 6),
    (32, 1, 0), (64, 1, 0), (64, 3, 1),
)  # fmt: skip
_TILES = (1, 2, 4, 8, 16, 64)


def _copies() -> list[Contender]:
    from course_lib.benchmarks.memcpy import DriverCopy
    from course_lib.kernels import asynchronous_copies as kernels

    driver = DriverCopy()
    found = [Contender("cuMemcpyDtoD", driver, kernel=False, clock=driver.times_us)]
    for rows in _TILES:
        tile = kernels.Config(tile_m=rows, tile_n=256)
        function = functools.partial(kernels.copy, config=tile)
        found.append(Contender(f"copy {rows}K", function, _settings(tile)))
    for rows, slots, unread in _RINGS:
        ring = kernels.RingConfig(tile_m=rows, stages=slots, unread_stores=unread)
        function = functools.partial(kernels.ring_copy, config=ring)
        name = f"ring_copy {rows}K x{slots}, {unread} unread"
        found.append(Contender(name, function, _settings(ring)))
    return found


def _increment(x: Any) -> Any:
    return x + 1


SUITES: dict[str, tuple[str, Callable[..., list[Case]]]] = {
    "matmul": ("TFLOP/s", matmul),
    "attention": ("TFLOP/s", attention),
    "copy": ("GB/s", copy),
    **clusters.SUITES,
}
"""Each suite's unit and what makes its cases of sizes."""

TOGETHER = {"clusters": tuple(clusters.SUITES)}
"""One name for several suites, which are measured one after the other."""
