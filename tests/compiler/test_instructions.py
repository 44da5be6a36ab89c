"""The course's matrix products become the instructions that they are about, without a GPU."""

import jax
import jax.numpy as jnp
import pytest

from course_lib.compiler import compile_for, expectations, unmet_expectations
from course_lib.kernels import matmul_blackwell, matmul_hopper
from tests.compiler.kernels import scale, scale_through_smem, spec

SQUARE = (spec(4096, 4096, dtype=jnp.float16),) * 2


def unmet(function, *args, arch, expected):
    return expectations(compile_for(function, *args, arch=arch), expected)


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_elementwise(arch):
    expected = {
        "ld.global": ">0",
        "st.global": ">0",
        "LDG": ">0",
        "mul": ">0",
        "wgmma": 0,
        "tcgen05": 0,
        "cp.async.bulk": 0,
        "smem_bytes": 0,
        "spill_bytes": 0,
        "registers": "<=168",  # 128 values per lane
    }
    assert unmet(scale, spec(1024, 128), arch=arch, expected=expected) == []


def test_elementwise_by_tma():
    expected = {"cp.async.bulk": ">=2", "mbarrier.init": 1, "fence.proxy.async": 1}
    assert unmet(scale_through_smem, spec(128, 128), arch="sm_90a", expected=expected) == []


def test_wgmma_matmul():
    expected = {
        "wgmma.mma_async": 8,  # 2 x 64 rows, 4 steps of 16 along a slot of K
        "HGMMA": 8,
        "cp.async.bulk.tensor": ">=4",
        "UTMALDG": ">=4",
        "UTMASTG": 1,
        "UTMALDG*MULTICAST": 0,
        "tcgen05": 0,
        "spill_bytes": 0,
        "registers": "<=168",
        "smem_bytes": ">=163840",  # 4 slots of two 16 KiB tiles, and 32 KiB for the result
    }
    assert unmet(matmul_hopper.matmul, *SQUARE, arch="sm_90a", expected=expected) == []


def test_clustered_multicast_matmul():
    code = compile_for(matmul_hopper.matmul_multicast, *SQUARE, arch="sm_90a")
    expected = {
        "wgmma.mma_async": 8,
        "cp.async.bulk.tensor*multicast::cluster": ">=2",
        "UTMALDG*MULTICAST": ">=2",
        "barrier.cluster": ">=2",
        "spill_bytes": 0,
    }
    assert expectations(code, expected) == []
    [kernel] = code.kernels
    assert kernel.cluster == (2, 1, 1)
    assert sorted(kernel.grid) == [1, 16, 64]  # 32 x 32 tiles, two blocks of a cluster abreast


def test_tcgen05_matmul():
    expected = {
        "tcgen05.mma": 4,
        "UTCHMMA": 4,
        "UTCHMMA.2CTA": 0,
        "LDTM": ">0",
        "wgmma": 0,
        "spill_bytes": 0,
        "tmem_columns": 128,
    }
    assert unmet(matmul_blackwell.matmul, *SQUARE, arch="sm_100a", expected=expected) == []


def test_tcgen05_matmul_by_pairs_of_sms():
    code = compile_for(matmul_blackwell.matmul_collective, *SQUARE, arch="sm_100a")
    expected = {
        "tcgen05.mma.cta_group::2": 4,
        "UTCHMMA.2CTA": 4,
        "UTMALDG*2CTA": ">0",
        "spill_bytes": 0,
        "tmem_columns": 256,
    }
    assert expectations(code, expected) == []
    assert code.kernels[0].cluster == (2, 1, 1)


def test_two_architectures_in_turn():
    for _ in range(2):
        hopper = compile_for(scale, spec(1024, 128), arch="sm_90a")
        blackwell = compile_for(scale, spec(1024, 128), arch="sm_100a")
        assert ".target sm_90a" in hopper.ptx
        assert ".target sm_100a" in blackwell.ptx
        assert hopper.sass != blackwell.sass


def test_arrays_do_as_well_as_shapes():
    x = jax.random.normal(jax.random.key(0), (1024, 128))
    assert compile_for(scale, x).ptx == compile_for(scale, spec(1024, 128)).ptx


def test_expectations_of_several_architectures():
    expected = {"sm_90a": {"LDG": ">0", "wgmma": ">=1"}, "sm_100a": {"LDG": ">0"}}
    assert unmet_expectations(scale, (spec(1024, 128),), expected) == [
        "Compiled for sm_90a it has 0 wgmma instructions; expected at least 1."
    ]
    [sentence] = unmet_expectations(matmul_hopper.matmul, SQUARE, {"sm_100a": {"UTCHMMA": ">0"}})
    assert sentence.startswith("It does not compile for sm_100a. wgmma is Hopper's")
