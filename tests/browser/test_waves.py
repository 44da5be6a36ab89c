"""The wave view in Chromium: what it shows, how it is used, in JupyterLab and on a bare page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from course_lib import explore
from course_lib.explorer.wave_picture import Study
from course_lib.layouts import grid
from course_lib.layouts.units import bytes_in_words

pytest.importorskip("selenium", reason="needs selenium (a development requirement)")

from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import host_page
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
    pytest.mark.needs("chromium", "chromedriver"),
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
def driver() -> Iterator[WebDriver]:
    with chromium() as browser:
        yield browser


Opener = Callable[..., WebDriver]


@pytest.fixture
def open_view(driver: WebDriver, tmp_path: Path) -> Iterator[Opener]:
    """Opens the view with some settings on a bare page; afterwards nothing may have gone wrong."""

    def open_it(*sizes: int, **settings: Any) -> WebDriver:
        set_viewport(driver, width=1280, height=1000)
        set_dark(driver, dark=False)
        driver.get(host_page.write(explore.waves(*sizes, **settings), tmp_path))
        return driver

    yield open_it
    assert console_errors(driver) == []
    assert outside_requests(driver) == []


def find(driver: WebDriver, selector: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, selector)


def text(driver: WebDriver, selector: str) -> str:
    return find(driver, selector).text


def table(driver: WebDriver) -> dict[str, list[str]]:
    """The table of numbers: row name -> texts of its columns."""
    rows = driver.find_elements(By.CSS_SELECTOR, ".mgw tbody tr")
    return {
        row.find_element(By.TAG_NAME, "th").text: [
            cell.text for cell in row.find_elements(By.TAG_NAME, "td")
        ]
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
        "Hits": [f"{t.hits:,}" for t in traffic],
        "Hit rate": rates,
        "First reads": [f"{t.compulsory:,}" for t in traffic],
        "Evicted before": [f"{t.capacity:,}" for t in traffic],
        "From HBM": [bytes_in_words(t.hbm_read_bytes) for t in traffic],
        "Written": [bytes_in_words(t.written_bytes) for t in traffic],
    }


def set_number(driver: WebDriver, name: str, value: object) -> None:
    field = find(driver, f".mgw input[name={name}]")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(str(value), Keys.TAB)


def tile_xy(driver: WebDriver, mi: float, ni: float) -> tuple[int, int]:
    """Where tile (mi, ni) of C is, from the middle of the canvas, from what is painted there."""
    found: tuple[float, float, float] = driver.execute_script(
        """
        const c = document.querySelector('.mgw-canvas'), ctx = c.getContext('2d');
        const data = ctx.getImageData(0, 0, c.width, c.height).data;
        const now = getComputedStyle(document.querySelector('.mgw'))
          .getPropertyValue('--mgw-now').trim();
        const rgb = [1, 3, 5].map((i) => parseInt(now.slice(i, i + 2), 16));
        let [left, top, right] = [1e9, 1e9, 0];
        for (let y = 0; y < c.height; y++) for (let x = 0; x < c.width; x++) {
          const p = 4 * (y * c.width + x);
          if (rgb.every((v, i) => data[p + i] === v)) {
            left = Math.min(left, x); top = Math.min(top, y); right = Math.max(right, x);
          }
        }
        return [left, top, right];
        """
    )
    left, top, right = found
    side = (right + 2 - left) / 16  # of the first wave of the row-major example
    canvas = find(driver, ".mgw-canvas").size
    return (
        int(left + (ni + 0.5) * side - canvas["width"] / 2),
        int(top + (mi + 0.5) * side - canvas["height"] / 2),
    )


# ---- what it shows ----


@pytest.mark.parametrize("name", SETTINGS)
def test_numbers_are_those_of_the_layouts(open_view: Opener, name: str) -> None:
    settings = SETTINGS[name]
    driver = open_view(**settings)
    wave = settings.get("wave", 0)
    study = explore.waves(**settings).study()
    assert table(driver) == wanted_table(study, wave)
    word = "step" if settings.get("persistent") else "wave"
    assert text(driver, ".mgw-where") == f"{word} {wave + 1} of {len(study.waves)}"
    row_major = bytes_in_words(grid.total(study.row_major.traffic).hbm_read_bytes)
    sentence = text(driver, ".mgw-sentence")
    assert ("Row-major order" in sentence) == (study.order.kind != "row-major")
    assert row_major in sentence


def test_the_pages_example_goes_from_17_to_8(open_view: Opener) -> None:
    driver = open_view()
    assert table(driver)["Together"][0] == "17"
    Select(find(driver, ".mgw select[name=order]")).select_by_value("tiled")
    assert table(driver)["Together"][0] == "8"
    assert "4 tile rows of A and 4 tile columns of B: 8 distinct, 8 MiB" in text(
        driver, ".mgw-summary"
    )


def test_the_canvas_shows_each_kind_of_tile(open_view: Opener) -> None:
    driver = open_view(order="tiled", wave=1)
    colours = driver.execute_script(
        """
        const c = document.querySelector('.mgw-canvas');
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = {};
        for (let p = 0; p < data.length; p += 4) {
          const key = [0, 1, 2].map((i) => data[p + i].toString(16).padStart(2, '0')).join('');
          seen['#' + key] = (seen['#' + key] ?? 0) + 1;
        }
        return seen;
        """
    )
    for name in ("now", "done", "a", "b", "l2"):
        colour = driver.execute_script(
            "return getComputedStyle(document.querySelector('.mgw'))"
            f".getPropertyValue('--mgw-{name}').trim()"
        )
        assert colours.get(colour, 0) > 100, name


# ---- how it is used ----


def test_buttons_slider_and_keys_step_through_the_waves(open_view: Opener) -> None:
    driver = open_view()
    buttons = driver.find_elements(By.CSS_SELECTOR, ".mgw-transport button")
    first, back, _, onward, last = buttons

    def where() -> str:
        return text(driver, ".mgw-where")

    onward.click()
    onward.click()
    assert where() == "wave 3 of 8"
    back.click()
    assert where() == "wave 2 of 8"
    last.click()
    assert (where(), onward.is_enabled()) == ("wave 8 of 8", False)
    first.click()
    assert (where(), back.is_enabled()) == ("wave 1 of 8", False)
    slider = find(driver, ".mgw-transport input")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert where() == "wave 3 of 8"
    assert slider.get_attribute("aria-valuetext") == "wave 3 of 8"
    canvas = find(driver, ".mgw-canvas")
    canvas.send_keys(Keys.PAGE_DOWN)
    assert where() == "wave 4 of 8"
    canvas.send_keys(Keys.END)
    assert where() == "wave 8 of 8"
    canvas.send_keys(Keys.HOME)
    assert where() == "wave 1 of 8"


def test_it_plays_to_the_end_and_stops(open_view: Opener) -> None:
    driver = open_view(m=2)  # two waves
    play = driver.find_elements(By.CSS_SELECTOR, ".mgw-transport button")[2]
    play.click()
    assert play.get_attribute("aria-pressed") == "true"
    wait = WebDriverWait(driver, 10)
    wait.until(lambda d: text(d, ".mgw-where") == "wave 2 of 2")
    wait.until(lambda d: play.get_attribute("aria-pressed") == "false")


def test_a_bar_is_a_way_to_its_wave(open_view: Opener) -> None:
    driver = open_view()
    bars = find(driver, ".mgw-bars")
    offset = int((5.5 / 8 - 0.5) * bars.size["width"])
    ActionChains(driver).move_to_element_with_offset(bars, offset, 0).click().perform()
    assert text(driver, ".mgw-where") == "wave 6 of 8"


def test_pointing_says_who_reads_what(open_view: Opener) -> None:
    driver = open_view()
    canvas = find(driver, ".mgw-canvas")

    def point(mi: float, ni: float) -> str:
        xy = tile_xy(driver, mi, ni)
        ActionChains(driver).move_to_element_with_offset(canvas, *xy).perform()
        return text(driver, ".mgw-inspector")

    x_y = tile_xy(driver, 2, 5)
    ActionChains(driver).move_to_element_with_offset(canvas, *x_y).perform()
    said = text(driver, ".mgw-inspector")
    assert said.startswith("Tile (2, 5): block 37 computes it, in wave 3 (later).")
    assert "Row 2 of A is read by 15 other blocks of that wave, column 5 of B by 0." in said
    ActionChains(driver).move_to_element(find(driver, ".mgw table")).perform()
    assert text(driver, ".mgw-inspector").startswith("Point at a tile")
    assert point(0, -2).startswith("Tile row 0 of A: 16 blocks of this wave read it.")
    ActionChains(driver).move_to_element(find(driver, ".mgw table")).perform()
    assert point(-2, 3).startswith("Tile column 3 of B: 1 block of this wave read it.")


def test_arrow_keys_move_over_the_tiles(open_view: Opener) -> None:
    driver = open_view()
    canvas = find(driver, ".mgw-canvas")
    canvas.send_keys(Keys.ARROW_DOWN)  # the first press begins at the wave's first tile
    assert text(driver, ".mgw-inspector").startswith("Tile (0, 0): block 0")
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert text(driver, ".mgw-inspector").startswith("Tile (0, 2): block 2")
    canvas.send_keys(Keys.ESCAPE)
    assert text(driver, ".mgw-inspector").startswith("Point at a tile")


def test_settings_that_do_not_fit_get_a_sentence_and_can_be_mended(open_view: Opener) -> None:
    driver = open_view(order="tiled")
    set_number(driver, "m", 6)
    assert "mt = 4 does not divide the 6 tile rows" in text(driver, ".mgw-error")
    assert find(driver, ".mgw input[name=width]").get_attribute("aria-invalid") == "true"
    set_number(driver, "width", 2)
    assert not find(driver, ".mgw-error").is_displayed()
    assert table(driver)["Together"][0] == "10"
    set_number(driver, "concurrent", 0)
    assert "Blocks at a time: it must be a whole number from 1 up." in text(driver, ".mgw-error")
    set_number(driver, "concurrent", 8)
    assert text(driver, ".mgw-where") == "wave 1 of 12"
    set_number(driver, "l2_mib", 0)
    assert table(driver)["Hits"][0] == "0"


# ---- for everybody ----


def test_everything_has_a_name_and_can_be_reached_by_keyboard(open_view: Opener) -> None:
    driver = open_view(order="snake")
    nameless = [
        e.get_attribute("outerHTML")
        for e in driver.find_elements(By.CSS_SELECTOR, ".mgw :is(button, input, select, canvas)")
        if e.is_displayed() and not e.accessible_name.strip()
    ]
    assert nameless == []
    names = set()
    for _ in range(30):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        names.add(driver.switch_to.active_element.accessible_name)
    for name in ("Order", "Tile width", "Blocks at a time", "Wave", "Next wave (Page Down)"):
        assert name in names
    assert any(name.startswith("The tiles of A, B and C") for name in names)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 700, 360])
def test_it_fits_the_page_and_can_be_read(open_view: Opener, width: int, dark: bool) -> None:
    # the largest numbers that are usual: an H200
    driver = open_view(32, 64, order="tiled", width=8, concurrent=132, l2_bytes=50 * 2**20, wave=9)
    set_viewport(driver, width=width, height=1000)
    set_dark(driver, dark=dark)
    WebDriverWait(driver, 5).until(
        lambda d: ("mgw-dark" in (find(d, ".mgw").get_attribute("class") or "")) == dark
    )
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    back, ink = driver.execute_script(
        "const s = getComputedStyle(document.querySelector('.mgw'));"
        "return [s.backgroundColor, s.color]"
    )
    muted = driver.execute_script(
        "return getComputedStyle(document.querySelector('.mgw-inspector')).color"
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
    driver = open_view(m=256, n=256, k=4, order="snake", width=16, concurrent=132)
    assert text(driver, ".mgw-where") == "wave 1 of 497"
    find(driver, ".mgw-canvas").send_keys(Keys.END)
    assert text(driver, ".mgw-where") == "wave 497 of 497"


def test_a_closed_view_lets_go_of_the_page(open_view: Opener) -> None:
    driver = open_view()
    driver.execute_script("window.close_view()")
    assert driver.execute_script(
        "return Object.values(window.model.handlers).every((list) => list.length === 0)"
    )
    set_dark(driver, dark=True)  # nothing listens any more


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
    with jupyter_lab(tmp_path, theme=theme) as lab, chromium() as driver:
        driver.get(lab.page("waves.ipynb"))
        set_viewport(driver, width=1280, height=1000)
        set_dark(driver, dark=False)  # the theme decides, not the system
        wait = WebDriverWait(driver, 120)
        lab.wait_for_kernel()
        run_cell(driver, 0)
        wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, ".mgw-canvas"))
        wait.until(lambda d: text(d, ".mgw-where") == "wave 1 of 8")
        assert table(driver)["Together"][0] == "8"
        is_dark = "mgw-dark" in (find(driver, ".mgw").get_attribute("class") or "")
        assert is_dark == (theme == "JupyterLab Dark")
        canvas = find(driver, ".mgw-canvas")
        canvas.send_keys(Keys.PAGE_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
        assert text(driver, ".mgw-where") == "wave 2 of 8"
        assert text(driver, ".mgw-inspector").startswith("Tile (1, 4): block 17")
        run_cell(driver, 1)
        wait.until(lambda d: "Python has wave 1" in text(d, ".jp-Notebook"))
        assert outside_requests(driver) == []
        assert console_errors(driver) == []


def run_cell(driver: WebDriver, index: int) -> None:
    """Runs a cell as a user does."""
    cell = f".jp-Notebook .jp-Cell:nth-of-type({index + 1})"
    editor = expected_conditions.element_to_be_clickable((By.CSS_SELECTOR, f"{cell} .cm-content"))
    WebDriverWait(driver, 60).until(editor).click()
    keys = ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT)
    keys.perform()
