"""Each rule is an exception that can be caught by its name."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib import run
from course_lib.diagnostics import Finding, KernelError, Severity
from course_lib.simulator import RULES, errors

pytestmark = pytest.mark.two_jax
DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


def through_smem(x, *, waits):
    def body(x_gmem, y_gmem, smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded)
        if waits:
            plgpu.barrier_wait(loaded)
        y_gmem[...] = smem[...]
        if not waits:
            plgpu.barrier_wait(loaded)

    scratch = dict(smem=plgpu.SMEM(x.shape, x.dtype), loaded=plgpu.Barrier())
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def test_run_raises_the_class_of_the_rule():
    x = jnp.asarray(np.random.default_rng().standard_normal(256), jnp.float32)
    with pytest.raises(errors.ReadBeforeArrivalError) as caught:
        run(lambda x: through_smem(x, waits=False), x)
    assert caught.value.rule == "read-before-arrival"
    assert "cell" in str(caught.value) or "test_errors.py" in str(caught.value)
    assert np.array_equal(run(lambda x: through_smem(x, waits=True), x), x)


def test_every_rule_has_a_class_which_the_docs_name():
    text = DOCS.read_text()
    assert set(errors.BY_RULE) == set(RULES)
    for rule, kind in errors.BY_RULE.items():
        assert issubclass(kind, KernelError)
        assert RULES[rule].title.lower() in (kind.__doc__ or "").lower()
        assert getattr(errors, kind.__name__) is kind
        assert f"| `{rule}` | `{kind.__name__}` |" in text


def test_the_first_error_decides_and_a_note_does_not():
    note = Finding("missing-commit-smem-after-read", Severity.NOTE, "A note.")
    race = Finding("data-race", Severity.ERROR, "A race.")
    error = errors.of((note, race))
    assert type(error) is errors.BY_RULE["data-race"]
    assert str(error) == str(race)
    assert error.findings == (note, race)
    assert type(errors.of((Finding("layout", Severity.ERROR, "No layout."),))) is KernelError
