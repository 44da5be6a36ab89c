"""On the card, the suites of copies and of attention measure what they are about."""

import pytest

from course_lib.benchmarks import bench, suites

pytestmark = pytest.mark.gpu


def test_copies_next_to_xla_and_to_the_driver():
    record = bench.run_suite("copy", "GB/s", suites.copy(["512MiB"]), rounds=3, anyway=True)
    rates = {row.name: row.rate for row in record.rows}
    assert {"XLA x + 1", "cuMemcpyDtoD"} <= set(rates)
    assert all(100 < rate < 20_000 for rate in rates.values()), rates


def test_attention_next_to_cudnn():
    record = bench.run_suite(
        "attention", "TFLOP/s", suites.attention(["1x1024x4x64", "1x1024x4x64:causal"]), anyway=True
    )
    if not record.rows:
        pytest.skip(f"cuDNN does not run here: {record.notes}")
    assert {row.case for row in record.rows} == {
        "B1 S1024 H4 D64 float16",
        "B1 S1024 H4 D64 causal float16",
    }
