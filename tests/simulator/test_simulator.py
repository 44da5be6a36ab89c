"""What the simulator runs, and what it gives back."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
import textwrap

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from course_lib.diagnostics import CourseError
from course_lib.kernels import matmul_hopper
from course_lib.simulator import (
    ir,
    replay,
    replay_apart,
    simulate,
    simulated_by,
    trace_kernels,
)

F16, F32 = jnp.float16, jnp.float32
LAYOUT = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def add_one(x):
    def body(x_gmem, o_gmem):
        part = pl.ds(lax.axis_index("g") * 128, 128)
        o_gmem[part] = x_gmem[part] + 1

    return plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,), grid_names=("g",)
    )(x)


def matmul(a, b, *, tile=(128, 128, 64), stages=3):
    (m, k), n = a.shape, b.shape[1]
    tm, tn, tk = tile

    def body(a_gmem, b_gmem, o_gmem, o_smem):
        mi, ni = lax.axis_index("m"), lax.axis_index("n")

        def compute(acc):
            def step(_, a_smem, b_smem):
                plgpu.wgmma(acc, a_smem, b_smem)

            specs = [
                plgpu.BlockSpec((tm, tk), lambda i: (mi, i), transforms=LAYOUT, delay_release=1),
                plgpu.BlockSpec((tk, tn), lambda i: (i, ni), transforms=LAYOUT, delay_release=1),
            ]
            plgpu.emit_pipeline(step, grid=(k // tk,), in_specs=specs, max_concurrent_steps=stages)(
                a_gmem, b_gmem
            )
            return acc[...]

        o_smem[...] = pl.run_scoped(compute, plgpu.ACC((tm, tn), F32)).astype(a.dtype)
        plgpu.commit_smem()
        to = o_gmem.at[pl.ds(mi * tm, tm), pl.ds(ni * tn, tn)]
        plgpu.copy_smem_to_gmem(o_smem, to)
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // tm, n // tn),
        grid_names=("m", "n"),
        scratch_types=[plgpu.SMEM((tm, tn), a.dtype, transforms=LAYOUT)],
    )(a, b)


def clean(f, *args, **options):
    """The value of a simulation without findings."""
    report = simulate(f, *args, **options)
    assert not report.findings, report
    return report.value


class TestPrograms:
    def test_jit_vmap_and_host_code(self) -> None:
        x = normal(3, 256)
        got = clean(jax.jit(lambda x: jnp.sin(jax.vmap(add_one)(x * 2)).sum()), x)
        np.testing.assert_allclose(got, np.sin(x * 2 + 1).sum(), rtol=1e-4, atol=1e-3)

    def test_scan_and_cond_around_a_kernel(self) -> None:
        def f(x):
            x, _ = lax.scan(lambda c, _: (add_one(c), None), x, length=3)
            return lax.cond(x[0] > -1e9, add_one, lambda x: x, x)

        x = normal(256)
        np.testing.assert_allclose(clean(f, x), x + 4, rtol=1e-5)

    def test_core_map_and_pl_kernel(self) -> None:
        mesh = plgpu.Mesh(grid=(2,), grid_names=("g",))

        def f(x):
            @pl.run_state
            def state(refs):
                x_ref, y_ref = refs

                @pl.core_map(mesh)
                def _():
                    part = pl.ds(lax.axis_index("g") * 128, 128)
                    y_ref[part] = x_ref[part] + 1

            return state((x, jnp.zeros_like(x)))[1]

        def g(x):
            def body(x_ref, o_ref, smem):
                part = pl.ds(lax.axis_index("g") * 128, 128)
                smem[...] = x_ref[part]
                o_ref[part] = smem[...] + 1

            return pl.kernel(
                body,
                out_type=jax.ShapeDtypeStruct((256,), F32),
                mesh=mesh,
                scratch_types=[plgpu.SMEM((128,), F32)],
            )(x)

        x = normal(256)
        np.testing.assert_allclose(clean(f, x), x + 1, rtol=1e-6)
        np.testing.assert_allclose(clean(g, x), x + 1, rtol=1e-6)

    def test_the_tree_of_the_result_is_kept(self) -> None:
        x = normal(256)
        value = clean(lambda x: {"a": add_one(x), "b": (x, 1)}, x)
        assert set(value) == {"a", "b"}
        np.testing.assert_allclose(value["a"], x + 1, rtol=1e-6)

    @pytest.mark.parametrize("schedule", ["in_order", "adversarial", 1])
    def test_matmul(self, schedule) -> None:
        a, b = normal(256, 192, dtype="float16"), normal(192, 256, dtype="float16")
        got = clean(matmul, a, b, schedule=schedule)
        want = a.astype(np.float32) @ b.astype(np.float32)
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=2e-2, atol=2e-2)

    def test_the_accumulator_in_all_three_places(self) -> None:
        a, b, c = normal(64, 64, dtype="float16"), normal(64, 64, dtype="float16"), normal(64, 64)

        def scratch(a_gmem, b_gmem, c_gmem, o_gmem, a_smem, b_smem, barrier, acc):
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, barrier)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, barrier)
            plgpu.barrier_wait(barrier)
            plgpu.wgmma(acc, a_smem, b_smem.T)
            o_gmem[...] = acc[...] + c_gmem[...]

        def state(a_gmem, b_gmem, c_gmem, o_gmem, a_smem, b_smem, barrier):
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, barrier)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, barrier)
            plgpu.barrier_wait(barrier)

            def compute(acc):
                plgpu.wgmma(acc, a_smem, b_smem.T)

            o_gmem[...] = pl.run_state(compute)(plgpu.ACC.init(c_gmem[...]))

        def registers(a_gmem, b_gmem, c_gmem, o_gmem, a_smem, b_smem, barrier):
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, barrier)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, barrier)
            plgpu.barrier_wait(barrier)

            def compute(acc):
                plgpu.wgmma(acc, a_smem[...], b_smem.T)
                return acc[...]

            o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32)) + c_gmem[...]

        operands = [plgpu.SMEM((64, 64), F16, transforms=LAYOUT)] * 2
        operands = [*operands, plgpu.Barrier(num_arrivals=2)]
        out = jax.ShapeDtypeStruct((64, 64), F32)
        want = a.astype(np.float32) @ b.astype(np.float32).T + c
        for body, extra in ((scratch, [plgpu.ACC((64, 64), F32)]), (state, []), (registers, [])):
            kernel = plgpu.kernel(body, out_type=out, scratch_types=[*operands, *extra])
            np.testing.assert_allclose(clean(kernel, a, b, c), want, rtol=1e-4, atol=1e-4)

    def test_pipeline_with_inputs_and_outputs(self) -> None:
        def f(x):
            def body(x_gmem, o_gmem):
                def step(_, x_smem, o_smem):
                    o_smem[...] = x_smem[...] * 2

                spec = plgpu.BlockSpec((64, 64), lambda i: (i, 0))
                plgpu.emit_pipeline(
                    step, grid=(4,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2
                )(x_gmem, o_gmem)

            return plgpu.kernel(body, out_type=x)(x)

        x = normal(256, 64)
        for schedule in ("in_order", "adversarial", 5):
            np.testing.assert_allclose(clean(f, x, schedule=schedule), x * 2, rtol=1e-6)

    def test_warp_specialized_pipeline(self) -> None:
        def f(x):
            def body(x_gmem, o_gmem):
                def step(_, x_smem, o_smem):
                    o_smem[...] = x_smem[...] * 2

                spec = plgpu.BlockSpec((64, 64), lambda i: (i, 0))
                plgpu.emit_pipeline_warp_specialized(
                    step, grid=(4,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2,
                    memory_registers=40, num_compute_wgs=1, wg_axis="wg",
                )(x_gmem, o_gmem)  # fmt: skip

            return plgpu.kernel(body, out_type=x, num_threads=2, thread_name="wg")(x)

        x = normal(256, 64)
        for schedule in ("in_order", "adversarial", 5):
            report = simulate(f, x, schedule=schedule)
            assert report.ok, report
            np.testing.assert_allclose(report.value, x * 2, rtol=1e-6)


class TestBadInput:
    def test_no_kernel(self) -> None:
        with pytest.raises(CourseError, match="no Mosaic GPU kernel"):
            simulate(jnp.sin, normal(4))

    def test_pallas_call(self) -> None:
        def f(x):
            def body(x_ref, o_ref):
                o_ref[...] = x_ref[...]

            return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((4,), F32))(x)

        with pytest.raises(CourseError, match="pallas_call"):
            simulate(f, normal(4))

    def test_a_triton_or_tpu_kernel(self) -> None:
        from jax.experimental.pallas import tpu, triton

        def on_mesh(x, **cores):
            mesh = tpu.TensorCoreMesh(axis_name="core", **cores)
            return pl.kernel(lambda x_ref, o_ref: None, out_type=x, mesh=mesh)(x)

        def call(x, params):
            out = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return pl.pallas_call(lambda *_: None, out_shape=out, compiler_params=params)(x)

        for kernel, words in (
            (lambda x: on_mesh(x, num_cores=1), "runs on a TensorCoreMesh, which is not Mosaic"),
            (on_mesh, "is for Pallas' TPU backend"),  # JAX asks for the TPU, which is not there
            (lambda x: call(x, tpu.CompilerParams()), "Triton and TPU kernels are not"),
            (lambda x: call(x, triton.CompilerParams()), "Triton and TPU kernels are not"),
        ):
            with pytest.raises(CourseError, match=words):
                simulate(kernel, normal(256))

    def test_what_is_no_function_and_what_is_no_array(self) -> None:
        class Nothing:
            shape, dtype = (256,), np.dtype("float32")

        with pytest.raises(CourseError, match=r"The first argument is a int.*simulate\(kernel"):
            simulate(5, normal(256))
        for x, words in (
            ("abc", "Array 1 of the arguments is a str; kernels take numpy or JAX arrays"),
            (Nothing(), "is a Nothing"),
            (np.array([None] * 256), "array of Python objects"),
        ):
            with pytest.raises(CourseError, match=words):
                simulate(add_one, x)

    def test_an_array_on_no_device(self) -> None:
        x = jnp.asarray(normal(256))
        x.delete()
        with pytest.raises(CourseError, match="on no device any more: it was deleted"):
            simulate(add_one, x)
        with pytest.raises(CourseError, match="while JAX traces a function"):
            jax.jit(lambda x: simulate(add_one, x).value)(normal(256))

    @pytest.mark.parametrize("version", ["0.11.1", "0.10.2.dev1", "0.13.0", "1.0"])
    def test_a_jax_outside_the_supported_range(self, version, monkeypatch) -> None:
        monkeypatch.setattr(jax, "__version__", version)
        with pytest.raises(CourseError, match=f"The installed JAX is {version}; this course works"):
            simulate(add_one, normal(256))
        monkeypatch.setattr(jax, "__version__", "0.11.2")
        assert simulate(add_one, normal(256)).ok

    def test_unknown_arch_and_schedule(self) -> None:
        with pytest.raises(ValueError, match="sm_90a"):
            simulate(add_one, normal(256), arch="sm_80")
        with pytest.raises(ValueError, match="adversarial"):
            simulate(add_one, normal(256), schedule="worst")
        with pytest.raises(CourseError, match="whole number from 1"):
            simulate(add_one, normal(256), max_steps=0)

    def test_an_unsupported_operation_names_itself_and_the_line(self) -> None:
        def f(x):
            def body(x_gmem, o_gmem):
                @plgpu.inline_mgpu(arg_types=())
                def nothing(_):
                    return None

                nothing()
                o_gmem[...] = x_gmem[...]

            return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), F32))(x)

        report = simulate(f, normal(128))
        assert [f.rule for f in report.findings] == ["unsupported"]
        found = report.findings[0]
        assert found.what == (
            "The simulator does not model the inline function 'nothing' (inline_mgpu): its MLIR "
            "code runs on a GPU only."
        )
        assert "simulated_by" in found.fix
        assert "test_simulator.py" in str(found)
        assert report.value is None


def inline(model, *, of_ref: bool = False):
    """A kernel of one inline function, which has a numpy model."""
    layout = plgpu.Layout.WG_STRIDED((128,), vec_size=1)
    out = plgpu.ShapeDtypeStruct((128,), F32, layout=layout)

    @plgpu.inline_mgpu(
        arg_types=(plgpu.RefType() if of_ref else layout,), return_type=None if of_ref else out
    )
    @simulated_by(model)
    def work(ctx, x):
        raise AssertionError("the MLIR is not for the simulator")

    def body(x_gmem, o_gmem, smem):
        if of_ref:
            smem[...] = x_gmem[...]
            work(smem)
            o_gmem[...] = smem[...]
        else:
            o_gmem[...] = work(x_gmem[...])

    scratch = [plgpu.SMEM((128,), F32)]
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), F32), scratch_types=scratch)


class TestInlineCode:
    @pytest.mark.parametrize("schedule", ["in_order", "adversarial", 0])
    def test_a_model_of_values(self, schedule) -> None:
        x = normal(128)
        np.testing.assert_array_equal(clean(inline(lambda x: x * 3), x, schedule=schedule), x * 3)

    @pytest.mark.parametrize("schedule", ["in_order", "adversarial", 0])
    def test_a_model_that_writes_to_a_ref(self, schedule) -> None:
        def double(ref):
            ref *= 2

        x = normal(128)
        got = clean(inline(double, of_ref=True), x, schedule=schedule)
        np.testing.assert_array_equal(got, x * 2)

    def test_a_model_of_the_wrong_type_says_so(self) -> None:
        report = simulate(inline(lambda x: x.astype(np.float64)), normal(128))
        assert [f.rule for f in report.errors] == ["exception"]
        assert "float64[128], where return_type says float32[128]" in report.errors[0].what
        assert "test_simulator.py" in str(report.errors[0])

    def test_a_replay_here_has_it(self) -> None:
        x = normal(128)
        program = trace_kernels(inline(lambda x: x * 3), x)
        report = replay(program, [x])
        assert not report.findings, report
        np.testing.assert_array_equal(report.value[0], x * 3)

    def test_a_replay_elsewhere_does_not_have_it(self) -> None:
        x = normal(128)
        program = ir.loads(ir.dumps(trace_kernels(inline(lambda x: x * 3), x)))
        report = replay(program, [x])
        assert [f.rule for f in report.errors] == ["unsupported"]
        assert "not saved" in report.errors[0].what


class TestWhere:
    """Which line a finding names."""

    def test_the_callers_line_and_the_kernels(self) -> None:
        big = dataclasses.replace(matmul_hopper.Config(), max_concurrent_steps=8)
        a = normal(512, 512, dtype="float16")

        def mine(a):
            return matmul_hopper.matmul(a, a, config=big)

        [found] = simulate(mine, a).errors
        assert found.rule == "over-capacity"
        where = re.search(r"\(([^()]+), in ([^()]+)\)", str(found).replace("\n    ", " "))
        assert where is not None, found
        first = inspect.getsourcelines(mine)[1]
        assert where[1] == f"test_simulator.py:{first + 1}"
        assert where[2].startswith("matmul_hopper.py:")

    def test_words_for_an_if_on_a_traced_value(self) -> None:
        def body(x_gmem, o_gmem):
            def step(i, c):
                return c + 1 if i > 2 else c

            o_gmem[...] = x_gmem[...] + lax.fori_loop(0, 4, step, 0.0)

        kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), F32))
        [found] = simulate(kernel, normal(128)).errors
        assert found.what == (
            "TracerBoolConversionError: Attempted boolean conversion of traced array with shape "
            "bool[]."
        )
        assert "pl.when" in found.fix


class TestReplay:
    def test_a_saved_program_gives_the_same_report(self, tmp_path) -> None:
        a, b = normal(128, 128, dtype="float16"), normal(128, 128, dtype="float16")
        program = trace_kernels(matmul, a, b)
        path = tmp_path / "matmul.npz"
        ir.save(program, path)
        want = simulate(matmul, a, b)
        again = replay(ir.load(path), [a, b])
        np.testing.assert_array_equal(again.value[0], want.value)
        assert again.findings == want.findings

    def test_another_process_needs_no_jax(self, tmp_path) -> None:
        x = normal(256)
        ir.save(trace_kernels(add_one, x), tmp_path / "p.npz")
        np.save(tmp_path / "x.npy", x)
        code = """
            import sys
            import numpy as np
            from course_lib.simulator import ir, replay
            report = replay(ir.load(sys.argv[1]), [np.load(sys.argv[2])])
            assert "jax" not in sys.modules, "jax was imported"
            np.save(sys.argv[3], report.value[0])
            print(report)
        """
        names = [str(tmp_path / n) for n in ("p.npz", "x.npy", "y.npy")]
        out = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *names],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert out.stdout.strip() == "No findings."
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), x + 1, rtol=1e-6)

    def test_a_child_process_gives_the_same_report(self) -> None:
        a, b = normal(128, 128, dtype="float16"), normal(128, 128, dtype="float16")
        program = trace_kernels(matmul, a, b)
        want, got = replay(program, [a, b]), replay_apart(program, [a, b])
        np.testing.assert_array_equal(got.value[0], want.value[0])
        assert got.findings == want.findings
        x = normal(256)
        bad = trace_kernels(lambda x: add_one(x[:200]), x)  # the second block sticks out
        want = replay(bad, [x])
        assert want.errors
        assert replay_apart(ir.dumps(bad), [x]).findings == want.findings

    def test_a_child_process_is_stopped(self) -> None:
        def forever(x):
            def body(x_gmem, o_gmem):
                o_gmem[...] = lax.while_loop(lambda c: c[0] > -1e9, lambda c: c + 1, x_gmem[...])

            return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((256,), F32))(x)

        x = normal(256)
        report = replay_apart(trace_kernels(forever, x), [x], max_steps=10**12, timeout_s=3)
        assert [f.rule for f in report.errors] == ["step-limit"]
        assert "3 s" in report.errors[0].what

        def wide(x):
            def body(x_gmem, o_gmem):
                o_gmem[pl.ds(0, 256)] = x_gmem[...]

            return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((1 << 30,), F32))(x)

        report = replay_apart(trace_kernels(wide, x), [x], memory_bytes=2 << 30)
        assert [f.rule for f in report.errors] == ["over-capacity"], report

    def test_a_wild_allocation_is_refused_before_it_is_made(self) -> None:
        def f(x):
            def body(x_gmem, o_gmem, smem):
                o_gmem[...] = x_gmem[...]

            scratch = [plgpu.SMEM((1 << 20, 1 << 20), F32)]
            return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)

        report = simulate(f, jnp.zeros((128,)) + 1)
        assert [f.rule for f in report.errors] == ["over-capacity"]
        assert "4,398,046,511,104 bytes" in report.errors[0].what

    def test_another_version_is_refused(self) -> None:
        data = ir.dumps(trace_kernels(add_one, normal(256)))
        version, ir.VERSION = ir.VERSION, 99
        try:
            with pytest.raises(ValueError, match="version"):
                ir.loads(data)
        finally:
            ir.VERSION = version
