"""The benchmark of clusters: with and without is the same work, and the baseline has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib.benchmarks import clusters, records
from course_lib.kernels import clusters as kernels


@pytest.mark.parametrize("case", [*clusters.stream(), *clusters.product()], ids=lambda c: c.name)
def test_the_baseline_has_no_cluster_and_the_others_have(case):
    assert case.baseline.name == clusters.NO_CLUSTER
    with_clusters = [c for c in case.contenders if c.name.startswith("clusters")]
    assert len(with_clusters) >= 6
    for one in (case.baseline, *with_clusters):
        blocks = one.config.get("blocks") or one.config["cluster_m"] * one.config["cluster_n"]
        assert (blocks > 1) is not one.name.startswith(clusters.NO_CLUSTER)


@pytest.mark.parametrize("case", [*clusters.stream(), *clusters.product()], ids=lambda c: c.name)
def test_all_give_an_array_of_one_shape(case):
    args = jax.eval_shape(case.draw, jax.random.key(0))
    shapes = {
        jax.eval_shape(c.function, *args).shape for c in (case.baseline, *case.contenders[:7])
    }
    assert shapes == {jax.eval_shape(case.reference, *args).shape}


def test_the_truth_of_the_stream_is_that_of_the_kernel():
    rng = np.random.default_rng()
    q, x = (rng.standard_normal((n, 32, 128)).astype(np.float32) for n in (2, 5))
    np.testing.assert_allclose(
        clusters._sum_of_distances(jnp.asarray(q), jnp.asarray(x)),
        kernels.distances_reference(q, x),
        rtol=1e-5,
    )


def _newest(suite):
    return records.read(max(records.FOLDER.glob(f"*-nvidia-h200-{suite}.json")))


def test_the_chapter_says_what_the_newest_records_say():
    text = (records.ROOT / "solutions" / "09_clusters.md").read_text()
    measured = text[text.index('"id": "measured"') : text.index('"id": "compiler-intro"')]
    rings = {(4, 1), (4, 2), (8, 4)}
    stream = [r for r in _newest("clusters-stream").rows if _ring(r) in rings]
    best = max(r.rate for r in stream if r.config["blocks"] == 1)
    rows = [line for line in measured.splitlines() if line.startswith("|")]
    for row in stream:
        said = f"| {row.rate / 1000:.1f} | {row.rate / best:.2f} |".replace("1.00", "1")
        assert any(said in line.replace("**", "") for line in rows), (row.name, said)
    product = _newest("clusters-product").rows
    for row in product:
        if row.name in ("clusters of 2 x 1", "clusters of 1 x 2", "clusters of 2 x 2"):
            assert f"{row.ratio:.3f}" in measured, row.name
    for case in {r.case for r in product}:
        seven, eight = (
            next(r for r in product if (r.case, r.name) == (case, name))
            for name in ("matmul7", "matmul8")
        )
        assert f"{seven.median_us / eight.median_us:.3f}" in measured


def _ring(row):
    return row.config["slots"], row.config["lag"]
