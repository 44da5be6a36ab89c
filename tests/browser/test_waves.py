"""The wave view in Chromium: what it shows, how it is used, in JupyterLab and on a bare page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from playwright.sync_api import Page, expect

from course_lib import explore
from course_lib.explorer import page as explorer_page
from course_lib.explorer.wave_picture import Study
from course_lib.layouts import grid
from course_lib.layouts.units import bytes_in_words
from tests.browser import host_page
from tests.browser.acting import (
    LONG_MS,
    accessible_name,
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

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.needs("chromium"),
]

SETTINGS: dict[str, dict[str, Any]] = {
    "the page's example": {},
    "the page's example, tiled": {"order": "tiled"},
    "six by sixteen, snake": {"m": 6, "order": "snake", "width": 2},
    "columns, narrow last band, C takes room": {
        "m": 7,
        "n": 9,
        "k": 5,
        "order": "snake",
        "minor_dim": 1,
        "concurrent": 5,
        "l2_bytes": 300_000,
        "count_c": True,
        "wave": 2,
    },
    "dynamic, costs differ, two on an SM": {
        "dynamic": True,
        "spread": 60,
        "per_sm": 2,
        "concurrent": 16,
    },
    "clusters of 2 x 2": {"cluster": (2, 2), "wave": 3},
    "clusters beside each other, dynamic": {
        "cluster": (1, 4),
        "dynamic": True,
        "spread": 60,
        "concurrent": 16,
        "order": "tiled",
        "width": 2,
    },
    "persistent, H200": {
        "m": 32,
        "n": 64,
        "order": "snake",
        "width": 8,
        "concurrent": 132,
        "persistent": True,
        "l2_bytes": 50 * 2**20,
        "wave": 15,
    },
}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


Opener = Callable[..., Page]


@pytest.fixture
def open_view(page: Page, tmp_path: Path) -> Iterator[Opener]:
    """Opens the view with some settings on a bare page; afterwards nothing may have gone wrong."""

    def open_it(*sizes: int, **settings: Any) -> Page:
        set_viewport(page, width=1280, height=1000)
        set_dark(page, dark=False)
        page.goto(host_page.write(explore.waves(*sizes, **settings), tmp_path))
        return page

    yield open_it
    assert console_errors(page) == []
    assert outside_requests(page) == []


def table(page: Page) -> dict[str, list[str]]:
    """The table of numbers: row name -> texts of its columns."""
    rows = page.locator(".mgw tbody tr").all()
    return {
        row.locator("th").inner_text(): [cell.inner_text() for cell in row.locator("td").all()]
        for row in rows
    }


def wanted_table(study: Study, wave: int) -> dict[str, list[str]]:
    """The same from `layouts.grid`."""
    upto = (study.waves[wave : wave + 1], study.waves[: wave + 1], study.waves)
    parts = (study.traffic[wave : wave + 1], study.traffic[: wave + 1], study.traffic)
    touched = [grid.footprint(np.concatenate(waves)) for waves in upto]
    traffic = [grid.total(part) for part in parts]
    rates = [f"{int(100 * t.hits / t.requests + 0.5)}%" for t in traffic]
    return {
        "A tile rows": [f"{f.a_rows:,}" for f in touched],
        "B tile columns": [f"{f.b_columns:,}" for f in touched],
        "Together": [f"{f.inputs:,}" for f in touched],
        "In bytes": [bytes_in_words(study.matmul.input_bytes(f)) for f in touched],
        "Requests": [f"{t.requests:,}" for t in traffic],
        "Out of L2": [bytes_in_words(t.request_bytes) for t in traffic],
        "Hits": [f"{t.hits:,}" for t in traffic],
        "Hit rate": rates,
        "First reads": [f"{t.compulsory:,}" for t in traffic],
        "Evicted before": [f"{t.capacity:,}" for t in traffic],
        "From HBM": [bytes_in_words(t.hbm_read_bytes) for t in traffic],
        "Written": [bytes_in_words(t.written_bytes) for t in traffic],
    }


_FIRST_WAVE = """() => {
  const c = document.querySelector('.mgw-canvas'), ctx = c.getContext('2d');
  const data = ctx.getImageData(0, 0, c.width, c.height).data;
  const now = getComputedStyle(document.querySelector('.mgw')).getPropertyValue('--mgw-now').trim();
  const rgb = [1, 3, 5].map((i) => parseInt(now.slice(i, i + 2), 16));
  let [left, top, right] = [1e9, 1e9, 0];
  for (let y = 0; y < c.height; y++) for (let x = 0; x < c.width; x++) {
    const p = 4 * (y * c.width + x);
    if (rgb.every((v, i) => data[p + i] === v)) {
      left = Math.min(left, x); top = Math.min(top, y); right = Math.max(right, x);
    }
  }
  return [left, top, right];
}"""
_COLOURS = """() => {
  const c = document.querySelector('.mgw-canvas');
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  const seen = {};
  for (let p = 0; p < data.length; p += 4) {
    const key = [0, 1, 2].map((i) => data[p + i].toString(16).padStart(2, '0')).join('');
    seen['#' + key] = (seen['#' + key] ?? 0) + 1;
  }
  return seen;
}"""


def tile_position(page: Page, mi: float, ni: float) -> dict[str, float]:
    """Where tile (mi, ni) of C is on the canvas, from what is painted there."""
    left, top, right = page.evaluate(_FIRST_WAVE)
    side = (right + 2 - left) / 16  # of the first wave of the row-major example
    return {"x": left + (ni + 0.5) * side, "y": top + (mi + 0.5) * side}


# ---- what it shows ----


@pytest.mark.parametrize("name", SETTINGS)
def test_numbers_are_those_of_the_layouts(open_view: Opener, name: str) -> None:
    settings = SETTINGS[name]
    page = open_view(**settings)
    wave = settings.get("wave", 0)
    study = explore.waves(**settings).study()
    assert table(page) == wanted_table(study, wave)
    word = "step" if study.persistent else "wave"
    assert text(page, ".mgw-where") == f"{word} {wave + 1} of {len(study.waves)}"
    row_major = bytes_in_words(grid.total(study.row_major.traffic).hbm_read_bytes)
    sentence = text(page, ".mgw-sentence")
    assert ("Row-major order" in sentence) == (study.order.kind != "row-major")
    assert row_major in sentence
    if study.spread:
        assert f"done after {study.assignment.makespan:.1f} if each goes to the block" in sentence


def test_the_pages_example_goes_from_17_to_8(open_view: Opener) -> None:
    page = open_view()
    assert table(page)["Together"][0] == "17"
    choose(page, "order", "tiled")
    assert table(page)["Together"][0] == "8"
    wanted = "4 tile rows of A and 4 tile columns of B: 8 distinct, 8 MiB"
    assert wanted in text(page, ".mgw-summary")


def test_sms_blocks_on_an_sm_and_what_fits(open_view: Opener) -> None:
    page = open_view(m=32, n=64, k=4)
    set_number(page, "sms", 132)
    set_number(page, "per_sm", 2)
    assert text(page, ".mgw-sms").startswith("132 SMs with 2 blocks each: 264 blocks at a time.")
    assert text(page, ".mgw-where") == "wave 1 of 8"
    find(page, ".mgw details summary").click()
    set_number(page, "smem_kib", 100)
    wanted = "2 such blocks would fit on an SM: limited by its shared memory."
    assert wanted in text(page, ".mgw-sms")
    set_number(page, "per_sm", 3)
    assert text(page, ".mgw-error") == "3 blocks do not fit on an SM: its shared memory allows 2."


def test_clusters_share_what_they_load(open_view: Opener) -> None:
    page = open_view()
    alone = table(page)["Out of L2"][2]
    set_number(page, "cluster_m", 2)
    set_number(page, "cluster_n", 2)
    assert (alone, table(page)["Out of L2"][2]) == ("256 MiB", "128 MiB")
    wanted = "In clusters of 2 x 2 L2 sends 128 MiB, without them 256 MiB."
    assert wanted in text(page, ".mgw-sentence")
    press(find(page, ".mgw-canvas"), "ArrowDown", "ArrowDown", "ArrowRight")
    said = text(page, ".mgw-inspector")
    assert said.startswith("Tile (1, 1): block 3 computes it, in wave 1.")
    assert "It is block (1, 1) of its cluster, and loads 1/2 of each tile of A" in said
    set_number(page, "cluster_m", 3)
    assert "cluster_m = 3 does not divide the 8 tile rows" in text(page, ".mgw-error")


def test_blocks_that_take_tiles_when_they_are_free(open_view: Opener) -> None:
    page = open_view(concurrent=16, spread=50)
    choose(page, "launch", "dynamic")
    study = explore.waves(concurrent=16, spread=50, dynamic=True).study()
    canvas = find(page, ".mgw-canvas")
    press(canvas, "ArrowDown", "ArrowDown", "ArrowRight")
    i = 17  # tile (1, 1), row-major
    worker, start = int(study.assignment.worker[i]), study.assignment.start[i]
    said = text(page, ".mgw-inspector")
    assert said.startswith(
        f"Tile (1, 1): block {worker} takes it as number 17, from {start:.2f} to"
    )


def test_the_canvas_shows_each_kind_of_tile(open_view: Opener) -> None:
    page = open_view(order="tiled", wave=1)
    colours = page.evaluate(_COLOURS)
    for name in ("now", "done", "a", "b", "l2"):
        colour = page.evaluate(
            "(name) => getComputedStyle(document.querySelector('.mgw'))"
            ".getPropertyValue(`--mgw-${name}`).trim()",
            name,
        )
        assert colours.get(colour, 0) > 100, name


# ---- how it is used ----


def test_buttons_slider_and_keys_step_through_the_waves(open_view: Opener) -> None:
    page = open_view()
    first, back, _, onward, last = page.locator(".mgw-transport").first.locator("button").all()

    def where() -> str:
        return text(page, ".mgw-where")

    onward.click()
    onward.click()
    assert where() == "wave 3 of 8"
    back.click()
    assert where() == "wave 2 of 8"
    last.click()
    assert (where(), onward.is_enabled()) == ("wave 8 of 8", False)
    first.click()
    assert (where(), back.is_enabled()) == ("wave 1 of 8", False)
    slider = find(page, ".mgw-transport input")
    press(slider, "ArrowRight", "ArrowRight")
    assert where() == "wave 3 of 8"
    assert slider.get_attribute("aria-valuetext") == "wave 3 of 8"
    canvas = find(page, ".mgw-canvas")
    press(canvas, "PageDown")
    assert where() == "wave 4 of 8"
    press(canvas, "End")
    assert where() == "wave 8 of 8"
    press(canvas, "Home")
    assert where() == "wave 1 of 8"


def test_it_plays_to_the_end_and_stops(open_view: Opener) -> None:
    page = open_view(m=2)  # two waves
    play = page.locator(".mgw-transport button").nth(2)
    play.click()
    assert play.get_attribute("aria-pressed") == "true"
    wait_for_text(page, ".mgw-where", "wave 2 of 2")
    expect(play).to_have_attribute("aria-pressed", "false")


def test_a_bar_is_a_way_to_its_wave(open_view: Opener) -> None:
    page = open_view()
    bars = find(page, ".mgw-bars")
    box = bars.bounding_box()
    assert box is not None
    bars.click(position={"x": 5.5 / 8 * box["width"], "y": box["height"] / 2})
    assert text(page, ".mgw-where") == "wave 6 of 8"


def test_pointing_says_who_reads_what(open_view: Opener) -> None:
    page = open_view()
    canvas = find(page, ".mgw-canvas")

    def point(mi: float, ni: float) -> str:
        canvas.hover(position=tile_position(page, mi, ni))
        return text(page, ".mgw-inspector")

    def leave() -> None:
        find(page, ".mgw table").hover()
        assert text(page, ".mgw-inspector").startswith("Point at a tile")

    said = point(2, 5)
    assert said.startswith("Tile (2, 5): block 37 computes it, in wave 3 (later).")
    assert "Row 2 of A is read by 15 other blocks of that wave, column 5 of B by 0." in said
    leave()
    assert point(0, -2).startswith("Tile row 0 of A: 16 blocks of this wave read it.")
    leave()
    assert point(-2, 3).startswith("Tile column 3 of B: 1 block of this wave read it.")


def test_arrow_keys_move_over_the_tiles(open_view: Opener) -> None:
    page = open_view()
    canvas = find(page, ".mgw-canvas")
    press(canvas, "ArrowDown")  # the first press begins at the wave's first tile
    assert text(page, ".mgw-inspector").startswith("Tile (0, 0): block 0")
    press(canvas, "ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp")
    assert text(page, ".mgw-inspector").startswith("Tile (0, 2): block 2")
    press(canvas, "Escape")
    assert text(page, ".mgw-inspector").startswith("Point at a tile")


def test_settings_that_do_not_fit_get_a_sentence_and_can_be_mended(open_view: Opener) -> None:
    page = open_view(order="tiled")
    set_number(page, "m", 6)
    assert "mt = 4 does not divide the 6 tile rows" in text(page, ".mgw-error")
    assert find(page, ".mgw input[name=width]").get_attribute("aria-invalid") == "true"
    set_number(page, "width", 2)
    assert not find(page, ".mgw-error").is_visible()
    assert table(page)["Together"][0] == "10"
    set_number(page, "sms", 0)
    assert "SMs: it must be a whole number from 1 up." in text(page, ".mgw-error")
    set_number(page, "sms", 8)
    assert text(page, ".mgw-where") == "wave 1 of 12"
    set_number(page, "l2_mib", 0)
    assert table(page)["Hits"][0] == "0"


def test_a_link_the_code_and_a_picture_to_take_away(page: Page) -> None:
    page.goto("about:blank")
    page.goto(explorer_page.address("#waves?order=snake&persistent=true&wave=3"))
    set_number(page, "width", 2)
    link = page.evaluate("window.model.link()")
    assert link.endswith("#waves?order=snake&persistent=true&wave=3&width=2")
    shown = text(page, ".mgw-summary")
    page.goto("about:blank")
    page.goto(link)
    assert text(page, ".mgw-summary") == shown
    page.get_by_role("button", name="Copy plgpu code").click()
    wait_for_text(page, ".mgw-said", "Code copied.")
    page.get_by_role("button", name="Copy link").click()
    wait_for_text(page, ".mgw-said", "Link copied.")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save PNG").click()
    assert download.value.suggested_filename == "waves.png"
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert console_errors(page) == []
    assert outside_requests(page) == []


# ---- for everybody ----


def test_everything_has_a_name_and_can_be_reached_by_keyboard(open_view: Opener) -> None:
    page = open_view(order="snake")
    assert nameless(page, ".mgw") == []
    names = set()
    for _ in range(34):
        page.keyboard.press("Tab")
        names.add(accessible_name(page.locator(":focus, body:not(:has(:focus))").last))
    for name in ("Order", "Tile width", "SMs", "Wave", "Next wave (Page Down)"):
        assert name in names
    assert any(name.startswith("The tiles of A, B and C") for name in names)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 700, 360])
def test_it_fits_the_page_and_can_be_read(open_view: Opener, width: int, dark: bool) -> None:
    # the largest numbers that are usual: an H200
    page = open_view(32, 64, order="tiled", width=8, concurrent=132, l2_bytes=50 * 2**20, wave=9)
    set_viewport(page, width=width, height=1000)
    set_dark(page, dark=dark)
    shows_theme(page, ".mgw", "mgw-dark", dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back, ink, muted = page.evaluate(
        "() => ['.mgw', '.mgw', '.mgw-inspector'].map((at, i) => {"
        " const style = getComputedStyle(document.querySelector(at));"
        " return i ? style.color : style.backgroundColor; })"
    )
    assert (luminance(back) < 0.2) == dark
    assert contrast(back, ink) > 7
    assert contrast(back, muted) > 4.5  # WCAG 2.2, 1.4.3


def luminance(colour: str) -> float:
    """Relative luminance of a CSS colour "rgb(r, g, b)" (WCAG 2.2)."""
    channels = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two CSS colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_large_grid_is_no_trouble(open_view: Opener) -> None:
    page = open_view(m=256, n=256, k=4, order="snake", width=16, concurrent=132)
    assert text(page, ".mgw-where") == "wave 1 of 497"
    press(find(page, ".mgw-canvas"), "End")
    assert text(page, ".mgw-where") == "wave 497 of 497"


def test_a_closed_view_lets_go_of_the_page(open_view: Opener) -> None:
    page = open_view()
    page.evaluate("window.close_view()")
    assert page.evaluate("Object.values(window.model.handlers).every((list) => list.length === 0)")
    set_dark(page, dark=True)  # nothing listens any more


# ---- in JupyterLab ----


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_in_jupyterlab(tmp_path: Path, theme: str) -> None:
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [
        "from course_lib import explore\nw = explore.waves(order='tiled')\nw",
        "print('Python has wave', w.wave)",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in cells],
        metadata={"kernelspec": kernelspec},
    )
    nbformat.write(notebook, tmp_path / "waves.ipynb")
    # a browser of its own: a page of JupyterLab goes on asking for its server when that is gone
    with jupyter_lab(tmp_path, theme=theme) as lab, chromium() as page:
        set_dark(page, dark=False)  # the theme decides, not the system
        page.goto(lab.page("waves.ipynb"))
        lab.wait_for_kernel()
        run_cell(page, 0)
        find(page, ".mgw-canvas").wait_for(timeout=LONG_MS)
        wait_for_text(page, ".mgw-where", "wave 1 of 8")
        assert table(page)["Together"][0] == "8"
        shows_theme(page, ".mgw", "mgw-dark", dark=theme == "JupyterLab Dark")
        press(find(page, ".mgw-canvas"), "PageDown", "ArrowDown", "ArrowDown")
        assert text(page, ".mgw-where") == "wave 2 of 8"
        assert text(page, ".mgw-inspector").startswith("Tile (1, 4): block 17")
        run_cell(page, 1)
        wait_for_text(page, ".jp-Notebook", "Python has wave 1", timeout_ms=LONG_MS)
        assert outside_requests(page) == []
        assert console_errors(page) == []
