"""The layout views show what numpy says: panels, sentences, pointing, code, and the static page."""

from __future__ import annotations

import base64
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib import explorer, simulate
from course_lib.diagnostics import CourseError
from course_lib.explorer import page
from course_lib.explorer.layout_widgets import Banks, LayoutView, Pipelines, Registers, Smem, Tmem
from course_lib.explorer.timeline_widget import Timelines, timeline_data
from course_lib.layouts.registers import CATALOG, named
from course_lib.layouts.smem import bank
from tests.explorer import node

MODULE = Path(__file__).with_name("views_for_tests.mjs")
VIEWS: dict[str, type[LayoutView]] = {
    "smem": Smem,
    "registers": Registers,
    "banks": Banks,
    "tmem": Tmem,
    "pipeline": Pipelines,
    "timeline": Timelines,
}


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """Two blocks that load, wait, multiply and store: a kernel of one's own."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, o_smem, loaded, acc):  # type: ignore[no-untyped-def]
        columns = pl.ds(jax.lax.axis_index("n") * 64, 64)
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem.at[:, columns], b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.wgmma(acc, a_smem, b_smem)
        o_smem[...] = acc[...].astype(jnp.float16)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[:, columns])
        plgpu.wait_smem_to_gmem(0)

    tiles = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    smem = functools.partial(plgpu.SMEM, dtype=jnp.float16, transforms=tiles)
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 128), jnp.float16),
        grid=(2,),
        grid_names=("n",),
        scratch_types=dict(
            a_smem=smem((64, 64)),
            b_smem=smem((64, 64)),
            o_smem=smem((64, 64)),
            loaded=plgpu.Barrier(num_arrivals=2),
            acc=plgpu.ACC((64, 64)),
        ),
    )(a, b)


@functools.cache
def own_timeline() -> Any:
    keys = jax.random.split(jax.random.key(int(np.random.default_rng().integers(2**31))))
    a = jax.random.normal(keys[0], (64, 64), jnp.float16)
    b = jax.random.normal(keys[1], (64, 128), jnp.float16)
    report = simulate(matmul, a, b, timeline=True)
    assert report.ok, report
    return report.timeline


def states() -> list[tuple[str, dict[str, Any]]]:
    """States that fit and states that do not, of every view."""
    made: list[tuple[str, dict[str, Any]]] = []
    for bits, swizzle, turned, after in itertools.product(
        (8, 16, 32), (0, 32, 128), (False, True), (False, True)
    ):
        ref = {"bits": bits, "swizzle": swizzle, "tile_columns": (swizzle or 64) * 8 // bits}
        for colour in ("bank", "chunk", "phase", "tile", "row"):
            rest = {"columns": 128, "transposed": turned, "after": after, "colour": colour}
            made.append(("smem", ref | rest))
        if after:
            for layout in ("WGMMA", "WGMMA_TRANSPOSED", "WG_STRIDED", "TCGEN05_TMEM_NATIVE"):
                rest = {"rows": 128, "columns": 128, "transposed": turned, "front": 77}
                made.append(("banks", ref | rest | {"register_layout": layout}))
    for name, colour in itertools.product(CATALOG, ("lane", "warp", "register")):
        made.append(
            ("registers", {"register_layout": name, "rows": 128, "columns": 64, "colour": colour})
        )
    for rows, bits, packed, collective in itertools.product(
        (32, 64, 128), (8, 16, 32), (False, True), (False, True)
    ):
        made.append(
            ("tmem", {"rows": rows, "bits": bits, "packed": packed, "collective": collective})
        )
    for stages, latency, issue, mma in itertools.product((1, 2, 5, 70), (1, 9), (1, 6), (2, 5)):
        made.append(
            ("pipeline", {"stages": stages, "latency": latency, "issue": issue, "mma": mma})
        )
    made += [
        ("tmem", {"bits": 32, "more": more, "shown": shown, "collective": collective})
        for more, shown, collective in itertools.product(
            ("128x64x32, 128x64x16p", "64x32x16", "128x512x32", "128x60", "96x8x32"),
            (0, 2),
            (False, True),
        )
    ]
    made += [
        ("banks", {"transposed": True, "arch": arch, "front": 9}) for arch in ("sm_90a", "sm_100a")
    ]
    made += [("pipeline", {"stages": stages, "work": "copy out"}) for stages in (1, 9)]
    data = timeline_data(own_timeline())
    made += [
        ("timeline", {"timeline": data, "first": first, "last": last, "lanes": lanes})
        for first, last, lanes in ((0, 0, ""), (100, 900, "TMA"), (900, 100, ""), (0, 0, "SM 9"))
    ]
    made += [
        ("smem", {"rows": 512, "columns": 512}),
        ("smem", {"tile_rows": 0}),
        ("smem", {"tile_columns": 60}),
        ("registers", {"rows": 32}),
    ]
    return made


@pytest.mark.needs("node")
def test_the_panels_and_the_sentence_are_those_of_numpy() -> None:
    cases = states()[:: 2 - len(states()) % 2]
    got = node.call(MODULE, [("study", [name, state]) for name, state in cases])
    fits = refused = 0
    for (name, state), shown in zip(cases, got, strict=True):
        view = VIEWS[name](**state)
        try:
            drawing = view.drawing()
        except CourseError:
            assert shown == {"error": repr(view)}
            refused += 1
            continue
        fits += 1
        assert shown["sentence"] == drawing.sentence == repr(view)
        for mine, theirs in zip(drawing.panels, shown["panels"], strict=True):
            np.testing.assert_array_equal(
                mine.values.ravel(), theirs["value"], err_msg=f"{name} {state} {mine.title}"
            )
            assert mine.values.shape == (theirs["rows"], theirs["cols"])
            assert list(mine.palette) == theirs["palette"]
    assert fits > 80
    assert refused > 3


@pytest.mark.needs("node")
@pytest.mark.parametrize("name", VIEWS)
def test_a_widget_begins_as_the_page_does(name: str) -> None:
    [state] = node.call(MODULE, [("state", [name])])
    view = VIEWS[name]()
    assert state == {key: getattr(view, key) for key in state}
    own = {k for k in VIEWS[name].class_own_traits(sync=True) if not k.startswith("_")}
    assert own == set(state)


@pytest.mark.needs("node")
def test_pointing_at_an_element_of_shared_memory_names_its_address_and_bank() -> None:
    rng = np.random.default_rng()
    ref = Smem(columns=128).ref()
    for r, c in rng.integers((64, 128), size=(8, 2)).tolist():
        byte = int(ref.byte_offset([r, c]))
        [found] = node.call(MODULE, [("point", ["smem", {"columns": 128}, 0, r * 128 + c])])
        assert f"Element ({r}, {c}): byte {byte} = element {byte // 2} " in found["text"]
        assert f"bank {int(bank(np.array(byte)))}." in found["text"]
        assert found["marks"] == [[r * 128 + c], [byte // 2]]
        bits = {row[0]: row[1] for row in found["bits"]}
        value = int("".join(map(str, bits["after"])), 2)
        assert value == byte % 2**13
        [back] = node.call(MODULE, [("point", ["smem", {"columns": 128}, 1, byte // 2])])
        assert back == found


@pytest.mark.needs("node")
def test_pointing_at_an_element_names_all_its_holders_and_at_a_thread_what_it_holds() -> None:
    for name, columns in (("WGMMA", 16), ("WGMMA_ROW", 64), ("TMA_INDICES", 16), ("WG_SPLAT", 8)):
        shape = (columns,) if CATALOG[name].rank == 1 else (64, columns)
        holders = named(name, shape, 16).holders(shape)
        element = int(np.random.default_rng().integers(len(holders)))
        state = {"register_layout": name, "columns": columns}
        calls: list[node.Call] = [("point", ["registers", state, 0, element])]
        thread = int(holders[element, -1, 0])
        calls.append(("point", ["registers", state, 1, thread]))
        calls.append(("pick", ["registers", state, 1, thread]))
        at, of_thread, picked = node.call(MODULE, calls)
        assert at["marks"] == [[element], holders[element, :, 0].tolist()]
        assert element in of_thread["marks"][0]
        assert picked == {"lane": thread}
        held = named(name, shape, 16).elements(shape)[thread].ravel().tolist()
        if name != "WG_SPLAT":
            assert of_thread["marks"][0] == held


@pytest.mark.needs("node")
def test_pointing_at_tensor_memory_names_lane_and_column_both_ways() -> None:
    places = Tmem(rows=64, columns=32, bits=16).drawing()
    assert places.panels[0].values.shape == (64, 32)
    state = {"rows": 64, "columns": 32}
    for element in np.random.default_rng().integers(64 * 32, size=5).tolist():
        [at] = node.call(MODULE, [("point", ["tmem", state, 0, element])])
        [[cell]] = [at["marks"][1]]
        [back] = node.call(MODULE, [("point", ["tmem", state, 1, cell])])
        assert element in back["marks"][0]
        lane, column = divmod(cell, 512)
        assert f"lane {lane}, column {column}" in at["text"]


CODE: list[tuple[str, dict[str, Any]]] = [
    ("smem", {}),
    ("smem", {"bits": 32, "tile_columns": 32, "transposed": True}),
    ("smem", {"tile_rows": 0, "swizzle": 0}),
    ("registers", {}),
    ("registers", {"register_layout": "WG_STRIDED"}),
    ("registers", {"register_layout": "WGMMA_ROW", "columns": 64}),
    ("registers", {"register_layout": "TCGEN05", "rows": 128, "bits": 32}),
    ("registers", {"register_layout": "MMA_RHS", "columns": 64}),
    ("registers", {"register_layout": "WGMMA_TRANSPOSED", "columns": 64}),
    ("registers", {"register_layout": "WG_SPLAT"}),
    ("registers", {"register_layout": "SMEM_GMEM_COPY", "columns": 64}),
    ("pipeline", {}),
    ("pipeline", {"stages": 6, "steps": 4}),
    ("banks", {}),
    ("banks", {"bits": 32, "tile_columns": 32}),
    ("banks", {"transposed": True}),
    (
        "banks",
        {"transposed": True, "register_layout": "WGMMA_TRANSPOSED", "bits": 32, "tile_columns": 32},
    ),
    ("banks", {"tile_rows": 0, "swizzle": 0}),
    ("tmem", {}),
    ("tmem", {"bits": 32, "rows": 64, "more": "128x64x32, 128x64x16p"}),
    ("tmem", {"collective": True, "rows": 64}),
    ("tmem", {"bits": 8, "packed": False}),
]


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    "case", CODE, ids=lambda case: "-".join(map(str, (case[0], *case[1].values())))
)
def test_the_code_that_is_copied_runs(case: tuple[str, dict[str, Any]]) -> None:
    """It lowers for a GPU; the simulator has no finding; `x` goes in and comes out."""
    [shown] = node.call(MODULE, [("study", list(case))])
    names: dict[str, Any] = {}
    exec(shown["code"], names)
    kernel, x = names["kernel"], names["x"]
    assert jax.jit(kernel).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    report = simulate(kernel, x, arch="sm_100a" if case[0] == "tmem" else "sm_90a")
    assert report.ok, report
    got, wanted = np.asarray(report.value, np.float32), np.asarray(x, np.float32)
    if case[0] == "pipeline":
        wanted = wanted * 2
    np.testing.assert_array_equal(got, np.broadcast_to(wanted, got.shape))


@pytest.mark.needs("node")
def test_a_span_and_its_line_of_code_light_up_together() -> None:
    data = timeline_data(own_timeline())
    state = {"timeline": data}
    lines = [code for _, code in data["lines"]]
    assert "plgpu.wgmma(acc, a_smem, b_smem)" in lines
    line = lines.index("plgpu.wgmma(acc, a_smem, b_smem)")
    calls: list[node.Call] = [("pick", ["timeline", state, 1, line * 200 + c]) for c in range(200)]
    cell = [int(picked["line"]) for picked in node.call(MODULE, calls)].index(line)
    [at] = node.call(MODULE, [("point", ["timeline", state, 1, line * 200 + cell])])
    assert "wgmma" in at["text"]
    assert at["text"].endswith(": plgpu.wgmma(acc, a_smem, b_smem)")
    assert all(c // 200 == line for c in at["marks"][1])
    [back] = node.call(MODULE, [("point", ["timeline", state, 0, at["marks"][0][0]])])
    assert back["marks"] == at["marks"]
    [picked] = node.call(MODULE, [("pick", ["timeline", state, 0, at["marks"][0][0]])])
    assert picked == {"line": line}


@pytest.mark.needs("node")
def test_the_xor_is_shown_bit_by_bit_while_the_chunks_move() -> None:
    ref = Smem().ref()
    element = 5 * 64 + 20
    byte = int(ref.byte_offset([5, 20]))
    state = {"element": element}
    calls: list[node.Call] = [("frame", ["smem", state, t]) for t in (0.0, 0.35, 0.84, 0.99)]
    frames = node.call(MODULE, calls)
    after = [{row[0]: row[1] for row in f["bits"]}["after"] for f in frames]
    hidden = [bits.count("·") for bits in after]
    assert hidden[0] == 3
    assert hidden == sorted(hidden, reverse=True)
    assert hidden[-1] == 0
    assert int("".join(map(str, after[-1])), 2) == byte % 2**13
    assert "reads the lowest 3 bits of the row's number (bits 7 to 9)" in frames[0]["text"]
    assert f"goes to 2 XOR 5 = {2 ^ 5}." in frames[-1]["text"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: explorer.pipeline(timeline=own_timeline()),
        lambda: explorer.tmem(128, 64, more="128x64x32, 64x32x16p"),
        lambda: explorer.banks("WGMMA", 64, 64, transposed=True, arch="sm_100a"),
        lambda: explorer.smem(64, 128, tile=(8, 64), swizzle=128),
        lambda: explorer.smem(16, 64, tile=None, swizzle=None, colour="tile"),
        lambda: explorer.registers("WGMMA_ROW", columns=64, lane=5),
        lambda: explorer.banks("WGMMA", bits=32, tile=(8, 32)),
        lambda: explorer.pipeline(2, mma=3),
        lambda: explorer.tmem(64, 32, bits=32, collective=True),
    ],
)
def test_a_saved_notebook_has_the_view_its_text_and_a_picture(make: Any) -> None:
    view = make()
    bundle = view._repr_mimebundle_()
    assert bundle is not None
    data, metadata = bundle
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata["image/png"]["alt"] == repr(view)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert repr(view) == repr(make())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: explorer.smem(64, 100), "64 does not divide the 100 of axis 1"),
        (lambda: explorer.smem(swizzle=16), "leave the transform out"),
        (lambda: explorer.smem(colour="red"), "colour = 'red' is none of"),
        (lambda: explorer.registers("WGMMA", 32), r"The next that is: \(64, 32\)"),
        (lambda: explorer.registers("WGMA"), "is none of WGMMA"),
        (lambda: explorer.registers(lane=128), "lanes 0 to 127"),
        (
            lambda: explorer.banks("WGMMA", bits=32, tile=(8, 32), transposed=True),
            "take WGMMA_TRANSPOSED",
        ),
        (lambda: explorer.banks(arch="sm_80"), "none of 'sm_90a' or 'sm_100a'"),
        (lambda: explorer.tmem(more="128x64"), "write rows x columns x bits"),
        (lambda: explorer.tmem(bits=32, more="128x512x32"), "576 together; TMEM has 512"),
        (lambda: explorer.pipeline(timeline="mine"), "take report.timeline of"),
        (lambda: explorer.pipeline(work="a" * 21), "1 to 20 letters"),
        (lambda: explorer.tmem(32), r"it holds \(128, N\) or \(64, N\)"),
        (lambda: explorer.smem(1024, 64, tile=None, swizzle=None), None),
        (lambda: explorer.smem(1024, 128, tile=None, swizzle=None), "at most 65,536"),
    ],
)
def test_what_does_not_fit_says_what_would(make: Any, sentence: str | None) -> None:
    if sentence is None:
        assert make()
        return
    with pytest.raises(CourseError, match=sentence):
        make()


def test_the_page_in_the_tree_is_what_its_sources_build() -> None:
    assert page.PAGE.read_text("utf-8") == page.build_page(), (
        "course_lib/explorer/index.html is not up to date: "
        "python -m course_lib.explorer.page builds it"
    )


def test_the_page_asks_nothing_of_the_network() -> None:
    text = page.build_page()
    assert "https://" not in text
    assert "import(" not in text
    assert 'src="' not in text
