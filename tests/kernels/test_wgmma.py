"""The kernels of chapter 07: right on the CPU model, free of findings, and fit for CUDA.

And what the chapter says about wgmma, each claim with the wrong case and its right twin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import simulate as simulate_and_lower
from course_lib.compiler import compile_for
from course_lib.kernels import wgmma as k
from course_lib.kernels.matmul_ladder import matmul0
from course_lib.runtime import requirements
from course_lib.simulator import simulate

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# kernel, reference, shapes of its arguments, dtype of the operands, keywords of both
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[Shape, ...], str, dict[str, Any]]

PRODUCT = (k.product, k.product_reference)
SPLIT = (k.split_product, k.split_product_reference)
PLAIN = k.Config()
B_AS_N_K = k.Config(transpose_b=True)


def _config(**fields: Any) -> dict[str, Any]:
    return {"config": k.Config(**fields)}


CALLS: dict[str, Call] = {
    "product": (*PRODUCT, ((128, 64), (64, 128)), "bfloat16", {}),
    "product, wide": (*PRODUCT, ((64, 128), (128, 256)), "float16", {}),
    "product, narrow swizzles": (*PRODUCT, ((64, 48), (48, 96)), "bfloat16", {}),
    "product, a transposed": (
        *PRODUCT, ((64, 128), (64, 64)), "bfloat16", _config(transpose_a=True)
    ),
    "product, b transposed": (
        *PRODUCT, ((64, 64), (128, 64)), "float16", _config(transpose_b=True)
    ),
    "product, both transposed": (
        *PRODUCT, ((64, 64), (64, 64)), "float16", _config(transpose_a=True, transpose_b=True)
    ),
    "product, 8 columns": (*PRODUCT, ((64, 64), (8, 64)), "bfloat16", _config(transpose_b=True)),
    "product, float32": (*PRODUCT, ((64, 64), (128, 64)), "float32", _config(transpose_b=True)),
    "multiply_add": (
        k.multiply_add, k.multiply_add_reference, ((64, 64), (64, 128)), "bfloat16", {}
    ),
    "gram": (k.gram, k.gram_reference, ((64, 128),), "bfloat16", {}),
    "gram, float16": (k.gram, k.gram_reference, ((192, 64),), "float16", {}),
    "split": (*SPLIT, ((64, 64), (64, 64)), "float32", {}),
    "split, long": (*SPLIT, ((64, 128), (128, 128)), "float32", {}),
    "relu": (k.relu_product, k.relu_product_reference, ((64, 128), (128, 64)), "float16", {}),
    "relu, wide": (k.relu_product, k.relu_product_reference, ((64, 64), (64, 256)), "bfloat16", {}),
    "wide": (k.wide_product, k.product_reference, ((64, 64), (64, 512)), "bfloat16", {}),
    "wide, a rest": (k.wide_product, k.product_reference, ((64, 64), (64, 320)), "float16", {}),
    "wide, one part": (k.wide_product, k.product_reference, ((64, 32), (32, 64)), "float16", {}),
    "two calls": (k.two_calls, k.two_calls_reference, ((64, 64), (64, 64)), "bfloat16", {}),
}  # fmt: skip
SCHEDULES: tuple[str | int, ...] = ("in_order", "adversarial", 1, 2)


def draw(name: str) -> tuple[Array, ...]:
    """Arguments of a call: normal, and a float32 accumulator to start from where there is one."""
    kernel, _, shapes, dtype, _ = CALLS[name]
    rng = np.random.default_rng()
    args = tuple(rng.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes)
    if kernel is k.multiply_add:
        start = rng.standard_normal((shapes[0][0], shapes[1][1])).astype(np.float32)
        return (*args, start)
    return args


def tolerance(name: str) -> float:
    """Absolute: sums of a few hundred products of normal numbers, added up in float32."""
    return 1e-4 if CALLS[name][0] is k.split_product else 3e-5


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, _, _, static = CALLS[name]
    args = draw(name)
    wanted = reference(*args, **static)
    for schedule in SCHEDULES:
        report = simulate(lambda *a: kernel(*a, **static), *args, schedule=schedule)
        assert report.findings == ()
        assert (report.value.dtype, report.value.shape) == (np.float32, wanted.shape)
        np.testing.assert_allclose(report.value, wanted, rtol=1e-5, atol=tolerance(name))


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, _, _, static = CALLS[name]
    args = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in draw(name)]
    traced = jax.jit(lambda *a: kernel(*a, **static)).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.two_jax
def test_needs_hopper_and_nothing_else() -> None:
    a = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)
    assert requirements(k.product, a, a).features == {"tma", "wgmma"}


# ---- what one call issues ----


def _compiled(kernel: Any, *shapes: Shape, dtype: Any = jnp.bfloat16, **static: Any) -> Any:
    args = [jax.ShapeDtypeStruct(s, dtype) for s in shapes]
    return compile_for(functools.partial(kernel, **static) if static else kernel, *args)


def _opcodes(code: Any) -> list[str]:
    return [i.opcode for i in code.instructions("wgmma.*")]


@pytest.mark.parametrize(
    ("shapes", "dtype", "config", "count", "shape"),
    [
        (((128, 64), (64, 128)), jnp.bfloat16, k.Config(), 8, "m64n128k16"),
        (((64, 128), (128, 256)), jnp.float16, k.Config(), 8, "m64n256k16"),
        (((64, 64), (64, 64)), jnp.float32, B_AS_N_K, 8, "m64n64k8"),
        (((64, 128), (64, 128)), jnp.float8_e4m3fn, B_AS_N_K, 4, "m64n64k32"),
        (
            ((64, 128), (64, 128)),
            jnp.int8,
            k.Config(transpose_b=True, acc_dtype="int32"),
            4,
            "m64n64k32",
        ),
    ],
)
def test_a_call_is_an_instruction_per_64_rows_and_32_bytes_of_k(
    shapes: tuple[Shape, Shape], dtype: Any, config: k.Config, count: int, shape: str
) -> None:
    code = _compiled(k.product, *shapes, dtype=dtype, config=config)
    issued = [o for o in _opcodes(code) if "mma_async" in o]
    assert len(issued) == count
    assert all(f".{shape}." in opcode for opcode in issued)


def test_float32_operands_go_in_as_tf32() -> None:
    code = _compiled(k.product, (64, 64), (64, 64), dtype=jnp.float32, config=B_AS_N_K)
    assert code.count("wgmma.mma_async*.f32.tf32.tf32") == 8


def test_the_order_of_the_instructions() -> None:
    """A fence, the products, commit, wait: what the chapter finds in PTX."""
    names = [o.split(".sync")[0] for o in _opcodes(_compiled(k.product, (64, 64), (64, 64)))]
    mma = ["wgmma.mma_async"] * 4
    assert names == ["wgmma.fence", *mma, "wgmma.commit_group", "wgmma.wait_group"]


def test_between_two_calls_nothing_waits() -> None:
    """The reference page says that a call waits for all earlier ones: not in PTX."""
    names = [o.split(".sync")[0] for o in _opcodes(_compiled(k.two_calls, (64, 64), (64, 64)))]
    assert names.count("wgmma.commit_group") == 2
    assert names.count("wgmma.wait_group") == 1
    assert names[-1] == "wgmma.wait_group"


def test_run_state_waits_before_it_returns() -> None:
    args = [jax.ShapeDtypeStruct((64, 64), d) for d in (jnp.bfloat16, jnp.bfloat16, jnp.float32)]
    code = compile_for(k.multiply_add, *args)
    assert _opcodes(code)[-1].startswith("wgmma.wait_group")


def test_a_in_registers_is_not_read_from_smem() -> None:
    code = _compiled(k.relu_product, (64, 64), (64, 64), dtype=jnp.float16)
    registers = [str(i) for i in code.instructions("wgmma.mma_async*")]
    assert len(registers) == 4
    assert all(line.count("{") == 2 for line in registers)  # the accumulator's, and those of A
    in_smem = [str(i) for i in _compiled(k.product, (64, 64), (64, 64)).instructions("wgmma.mma*")]
    assert all(line.count("{") == 1 for line in in_smem)


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        (k.Config(), "0, 1"),
        (k.Config(transpose_a=True), "1, 1"),
        (k.Config(transpose_b=True), "0, 0"),
        (k.Config(transpose_a=True, transpose_b=True), "1, 0"),
    ],
)
def test_the_last_two_numbers_say_what_the_tensorcore_turns_round(
    config: k.Config, flags: str
) -> None:
    code = _compiled(k.product, (64, 64), (64, 64), config=config)
    assert all(str(i).rstrip("; ").endswith(flags) for i in code.instructions("wgmma.mma_async*"))


# ---- the rules: what there is an instruction for ----

BF16, F16, F32 = jnp.bfloat16, jnp.float16, jnp.float32


@pytest.mark.two_jax
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(((96, 64), (64, 64), BF16), ((128, 64), (64, 64), BF16), id="M"),
        pytest.param(((64, 64), (64, 264), BF16), ((64, 64), (64, 256), BF16), id="N, most"),
        pytest.param(((64, 64), (64, 24), BF16), ((64, 64), (64, 32), BF16), id="N, rows of B"),
        pytest.param(((64, 40), (40, 64), BF16), ((64, 48), (48, 64), BF16), id="K"),
        pytest.param(
            ((64, 32), (32, 64), F32),
            ((64, 32), (64, 32), F32, k.Config(transpose_b=True)),
            id="float32 is not turned round",
        ),
        pytest.param(
            ((64, 64), (64, 64), BF16, k.Config(acc_dtype="float16")),
            ((64, 64), (64, 64), F16, k.Config(acc_dtype="float16")),
            id="float16 accumulators",
        ),
        pytest.param(
            ((64, 64), (12, 64), BF16, k.Config(transpose_b=True)),
            ((64, 64), (24, 64), BF16, k.Config(transpose_b=True)),
            id="N, multiple of 8",
        ),
    ],
)
def test_a_shape_or_dtype_without_instruction_is_refused(
    wrong: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    assert _findings(*wrong)
    assert _findings(*right) == ()


def _findings(a: Shape, b: Shape, dtype: Any, config: k.Config = PLAIN) -> tuple[str, ...]:
    rng = np.random.default_rng()
    args = (rng.standard_normal(s).astype(dtype) for s in (a, b))
    report = simulate_and_lower(functools.partial(k.product, config=config), *args)
    return tuple(f.rule for f in report.findings)


def test_k_decides_about_the_widest_swizzle() -> None:
    code = _compiled(k.product, (64, 96), (96, 64))
    assert {d.layout for d in code.layouts if d.kind == "SMEM"} == {
        "tiled (8, 32), swizzled 64 bytes"
    }


# ---- float32, and what is left of it ----


@pytest.mark.two_jax
def test_a_product_with_the_identity_shows_what_the_tensorcore_reads() -> None:
    x = np.random.default_rng().standard_normal((64, 64)).astype(np.float32)
    report = simulate(functools.partial(k.product, config=B_AS_N_K), np.eye(64, dtype=F32), x)
    bits = np.bitwise_or.reduce(report.value.view(np.uint32), axis=None)
    assert bits & 0x3FFF == 0x2000  # of 23 bits the last 13 are gone, and no more
    np.testing.assert_array_equal(report.value, k.tf32(x).T)


def test_three_products_are_a_hundred_times_as_exact_as_one() -> None:
    rng = np.random.default_rng()
    x, w = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    wanted = k.split_product_reference(x, w)
    one = simulate(functools.partial(k.product, config=B_AS_N_K), x, w).value
    three = simulate(k.split_product, x, w).value
    assert np.abs(three - wanted).max() * 100 < np.abs(one - wanted).max()


# ---- waiting ----


def _matmul_without_a_wait(a: Array, b: Array, *, wait: bool) -> Any:
    """Two steps along K through one slot, with and without a wait before it is filled again."""

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        def multiply(acc: Any) -> jax.Array:
            for start in (0, 64):
                ks = pl.ds(start, 64)
                plgpu.copy_gmem_to_smem(a_gmem.at[:, ks], a_smem, loaded)
                plgpu.copy_gmem_to_smem(b_gmem.at[ks], b_smem, loaded)
                plgpu.barrier_wait(loaded)
                plgpu.wgmma(acc, a_smem, b_smem)
                if wait:
                    plgpu.wgmma_wait(0)
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((64, 64), jnp.float32))

    slot = plgpu.SMEM((64, 64), a.dtype)
    scratch: dict[str, Any] = dict(a_smem=slot, b_smem=slot, loaded=plgpu.Barrier(num_arrivals=2))
    out_type = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(a, b)


@pytest.mark.two_jax
@pytest.mark.parametrize(("wait", "rules"), [(False, {"mma-operand-overwritten"}), (True, set())])
def test_a_slot_is_filled_again_when_its_product_is_done(wait: bool, rules: set[str]) -> None:
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((64, 128), (128, 64)))
    report = simulate(functools.partial(_matmul_without_a_wait, wait=wait), a, b)
    assert {f.rule for f in report.findings} == rules


def test_the_first_matmul_keeps_the_tensorcore_busy_a_sixth_of_the_time() -> None:
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((128, 512), (512, 128)))
    line = simulate(matmul0.matmul, a, b, timeline=True).timeline
    busy = sum(s.end - s.start for s in line.spans if s.lane == "the tensor core")
    assert 0.1 < busy / line.cycles < 0.25
