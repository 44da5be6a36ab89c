"""The disk cache: whole files only, and never a reason to fail."""

import errno
import multiprocessing
import os
import warnings

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.compiler import cache, compile_for, requests
from course_lib.compiler.api import _memory
from tests.compiler.kernels import scale, spec

KEY = "0" * 64
TEXT = cache.dumps({"kernels": [], "words": "größer"})


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_complained", set())


def test_what_is_stored_is_found():
    assert cache.load(KEY) is None
    cache.store(KEY, TEXT)
    assert cache.load(KEY) == TEXT
    assert [f.suffix for f in cache.folder().iterdir()] == [".gz"]


@pytest.mark.parametrize("damage", [b"", b"not gzip", b"\x1f\x8b\x08\x00half"])
def test_a_damaged_file_is_as_none(damage):
    cache.store(KEY, TEXT)
    [file] = cache.folder().iterdir()
    file.write_bytes(damage)
    assert cache.load(KEY) is None
    cache.store(KEY, TEXT)
    assert cache.load(KEY) == TEXT


def test_a_half_written_file_is_as_none():
    cache.store(KEY, TEXT)
    [file] = cache.folder().iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert cache.load(KEY) is None


def _hammer(number: int) -> bool:
    for _ in range(40):
        cache.store(KEY, TEXT)
        if cache.load(KEY) != TEXT:
            return False
    return True


def test_two_notebooks_at_the_same_file():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_hammer, range(2)) == [True, True]
    assert [f.suffix for f in cache.folder().iterdir()] == [".gz"]  # no leftovers


def test_only_the_newest_are_kept(monkeypatch):
    monkeypatch.setattr(cache, "_MAX_FILES", 3)
    for n in range(6):
        cache.store(f"{n}" * 64, TEXT)
        [file] = cache.folder().glob(f"{n}*")
        os.utime(file, (n, n))
    assert cache.load("0" * 64) is None
    assert cache.load("5" * 64) == TEXT
    assert len(list(cache.folder().iterdir())) <= 4


def _is_a_file(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where the folder should be")


def _no_permission(tmp_path, monkeypatch):
    # root may write anywhere, so that the folder's mode alone would prove nothing
    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)


def _full(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.gzip, "compress", refuse)


@pytest.mark.parametrize("trouble", [_is_a_file, _no_permission, _full])
def test_a_folder_that_cannot_be_written(trouble, tmp_path, monkeypatch):
    trouble(tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="cannot be kept in .* Set COURSE_CACHE"):
        cache.store(KEY, TEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.store(KEY, TEXT)  # said once
    monkeypatch.undo()
    assert not list((tmp_path / "cache").glob("compiled/*.part"))


def test_compiling_works_without_a_cache(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    _memory.clear()
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert compile_for(scale, spec(1024, 128)).count("LDG")


def test_it_is_a_folder_of_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "mosaic-gpu-hands-on" / "compiled"


def _copy(mode):
    def body(x_gmem, y_gmem, smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded, oob_mode=mode)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch = dict(smem=plgpu.SMEM((64, 64), jnp.float32), loaded=plgpu.Barrier())
    return plgpu.kernel(body, out_type=spec(64, 64), scratch_types=scratch)


def test_kernels_that_jax_prints_alike_have_keys_of_their_own():
    """`oob_mode` decides which instruction copies; JAX's text of a copy does not show it."""
    modes = (None, plgpu.OOBFillMode.ZEROS, plgpu.OOBFillMode.PROMISE_IN_BOUNDS, None)
    keys = [requests.prepare(_copy(m), (spec(64, 64),)).key("sm_90a", "") for m in modes]
    assert len(set(keys)) == 3
    assert keys[0] == keys[-1]


def _kept(*, packed=False, num_arrivals=1, orders_tensor_core=False):
    def body(x_gmem, y_gmem, smem, tmem, loaded, done):
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_store_tmem(tmem, smem[...])
        plgpu.commit_tmem()
        y_gmem[...] = plgpu.async_load_tmem(tmem).astype(jnp.float32)

    half = jnp.float16
    scratch = dict(
        smem=plgpu.SMEM((128, 64), half),
        tmem=plgpu.TMEM((128, 64), half, packed=packed),
        loaded=plgpu.Barrier(num_arrivals=num_arrivals),
        done=plgpu.Barrier(orders_tensor_core=orders_tensor_core),
    )
    kernel = plgpu.kernel(body, out_type=spec(128, 64), scratch_types=scratch)
    return requests.prepare(kernel, (spec(128, 64, dtype=half),)).key("sm_100a", "")


def test_kernels_that_differ_only_in_their_scratch_have_keys_of_their_own():
    """JAX's text shows neither how TMEM is packed nor what a barrier counts and orders."""
    variants = ({}, {"packed": True}, {"num_arrivals": 2}, {"orders_tensor_core": True})
    assert len({_kept(**variant) for variant in variants}) == len(variants)
    assert _kept(packed=True) == _kept(packed=True)


def _neighbour(which):
    def body(x_gmem, y_gmem, tile_smem, ready):
        rank = jax.lax.axis_index("cluster")
        others = (jax.lax.rem(rank + 1, 4), jax.lax.rem(rank + 2, 4))
        tile_smem[...] = x_gmem[...]
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)
        y_gmem[rank] = plgpu.cluster_ref(tile_smem, {"cluster": others[which]})[...]
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)

    kernel = plgpu.kernel(
        body,
        out_type=spec(4, 8, 128),
        cluster=(4,),
        cluster_names=("cluster",),
        scratch_types=dict(
            tile_smem=plgpu.SMEM((8, 128), jnp.float32),
            ready=plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ),
    )
    return requests.prepare(kernel, (spec(8, 128),)).key("sm_90a", "")


def test_a_neighbour_in_the_cluster_is_known_by_its_number():
    """JAX prints the variable of a `cluster_ref` by its address in memory."""
    assert _neighbour(0) == _neighbour(0)
    assert _neighbour(0) != _neighbour(1)
