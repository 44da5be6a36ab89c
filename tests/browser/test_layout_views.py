"""The layout views in Chromium: on the static page from a file, and in JupyterLab."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import numpy as np
import pytest
from playwright.sync_api import Page

from course_lib.explorer import page
from course_lib.layouts.banks import Transfer
from course_lib.layouts.registers import named
from course_lib.layouts.smem import SmemRef, bank
from course_lib.layouts.tiling import Tiling
from course_lib.layouts.tmem import TmemRef, allocate, allocated_columns, parse
from tests.browser.acting import (
    LONG_MS,
    choose,
    find,
    nameless,
    press,
    run_cell,
    set_number,
    shows_theme,
    text,
    wait_for_text,
)
from tests.browser.chromium import (
    chromium,
    console_errors,
    outside_requests,
    set_dark,
    set_viewport,
)
from tests.browser.lab import jupyter_lab

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.needs("chromium")]

VIEWS = ("smem", "registers", "banks", "tmem", "pipeline", "barriers", "schedules")
HEAD, SIDE = 34, 46  # where the cells begin on a canvas, in CSS pixels


@pytest.fixture(scope="module")
def driven() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


Opener = Callable[[str], Page]


@pytest.fixture
def open_page(driven: Page) -> Iterator[Opener]:
    """Opens the page from its file at a view; afterwards nothing may have gone wrong."""

    def open_it(where: str) -> Page:
        set_viewport(driven, width=1280, height=1100)
        set_dark(driven, dark=False)
        driven.goto("about:blank")
        driven.goto(page.address(where))
        return driven

    yield open_it
    assert console_errors(driven) == []
    assert outside_requests(driven) == []


def point(
    opened: Page, panel: int, r: int, c: int, *, shape: tuple[int, int], click: bool = False
) -> str:
    """Moves the mouse over cell (r, c) of a panel of `shape` cells; what the view then says."""
    canvas = opened.locator(".mgx canvas").nth(panel)
    box = canvas.bounding_box()
    assert box is not None
    cell = min(34.0, (box["width"] - SIDE - 2) / shape[1])
    tall = (box["height"] - HEAD - 2) / shape[0]
    place = {"x": SIDE + (c + 0.5) * cell, "y": HEAD + (r + 0.5) * tall}
    if click:
        canvas.click(position=place)
    else:
        canvas.hover(position=place)
    return text(opened, ".mgx-inspector")


def test_shared_memory_is_what_numpy_says_in_both_directions(open_page: Opener) -> None:
    opened = open_page("smem")
    set_number(opened, "columns", 32)
    set_number(opened, "rows", 16)
    set_number(opened, "tile_columns", 32)
    choose(opened, "swizzle", 64)
    assert text(opened, ".mgx-error") == ""
    ref = SmemRef(shape=(16, 32), tiling=Tiling(((8, 32),)), swizzle=64)
    for r, c in np.random.default_rng().integers((16, 32), size=(4, 2)).tolist():
        byte = int(ref.byte_offset([r, c]))
        said = point(opened, 0, r, c, shape=(16, 32))
        assert said.startswith(f"Element ({r}, {c}): byte {byte} = element {byte // 2} ")
        assert f"bank {int(bank(np.array(byte)))}." in said
        slot = byte // 2
        assert point(opened, 1, slot // 64, slot % 64, shape=(8, 64)) == said


def test_a_click_keeps_an_element_and_a_link_restores_the_exact_state(open_page: Opener) -> None:
    opened = open_page("smem")
    set_number(opened, "rows", 8)
    choose(opened, "colour", "phase")
    said = point(opened, 0, 3, 20, shape=(8, 64), click=True)
    link = opened.evaluate("window.model.link()")
    assert link.endswith("#smem?rows=8&colour=phase&element=212")
    assert opened.url == link
    opened.goto("about:blank")
    opened.goto(link)
    assert text(opened, ".mgx-inspector") == said
    assert find(opened, "[name=rows]").input_value() == "8"
    opened.go_back()
    opened.goto(page.address("#tmem?rows=64&packed=false"))
    assert text(opened, ".mgx-sentence").startswith("(64, 64) of 16 bits, unpacked")


# of each view: another value for everything that it keeps
CHANGED: dict[str, dict[str, int | str | bool]] = {
    "smem": {
        "rows": 32,
        "columns": 48,
        "bits": 32,
        "tile_rows": 16,
        "tile_columns": 16,
        "swizzle": 64,
        "transposed": True,
        "after": False,
        "colour": "tile",
        "element": 77,
    },
    "registers": {
        "register_layout": "TCGEN05",
        "rows": 128,
        "columns": 16,
        "bits": 32,
        "colour": "register",
        "lane": 37,
    },
    "banks": {
        "register_layout": "WGMMA_TRANSPOSED",
        "rows": 128,
        "columns": 32,
        "bits": 32,
        "tile_rows": 16,
        "tile_columns": 16,
        "swizzle": 64,
        "transposed": True,
        "arch": "sm_100a",
        "front": 5,
    },
    "tmem": {
        "rows": 64,
        "columns": 32,
        "bits": 32,
        "packed": False,
        "collective": True,
        "more": "64x64x32, 128x64x16p",
        "shown": 1,
        "warp": 2,
    },
    "pipeline": {
        "steps": 9,
        "stages": 4,
        "latency": 7,
        "issue": 3,
        "mma": 5,
        "work": "copy out",
    },
    "barriers": {"program": "queue", "order": "0", "step": 5, "picks": "queue/0:01"},
    "schedules": {
        "tiles": 11,
        "sms": 3,
        "pattern": "mixed",
        "start": 2,
        "late": 7,
        "ahead": False,
        "code": "blocks",
        "step": 9,
    },
    "waves": {
        "m": 12,
        "n": 10,
        "k": 8,
        "tile_m": 64,
        "tile_n": 256,
        "tile_k": 32,
        "itemsize": 1,
        "out_itemsize": 4,
        "cluster_m": 2,
        "cluster_n": 2,
        "order": "snake",
        "width": 3,
        "minor_dim": 1,
        "persistent": True,
        "dynamic": True,
        "spread": 50,
        "concurrent": 20,
        "per_sm": 2,
        "smem_bytes": 65536,
        "threads": 256,
        "registers": 64,
        "l2_bytes": 3 * 2**20,
        "count_c": True,
        "wave": 2,
    },
}
# what a view keeps, and all that it shows
SHOWN = """() => ({
  state: window.model.state,
  text: document.querySelector('main').innerText,
  fields: [...document.querySelectorAll('main :is(input, select)')]
    .map((e) => [e.value, e.checked]),
  pixels: [...document.querySelectorAll('main canvas')].map((c) => c.toDataURL()),
})"""


@pytest.mark.parametrize("view", page.VIEWS)
def test_a_link_restores_everything_that_a_view_keeps(open_page: Opener, view: str) -> None:
    opened = open_page(view)
    first = opened.evaluate(SHOWN)
    changed = CHANGED[view]
    assert first["state"].keys() == changed.keys()
    assert all(first["state"][key] != value for key, value in changed.items())
    opened.evaluate(
        "(all) => { for (const [k, v] of Object.entries(all)) window.model.set(k, v);"
        "window.model.save_changes(); }",
        changed,
    )
    assert text(opened, "main p[role=alert]") == ""
    left = opened.evaluate(SHOWN)
    assert left["state"] == changed
    link = opened.evaluate("window.model.link()")
    assert opened.url == link
    opened.goto("about:blank")
    opened.goto(link)
    found = opened.evaluate(SHOWN)
    assert found == left
    assert found["pixels"] != first["pixels"]


def test_a_click_on_a_thread_isolates_what_it_holds(open_page: Opener) -> None:
    opened = open_page("#registers?columns=16")
    said = point(opened, 1, 4, 5, shape=(16, 8), click=True)
    held = named("WGMMA", (64, 16)).elements((64, 16))[37]
    first = " ".join(f"({e // 16}, {e % 16})" for e in held[0].tolist())
    assert said.startswith(f"Lane 37 of the Pallas thread: warp 1, lane 5 of it. r0: {first}; r1: ")
    assert find(opened, "[name=lane]").input_value() == "37"
    said = point(opened, 0, 63, 15, shape=(64, 16))
    assert said == ("Element (63, 15): warp 3, lane 31 (thread 127), register 3, element 1 of it.")


def test_replication_is_shown(open_page: Opener) -> None:
    opened = open_page("#registers?register_layout=WGMMA_ROW&columns=64")
    said = point(opened, 0, 0, 1, shape=(4, 16))
    assert said.startswith("Element (1,) is held by 4 threads: warp 0, lanes 4, 5, 6, 7;")
    assert "4 lanes (replicated)" in text(opened, ".mgx-table")


def test_conflicts_their_degree_and_their_reason(open_page: Opener) -> None:
    opened = open_page("#banks?bits=32&tile_columns=32")
    ref = SmemRef(shape=(64, 64), bits=32, tiling=Tiling(((8, 32),)), swizzle=128)
    found = Transfer(named("WGMMA", (64, 64)), ref)
    assert text(opened, ".mgx-sentence") == found.summary()
    assert found.reason(0, 0, 0) in text(opened, ".mgx-table")
    canvas = find(opened, ".mgx canvas")
    press(canvas, "PageDown")
    assert "2 of 128: warp 0, register 0, lanes 16 to 31" in text(opened, ".mgx-table")
    assert found.reason(0, 0, 1) in text(opened, ".mgx-table")
    press(canvas, "PageUp", "PageUp")
    assert "128 of 128: warp 3" in text(opened, ".mgx-table")


def test_settings_that_do_not_fit_get_a_sentence_and_can_be_mended(open_page: Opener) -> None:
    opened = open_page("smem")
    set_number(opened, "tile_columns", 60)
    assert "60 does not divide the 64 of axis 1. What does: 1, 2, 4" in text(opened, ".mgx-error")
    assert "mgx-stale" in (find(opened, ".mgx-main").get_attribute("class") or "")
    set_number(opened, "tile_columns", 64)
    assert text(opened, ".mgx-error") == ""
    assert "mgx-stale" not in (find(opened, ".mgx-main").get_attribute("class") or "")


def test_a_link_to_what_does_not_fit_says_so(open_page: Opener) -> None:
    opened = open_page("#registers?rows=32")
    assert "The next that is: (64, 32)" in text(opened, ".mgx-error")
    assert not find(opened, ".mgx-main").is_visible()


@pytest.mark.parametrize("view", VIEWS)
def test_keys_walk_over_the_cells_and_everything_has_a_name(open_page: Opener, view: str) -> None:
    opened = open_page("barriers?step=6" if view == "barriers" else view)
    for canvas in opened.locator(".mgx canvas").all():
        assert canvas.get_attribute("tabindex") == "0"
        assert "Arrow keys move" in (canvas.get_attribute("aria-label") or "")
        press(canvas, "ArrowDown")
        at_first = text(opened, ".mgx-inspector")
        press(canvas, "ArrowDown", "ArrowRight", "ArrowRight")
        assert text(opened, ".mgx-inspector") != at_first
        press(canvas, "Escape")
    assert nameless(opened, ".mgx") == []
    assert opened.locator("nav a").count() == len(page.VIEWS)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 700])
@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_the_page_and_follows_the_theme(
    open_page: Opener, view: str, width: int, dark: bool
) -> None:
    opened = open_page(view)
    set_viewport(opened, width=width, height=1100)
    set_dark(opened, dark=dark)
    shows_theme(opened, ".mgx", "mgx-dark", dark=dark)
    wide = opened.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    back = find(opened, ".mgx").evaluate("(e) => getComputedStyle(e).backgroundColor")
    assert ("20, 24, 29" in back) == dark
    pixel = opened.evaluate(
        "() => { const c = document.querySelector('.mgx canvas');"
        "return Array.from(c.getContext('2d').getImageData(2, c.height - 2, 1, 1).data) }"
    )
    assert (sum(pixel[:3]) < 150) == dark


def test_the_canvas_shows_the_banks_in_their_colours(open_page: Opener) -> None:
    opened = open_page("#smem?rows=8&element=0")
    find(opened, "h1").hover()
    colours = opened.evaluate(
        """() => { const c = document.querySelectorAll('.mgx canvas')[1];
        const cell = (c.width - 48) / 64;
        const at = (k) => Array.from(
          c.getContext('2d').getImageData(46 + (k + 0.25) * cell, 34 + 40, 1, 1).data).slice(0, 3);
        return [at(0), at(63)]; }"""
    )
    assert colours == [[0, 32, 76], [255, 233, 69]]


def test_an_outline_goes_when_the_mouse_has_left(open_page: Opener) -> None:
    opened = open_page("smem")
    image = "[...document.querySelectorAll('.mgx canvas')].map((c) => c.toDataURL()).join()"
    before = opened.evaluate(image)
    for r, c in ((0, 0), (63, 63), (7, 40)):
        point(opened, 0, r, c, shape=(64, 64))
        assert opened.evaluate(image) != before
    press(find(opened, ".mgx canvas"), "Escape")
    assert opened.evaluate(image) == before


def test_copying_saving_and_animating(open_page: Opener) -> None:
    opened = open_page("smem")
    button = functools.partial(opened.get_by_role, "button")
    button(name="Copy plgpu code").click()
    wait_for_text(opened, ".mgx-said", "Code copied.")
    button(name="Copy link").click()
    wait_for_text(opened, ".mgx-said", "Link copied.")
    button(name="animate").click()
    wait_for_text(opened, ".mgx-inspector", "reads the lowest 3 bits of the row's number")
    wait_for_text(opened, ".mgx-bits", "·")
    wait_for_text(opened, ".mgx-inspector", "XORs them into the chunk's number")
    wait_for_text(opened, ".mgx-inspector", "Point at an element")
    choose(opened, "swizzle", 0)
    button(name="animate").click()
    assert text(opened, ".mgx-said") == "Nothing moves: there is no swizzle."


def test_before_and_after_the_swizzle(open_page: Opener) -> None:
    opened = open_page("smem")
    assert "lie in 8 different 16-byte chunks" in text(opened, ".mgx-sentence")
    find(opened, "[name=after]").uncheck()
    assert "(shown without it)" in text(opened, ".mgx-sentence")
    assert "lie in 1 different 16-byte chunk." in text(opened, ".mgx-sentence")


@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_to_take_away_and_a_legend(open_page: Opener, view: str) -> None:
    opened = open_page(view)
    with opened.expect_download() as download:
        opened.get_by_role("button", name="Save PNG").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert opened.locator(".mgx-legend li").count() >= 3


def test_several_arrays_in_tensor_memory(open_page: Opener) -> None:
    opened = open_page("tmem?bits=32")
    field = find(opened, "[name=more]")
    field.fill("128x64x32, 128x64x16p")
    field.press("Tab")
    refs = [TmemRef(shape=(128, 64)), *parse("128x64x32, 128x64x16p")]
    end = allocate(refs)[-1] + refs[-1].columns
    sentence = text(opened, ".mgx-sentence")
    assert f"{end} of 512 columns together; one allocation of {allocated_columns(refs)}" in sentence
    set_number(opened, "shown", 2)
    start = allocate(refs)[2]
    lane, column, _ = refs[2].places()[3, 1].tolist()
    press(opened.locator(".mgx canvas").nth(0), "ArrowDown", *["ArrowDown"] * 3, "ArrowRight")
    assert f"lane {lane}, column {start + column}, bits 16 to 31" in text(opened, ".mgx-inspector")
    field.fill("128x512x32")
    field.press("Tab")
    assert "576 together; TMEM has 512" in text(opened, ".mgx-error")


SPEED = """() => {
  const started = performance.now();
  for (const key of ['rows', 'columns']) window.model.set(key, 256);
  const drawn = performance.now() - started;
  const canvas = document.querySelector('.mgx canvas');
  const box = canvas.getBoundingClientRect();
  const times = [];
  for (let i = 0; i < 60; i++) {
    const at = { clientX: box.left + 50 + Math.random() * (box.width - 60),
                 clientY: box.top + 40 + Math.random() * (box.height - 60) };
    const from = performance.now();
    canvas.dispatchEvent(new PointerEvent('pointermove', at));
    canvas.getContext('2d').getImageData(0, 0, 1, 1);
    times.push(performance.now() - from);
  }
  times.sort((a, b) => a - b);
  return [drawn, times[Math.floor(times.length * 0.95)]];
}"""


@pytest.mark.parametrize("view", ["smem", "registers", "banks"])
def test_256_by_256_elements_do_not_make_one_wait(open_page: Opener, view: str) -> None:
    """A loose bound against regressions, on a machine that does other things too.

    The numbers that count are measured by `python -m tests.browser.benchmark`.
    """
    drawn, hover = open_page(view).evaluate(SPEED)
    assert drawn < 2_000
    assert hover < 160


def test_a_closed_view_lets_go_of_the_page(open_page: Opener) -> None:
    opened = open_page("smem")
    opened.evaluate("() => { window.before = window.model; location.hash = 'banks' }")
    opened.wait_for_function("document.title.includes('Bank')")
    assert opened.evaluate("[...window.before.handlers.values()].every((set) => set.size === 0)")
    assert opened.locator(".mgx").count() == 1


# ---- in JupyterLab ----

KERNEL = """
import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu
from course_lib import explore, simulate

def body(x_gmem, o_gmem, x_smem, loaded):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.copy_smem_to_gmem(x_smem, o_gmem)
    plgpu.wait_smem_to_gmem(0)

x = jax.random.normal(jax.random.key(0), (64, 64))
kernel = plgpu.kernel(
    body, out_type=x,
    scratch_types=dict(x_smem=plgpu.SMEM((64, 64), jnp.float32), loaded=plgpu.Barrier()),
)
timeline = simulate(kernel, x, timeline=True).timeline
explore.pipeline(timeline=timeline)
""".strip()
CELLS = [
    "from course_lib import explore\nv = explore.smem(128, 128, tile=(8, 64), swizzle=128)\nv",
    "v.element = 130\nexplore.registers('WGMMA', 64, 16)",
    "print('Python has element', v.element)",
    "explore.banks('WGMMA', 64, 64, bits=32, tile=(8, 32))",
    "explore.tmem(64, 32, more='128x64x32')",
    "explore.pipeline(4)",
    KERNEL,
    "explore.barriers('eager')",
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_in_jupyterlab(tmp_path: Path, theme: str) -> None:
    """Every view, in a notebook: what Python says it shows is what it shows."""
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in CELLS],
        metadata={"kernelspec": kernelspec},
    )
    nbformat.write(notebook, tmp_path / "views.ipynb")
    with jupyter_lab(tmp_path, theme=theme) as lab, chromium(height=2400) as opened:
        set_dark(opened, dark=False)  # the theme decides, not the system
        opened.goto(lab.page("views.ipynb"))
        lab.wait_for_kernel()
        run_cell(opened, 0)
        find(opened, ".mgx canvas").wait_for(timeout=LONG_MS)
        shows_theme(opened, ".mgx", "mgx-dark", dark=theme == "JupyterLab Dark")
        run_cell(opened, 1)
        wait_for_text(opened, ".mgx-inspector", "Element (1, 2): byte ", timeout_ms=LONG_MS)
        press(find(opened, ".mgx canvas"), "ArrowDown", "ArrowDown", "Enter")
        run_cell(opened, 2)
        wait_for_text(opened, ".jp-Notebook", "Python has element 128", timeout_ms=LONG_MS)
        assert opened.get_by_role("button", name="Copy link").count() == 0
        for number, wanted in SAID.items():
            run_cell(opened, number)
            view = f".jp-CodeCell:nth-child({number + 1}) .mgx-sentence"
            wait_for_text(opened, view, wanted, timeout_ms=LONG_MS)
        [lines] = opened.locator(f".jp-CodeCell:nth-child({7}) .mgx canvas").all()[1:]
        press(lines, "ArrowDown")  # the first line of the learner's own that did something
        for _ in range(20):
            said = text(opened, ".jp-CodeCell:nth-child(7) .mgx-inspector")
            if "plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)" in said:
                break
            press(lines, "ArrowRight")
        assert "plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)" in said
        assert outside_requests(opened) == []
        assert console_errors(opened) == []


SAID = {
    3: "2-way bank conflicts",
    4: "(64, 32) of 16 bits, packed; (128, 64) of 32 bits",
    5: "12 steps with 4 stages take",
    6: "cycles, ",
    7: " ",
}


def test_schedules_play_to_the_end_and_stop_on_request(open_page: Opener) -> None:
    # on a busy machine many steps pass between two looks: there have to be enough of them
    opened = open_page("schedules?tiles=32&sms=2&start=0")
    last = opened.evaluate("window.model.state.step")
    opened.get_by_role("button", name="play").click()
    assert opened.evaluate("window.model.state.step") < last
    wait_for_text(opened, ".mgx-sentence", re.compile(r"^After [1-9]\d* of"))
    opened.get_by_role("button", name="stop").click()
    stopped = opened.evaluate("window.model.state.step")
    assert 0 < stopped < last
    opened.wait_for_timeout(800)
    assert opened.evaluate("window.model.state.step") == stopped
    opened.get_by_role("button", name="play").click()
    wait_for_text(opened, ".mgx-sentence", re.compile("^32 tiles on 2 SMs"), timeout_ms=60_000)
    opened.get_by_role("button", name="play").wait_for()
