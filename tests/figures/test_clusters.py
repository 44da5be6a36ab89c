"""The pictures of clusters: the same each time, told in words, with the kernel's own numbers."""

from __future__ import annotations

import pytest

from course_lib.figures import clusters, png
from course_lib.kernels import clusters as kernels


def test_draws_the_same_picture_twice() -> None:
    assert png(clusters.together()) == png(clusters.together())
    assert png(clusters.grid(2, 2)) == png(clusters.grid(2, 2))


@pytest.mark.parametrize(("m", "n", "kib"), [(1, 1, 32), (2, 1, 24), (2, 2, 16), (4, 4, 8)])
def test_says_how_much_a_block_brings(m: int, n: int, kib: int) -> None:
    words = str(clusters.grid(m, n).get_label())
    assert f"clusters of {m} x {n}" in words
    assert f"{kib} KiB per step" in words
    if m * n <= kernels.PORTABLE_CLUSTER:
        config = kernels.Config(cluster_m=m, cluster_n=n)
        assert kernels.bytes_per_step(config) == kib * 1024


@pytest.mark.parametrize(("m", "n"), [(3, 1), (1, 5), (8, 1)])
def test_refuses_a_cluster_that_does_not_divide_the_grid(m: int, n: int) -> None:
    with pytest.raises(ValueError, match="must be 1, 2 or 4"):
        clusters.grid(m, n)


def test_different_clusters_are_different_pictures() -> None:
    assert png(clusters.grid(2, 1)) != png(clusters.grid(1, 2))
