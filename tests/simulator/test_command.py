"""The command, and the fixture, for an engineer's own code."""

from __future__ import annotations

import json
import textwrap

import numpy as np
import pytest

from course_lib.simulator.command import draw, main
from course_lib.simulator.pytest_plugin import simulated  # noqa: F401  (a fixture)
from tests.simulator.litmus import copies
from tests.simulator.test_simulator import add_one, normal

KERNEL = textwrap.dedent("""
    import jax.experimental.pallas.mosaic_gpu as plgpu
    import jax.numpy as jnp

    def copy(x, commit=True):
        def body(x_gmem, o_gmem, smem):
            smem[...] = x_gmem[...]
            if commit:
                plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(smem, o_gmem)
            plgpu.wait_smem_to_gmem(0)

        return plgpu.kernel(body, out_type=x, scratch_types=[plgpu.SMEM((128,), jnp.float32)])(x)

    def wrong(x):
        return copy(x, commit=False)
""")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(KERNEL)
    return path


def test_a_right_kernel(file, capsys) -> None:
    assert main([f"{file}:copy", "f32[128]"]) == 0
    assert capsys.readouterr().out.strip() == "No findings."


def test_a_wrong_kernel_in_three_forms(file, capsys) -> None:
    assert main([f"{file}:wrong", "f32[128]"]) == 1
    text = capsys.readouterr().out
    assert "missing-commit-smem" in text
    assert "mine.py:" in text
    assert main([f"{file}:wrong", "f32[128]", "--json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)
    assert finding["rule"] == "missing-commit-smem"
    assert main([f"{file}:wrong", "f32[128]", "--sarif", "--schedule", "3"]) == 1
    log = json.loads(capsys.readouterr().out)
    [result] = log["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1


def test_a_trace_of_time(file, tmp_path) -> None:
    trace = tmp_path / "trace.json"
    assert main([f"{file}:copy", "f32[128]", "--timeline", str(trace)]) == 0
    assert json.loads(trace.read_text())["traceEvents"]


def test_bad_input_is_a_sentence(file, capsys) -> None:
    for arguments, words in (
        ([f"{file}:nothing"], "has nothing called nothing"),
        (["nowhere.py:f"], "There is no file nowhere.py"),
        ([f"{file}:copy", "128"], "float16[4096,4096]"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err


def test_data_of_a_type() -> None:
    assert draw("bf16[2,3]").dtype.name == "bfloat16"
    assert draw("i32[8]").shape == (8,)


def test_the_fixture_gives_values_and_fails_on_errors(simulated) -> None:  # noqa: F811
    x = normal(256)
    np.testing.assert_allclose(simulated(add_one, x), x + 1, rtol=1e-6)
    pair = copies.PAIRS[0]
    with pytest.raises(pytest.fail.Exception, match="missing-commit-smem"):
        simulated(pair.wrong, *pair.draw())
