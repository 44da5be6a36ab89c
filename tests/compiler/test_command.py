"""`course compile` on a file of an engineer's own."""

import json
import textwrap

import pytest

from course_lib import cli

KERNEL = textwrap.dedent("""
    import functools
    import jax
    from jax import lax
    from jax.experimental.pallas import mosaic_gpu as plgpu

    def double(x):
        @functools.partial(
            plgpu.kernel, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0],), grid_names=("i",),
        )
        def kernel(x_gmem, o_gmem):
            i = lax.axis_index("i")
            o_gmem[i] = x_gmem[i] * 2

        return kernel(x)
""")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_kernel.py"
    path.write_text(KERNEL)
    return path


def course(*arguments) -> int:
    return cli.main(["compile", *map(str, arguments)])


def test_a_summary(file, capsys):
    assert course(f"{file}:double", "f32[16,128]") == 0
    out = capsys.readouterr().out
    assert out.startswith("Compiled for sm_90a\n  kernel: grid 16,")
    assert "o_gmem[i] = x_gmem[i] * 2" in out
    assert "WG_STRIDED" in out


@pytest.mark.parametrize(("how", "words"), [("ptx", ".target sm_100a"), ("sass", "LDG.E")])
def test_listings(file, capsys, how, words):
    assert course(f"{file}:double", "float32[16, 128]", "--arch", "sm_100a", "--format", how) == 0
    assert words in capsys.readouterr().out


def test_data(file, capsys):
    assert course(f"{file}:double", "bfloat16[16,256]", "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["arch"] == "sm_90a"
    assert data["kernels"][0]["grid"] == [16, 1, 1]
    assert data["kernels"][0]["spill_bytes"] == 0


def test_expectations_decide_the_exit_status(file, capsys):
    call = (f"{file}:double", "f32[16,128]", "--expect", "spill_bytes==0", "--expect")
    assert course(*call, "LDG>=1") == 0
    assert course(*call, "wgmma.mma_async>=4") == 1
    assert "0 wgmma.mma_async instructions; expected at least 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("def double(:", ("f32[16,128]",), "my_kernel.py:1 is not valid Python: invalid syntax"),
        (KERNEL + "\nimport nowhere", ("f32[16,128]",), "my_kernel.py:18): ModuleNotFoundError"),
        (KERNEL, ("f32[16,128",), "f32[16,128 is no array: write dtype[sizes]"),
        (KERNEL, ("f31[16,128]",), "f31[16,128] is no array"),
        (KERNEL, ("f32[16,30]",), "multiple of 128"),
        (KERNEL, ("f32[16,128]", "--arch", "sm_90"), 'Did you mean "sm_90a"?'),
        (KERNEL, ("f32[16,128]", "--expect", "LDG"), "LDG is no condition"),
        (KERNEL, (), "missing 1 required positional argument"),
    ],
)
def test_mistakes_are_sentences(tmp_path, capsys, text, arguments, words):
    path = tmp_path / "my_kernel.py"
    path.write_text(text)
    assert course(f"{path}:double", *arguments) == 1
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_a_name_that_is_not_there(file, capsys):
    assert course(f"{file}:duoble", "f32[16,128]") == 1
    assert "has nothing called duoble. Did you mean double?" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert course(f"{tmp_path}/none.py:double") == 1
    assert "There is no file" in capsys.readouterr().err


def test_a_module_by_name(capsys):
    assert course("tests.compiler.kernels:scale", "f32[1024,128]") == 0
    assert "grid 8" in capsys.readouterr().out
    assert course("kernels") == 1
    assert "write file.py:name" in capsys.readouterr().err
