"""`memory.mjs` under node answers what `course_lib.layouts` answers, over hundreds of cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts import registers
from course_lib.layouts.banks import Transfer
from course_lib.layouts.registers import CATALOG, named
from course_lib.layouts.smem import SmemRef
from course_lib.layouts.tiling import Tiling
from course_lib.layouts.tmem import TmemRef
from tests.explorer import node

pytestmark = pytest.mark.needs("node")

MODULE = Path(__file__).with_name("memory_for_tests.mjs")
MATRICES = ((64, 32), (64, 96), (128, 64), (32, 64), (64, 12), (2, 128, 16))
DEPENDS_ON_BITS = ("WG_STRIDED", "SMEM_GMEM_COPY", "MMA_LHS", "MMA_RHS")
VECTORS = ((4,), (8,), (16,), (128,), (384,), (12,))


def given_refs() -> list[dict[str, Any]]:
    """Refs that fit and refs that do not."""
    tilings = ((), ((8, 64),), ((8, 32),), ((8, 16),), ((64, 8),), ((32, 64), (8, 16)), ((8, 60),))
    refs = itertools.product(
        ((64, 128), (16, 64), (2, 8, 64), (256, 64)),
        tilings,
        (4, 8, 16, 32),
        (None, 128, 64, 32, 16),
        (False, True),
    )
    made = []
    for shape, tiles, bits, swizzle, turned in refs:
        permutation = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2) if turned else None
        made.append(
            {
                "shape": shape,
                "bits": bits,
                "tiles": tiles,
                "swizzle": swizzle,
                "permutation": permutation,
            }
        )
    made += [
        {"shape": (64, 64), "bits": 24, "tiles": (), "swizzle": None, "permutation": None},
        {"shape": (0, 64), "bits": 16, "tiles": (), "swizzle": None, "permutation": None},
        {"shape": (64, 64), "bits": 16, "tiles": (), "swizzle": None, "permutation": (0, 2)},
        {"shape": (64,), "bits": 16, "tiles": ((8, 64),), "swizzle": None, "permutation": None},
        {"shape": (64, 8), "bits": 16, "tiles": ((8, 0),), "swizzle": None, "permutation": None},
    ]
    return made


def attempt(make: Callable[[], Any]) -> tuple[Any, dict[str, str] | None]:
    """What `make` returns, or the answer of the twin when it throws the same sentence."""
    try:
        return make(), None
    except CourseError as error:
        return None, {"error": str(error)}


def ref_of(given: dict[str, Any]) -> SmemRef:
    rest = {k: v for k, v in given.items() if k != "tiles"}
    return SmemRef(tiling=Tiling(given["tiles"]), **rest)


def test_shared_memory() -> None:
    refs = given_refs()
    fits = refused = 0
    for given, got in zip(refs, node.call(MODULE, [("map", [g]) for g in refs]), strict=True):
        ref, refusal = attempt(lambda g=given: ref_of(g))
        if refusal:
            assert got == refusal
            refused += 1
            continue
        fits += 1
        assert got["shape"] == list(ref.view_shape)
        np.testing.assert_array_equal(got["bits"], ref.bit_offset(ref.indices()).ravel())
        np.testing.assert_array_equal(got["phase"], ref.phases().ravel())
        held = np.ravel_multi_index(
            tuple(np.moveaxis(ref.index_at(np.arange(ref.size)), -1, 0)), ref.view_shape
        )
        np.testing.assert_array_equal(got["at"], held)
    assert min(fits, refused) > 100


def test_single_addresses_and_code() -> None:
    rng = np.random.default_rng()
    for given in given_refs()[::11]:
        try:
            ref = ref_of(given)
        except CourseError:
            continue
        slots = rng.integers(ref.size, size=20).tolist()
        index = ref.index_at(slots).tolist()
        got = node.call(
            MODULE,
            [
                ("addresses", [given, index]),
                ("indicesAt", [given, slots]),
                ("refCode", [given, "bfloat16"]),
            ],
        )
        assert got == [ref.byte_offset(index).tolist(), index, ref.code("bfloat16")]


def test_the_catalog() -> None:
    [got] = node.call(MODULE, [("catalog", [])])
    assert got == [[n, e.code, e.what, e.rank] for n, e in CATALOG.items()]


def test_register_layouts_both_ways() -> None:
    cases = [
        (name, shape, bits)
        for name in CATALOG
        for shape in (((4, 3), (9,)) if name == "WG_SPLAT" else (*MATRICES, *VECTORS))
        for bits in ((4, 8, 16, 32) if name in DEPENDS_ON_BITS else (16,))
    ]
    got = node.call(MODULE, [("layout", [n, s, b]) for n, s, b in cases])
    fits = 0
    for (name, shape, bits), answer in zip(cases, got, strict=True):
        made = (name, shape, bits)
        held, refusal = attempt(lambda m=made: named(*m).elements(m[1]))
        if refusal:
            assert answer == refusal
            continue
        layout = named(name, shape, bits)
        fits += 1
        assert (answer["registers"], answer["vector"]) == held.shape[1:]
        np.testing.assert_array_equal(answer["elements"], held.ravel())
        holders = layout.holders(shape)
        assert answer["replication"] == holders.shape[1]
        places = np.ravel_multi_index(tuple(np.moveaxis(holders, -1, 0)), held.shape)
        np.testing.assert_array_equal(answer["places"], places.ravel())
    assert fits > 100


def test_reductions() -> None:
    names = [n for n, e in CATALOG.items() if e.rank == 2 and n not in ("WG_STRIDED", "WG_SPLAT")]
    cases = list(itertools.product(names, (0, 1)))
    got = node.call(MODULE, [("reduced", [n, a, [128]]) for n, a in cases])
    for (name, axis), answer in zip(cases, got, strict=True):
        layout = CATALOG[name].make((128, 128), 16)
        assert isinstance(layout, registers.Tiled)
        wanted = layout.reduce(axis).elements((128,))
        np.testing.assert_array_equal(answer["elements"], wanted.ravel(), err_msg=f"{name} {axis}")


def test_the_code_of_layouts() -> None:
    cases = list(itertools.product(CATALOG, ((64, 32), (128, 128)), (8, 16, 32)))
    got = node.call(MODULE, [("layoutCode", [n, s, b]) for n, s, b in cases])
    assert got == [registers.code(n, s, b) for n, s, b in cases]


def test_tensor_memory() -> None:
    cases = [
        {"shape": shape, "bits": bits, "packed": packed, "collective": collective}
        for shape, bits, packed, collective in itertools.product(
            ((128, 64), (64, 64), (64, 24), (32, 64), (128, 513), (128, 63), (128, 512)),
            (8, 16, 32, 64),
            (False, True),
            (False, True),
        )
    ]
    calls = [("tmem", [g]) for g in cases] + [("tmemCode", [g, "float32"]) for g in cases]
    got = node.call(MODULE, calls)
    fits = 0
    for given, answer, code in zip(cases, got, got[len(cases) :], strict=False):
        ref, refusal = attempt(lambda g=given: TmemRef(**g))
        if refusal:
            assert answer == refusal
            continue
        fits += 1
        assert code == ref.code("float32")
        assert (answer["columns"], answer["allocated"]) == (ref.columns, ref.allocated)
        np.testing.assert_array_equal(answer["places"], ref.places().reshape(-1, 3))
    assert 20 < fits < len(cases)


def transfers() -> list[tuple[str, dict[str, Any], str]]:
    names = [n for n, e in CATALOG.items() if e.rank == 2]
    cases = []
    for name, bits, swizzle, turned, arch in itertools.product(
        names, (4, 8, 16, 32), (None, 32, 64, 128), (False, True), ("sm_90a", "sm_100a")
    ):
        tile = (8, (swizzle or 64) * 8 // bits)
        shape = (64, 128) if "M64" in name else (128, 128)
        given = {
            "shape": shape[::-1] if turned else shape,
            "bits": bits,
            "tiles": (tile,),
            "swizzle": swizzle,
            "permutation": (1, 0) if turned else None,
        }
        cases.append((name, given, arch))
    return cases


def transfer_of(name: str, given: dict[str, Any], arch: str) -> Transfer:
    ref = ref_of(given)
    return Transfer(named(name, ref.view_shape, ref.bits), ref, arch)


def test_bank_conflicts() -> None:
    rng = np.random.default_rng()
    cases = transfers()[int(rng.integers(5)) :: 5]
    fronts = [[int(rng.integers(4)), int(rng.integers(64)), int(rng.integers(4))] for _ in range(3)]
    got = node.call(MODULE, [("transfer", [n, g, fronts, a]) for n, g, a in cases])
    seen: set[int] = set()
    forms: set[str] = set()
    for case, answer in zip(cases, got, strict=True):
        found, refusal = attempt(lambda c=case: transfer_of(*c))
        if refusal:
            assert answer == refusal
            continue
        seen.add(found.degree)
        forms.add(found.form)
        assert (answer["form"], answer["groups"]) == (found.form, found.registers.tolist())
        wanted = found.byte_offsets.swapaxes(1, 2)
        np.testing.assert_array_equal(answer["offsets"], wanted.ravel())
        np.testing.assert_array_equal(answer["degrees"], found.degrees.ravel())
        counts = (answer["degree"], answer["wavefronts"], answer["least"], answer["laneBytes"])
        assert counts == (
            found.degree,
            found.wavefronts,
            found.least_wavefronts,
            found.lane_bytes,
        )
        assert answer["summary"] == found.summary()
        plan = found.stagger()
        assert answer["stagger"] == (plan and dict(plan._asdict()))
        for (warp, register, front), reason, uses in zip(
            fronts, answer["reasons"], answer["uses"], strict=True
        ):
            at = (warp, register % len(found.registers), front % found.degrees.shape[2])
            assert reason == found.reason(*at)
            mine = [
                {"bank": u.bank, "words": list(u.words), "lanes": [list(w) for w in u.lanes]}
                for u in found.uses(*at)
            ]
            assert uses == mine
    assert {1, 2} <= seen
    assert forms == {"vector", "row", "column"}
    assert len(cases) > 120
