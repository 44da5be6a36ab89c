"""`expectations` says in sentences what a compiled kernel lacks."""

import pytest

from course_lib.compiler import expectations
from course_lib.compiler.compiled import from_data

pytestmark = pytest.mark.two_jax

PTX = "{\n\twgmma.mma_async.sync %f1;\n\twgmma.mma_async.sync %f2;\n\tmov.b32 %r1, 0;\n}\n"


def compiled(**changes):
    kernel = {
        "name": "kernel", "grid": [4, 1, 1], "block": [128, 1, 1], "cluster": [1, 1, 1],
        "smem_bytes": 4096, "tmem_columns": 0, "registers": 90, "spill_bytes": 8,
        "stack_bytes": 0, "ptx": PTX, "sass": "", "layouts": [],
    }  # fmt: skip
    return from_data({"kernels": [{**kernel, **changes}], "buffers": []}, arch="sm_90a")


@pytest.mark.parametrize(
    "expected",
    [
        {"wgmma.mma_async": ">=2", "mov": 1, "tcgen05": 0},
        {"wgmma.mma_async": "==2", "registers": "<= 90", "smem_bytes": ">4095"},
        {"spill_bytes": "8", "registers": "!=0", "tmem_columns": "<1"},
        {},
    ],
)
def test_met(expected):
    assert expectations(compiled(), expected) == []


def test_unmet_ones_are_sentences():
    found = expectations(
        compiled(), {"wgmma.mma_async": ">=4", "spill_bytes": 0, "registers": "<=128", "mov": "!=1"}
    )
    assert found == [
        "Compiled for sm_90a it has 2 wgmma.mma_async instructions; expected at least 4.",
        "Compiled for sm_90a it has 8 bytes spilled; expected exactly 0.",
        "Compiled for sm_90a it has 1 mov instructions; expected anything but 1.",
    ]


@pytest.mark.parametrize("condition", ["some", ">=", "=> 4", "-1", None])
def test_conditions_that_cannot_be_read(condition):
    with pytest.raises(ValueError, match="write 4 or"):
        expectations(compiled(), {"wgmma": condition})
