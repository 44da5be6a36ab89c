"""The exercises of chapter 14: what the compiler is told, and what it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Exercise, Spec, register

Array = np.ndarray[Any, Any]


def _normalised(x: Array) -> Array:
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide**2).sum())).astype(x.dtype)


def _gelu(x: Array) -> Array:
    wide = x.astype(np.float64)
    inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    return (0.5 * wide * (1 + np.tanh(inner))).astype(x.dtype)


def _pull_back(x: Array, ct: Array) -> Array:
    wide = x.astype(np.float64)
    return (ct * 2 * wide / (1 + wide**2) ** 2).astype(x.dtype)


register(
    Exercise(
        id="debugging.normalised",
        function="normalised",
        title="Mend the spill",
        statement=(
            "Return x / sqrt(sum(x * x)), the sum over the whole array. One block computes it, and "
            "no register spills, however wide x is."
        ),
        signature="normalised(x: float32[rows, n]) -> float32[rows, n], rows a multiple of 16",
        lines=8,
        reference=_normalised,
        cases=(
            Case((Spec((128, 512)),)),
            Case((Spec((64, 256)),)),
            Case((Spec((16, 128)),)),
        ),
        hints=(
            "All of x in registers at once is rows * n / 128 numbers a lane. How many are 16 "
            "rows? And do you need all of x to have its sum?",
            "Two loops over pieces of 16 rows. The first adds up jnp.sum(piece * piece), with "
            "jax.lax.fori_loop, as the sum is carried. The second, a pl.loop, reads each piece "
            "again, scales it and stores it.",
            "def more(i, total):\n"
            "    piece = x_gmem[pl.ds(i * 16, 16)]\n"
            "    return total + jnp.sum(piece * piece)\n"
            "total = jax.lax.fori_loop(0, pieces, more, 0.0)\n"
            "@pl.loop(0, pieces)\n"
            "def store(i):\n"
            "    ... the same rows of y_gmem are those of x_gmem, times jax.lax.rsqrt(total)",
        ),
        expects={"sm_90a": {"spill_bytes": 0}},
        rtol=1e-4,
        atol=1e-6,
    )
)

register(
    Exercise(
        id="debugging.gelu",
        function="gelu",
        title="One instruction instead of a formula",
        statement=(
            "Return gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), with the "
            "tanh that the hardware has: tanh.approx.f32."
        ),
        signature="gelu(x: float32[n]) -> float32[n], n a multiple of 128",
        lines=7,
        reference=_gelu,
        cases=(Case((Spec((1024,)),)), Case((Spec((128,)),)), Case((Spec((384,)),))),
        hints=(
            "Write the formula with jnp.tanh, and it is right. What has to be allowed, so that the "
            "compiler takes its short cut?",
            "plgpu.kernel has compiler_params=plgpu.CompilerParams(...), and one of its options "
            "permits approximations.",
            "inner = 0.7978845608 * (x + 0.044715 * x * x * x)\n"
            "y_gmem[...] = 0.5 * x * (1 + jnp.tanh(inner))\n"
            "... and compiler_params=plgpu.CompilerParams(approx_math=True) for the kernel",
        ),
        requires={"tanh": 1},
        expects={"sm_90a": {"tanh.approx.f32": ">=1"}},
        rtol=2e-3,
        atol=2e-4,
    )
)

register(
    Exercise(
        id="debugging.pull_back",
        function="pull_back",
        title="A derivative of its own",
        statement=(
            "JAX cannot differentiate f(x) = x^2 / (1 + x^2), as it is a kernel. Give it its "
            "derivative f'(x) = 2 x / (1 + x^2)^2, in a kernel, too: pull_back(x, ct) is what "
            "jax.vjp makes of it, ct * f'(x)."
        ),
        signature="pull_back(x: float32[n], ct: float32[n]) -> float32[n], n a multiple of 128",
        lines=9,
        reference=_pull_back,
        cases=(
            Case((Spec((256,)), Spec((256,)))),
            Case((Spec((128,)), Spec((128,)))),
            Case((Spec((512,)), Spec((512,)))),
        ),
        hints=(
            "jax.custom_vjp wants two functions: what to do forwards, and what to keep; and what "
            "to do backwards, with what was kept and with the cotangent of y.",
            "forward(x) returns (f(x), x). backward(x, ct) returns a tuple with one array for each "
            "argument of f: here one, ct * 2 x / (1 + x^2)^2, which a plgpu.kernel with two inputs "
            "computes.",
            "def forward(x):\n"
            "    return f(x), x\n"
            "def backward(x, ct):\n"
            "    def kernel(x_gmem, ct_gmem, dx_gmem):\n"
            "        x = x_gmem[...]\n"
            "        dx_gmem[...] = ct_gmem[...] * 2 * x / ((1 + x * x) * (1 + x * x))\n"
            "    return (plgpu.kernel(kernel, out_type=x)(x, ct),)\n"
            "... and f.defvjp(forward, backward)",
        ),
        rtol=1e-5,
        atol=1e-6,
    )
)
