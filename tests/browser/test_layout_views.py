"""The layout views in Chromium: on the static page from a file, and in JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from course_lib.explorer import page
from course_lib.layouts.banks import Transfer
from course_lib.layouts.registers import named
from course_lib.layouts.smem import SmemRef, bank
from course_lib.layouts.tiling import Tiling

pytest.importorskip("selenium", reason="needs selenium (a development requirement)")

from selenium.common.exceptions import (
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

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

VIEWS = ("smem", "registers", "banks", "tmem", "pipeline")
HEAD, SIDE = 34, 46  # where the cells begin on a canvas, in CSS pixels


@pytest.fixture(scope="module")
def driver() -> Iterator[WebDriver]:
    with chromium() as browser:
        yield browser


Opener = Callable[[str], WebDriver]


@pytest.fixture
def open_page(driver: WebDriver) -> Iterator[Opener]:
    """Opens the page from its file at a view; afterwards nothing may have gone wrong."""

    def open_it(where: str) -> WebDriver:
        set_viewport(driver, width=1280, height=1100)
        set_dark(driver, dark=False)
        driver.get("about:blank")
        driver.get(page.address(where))
        return driver

    yield open_it
    assert console_errors(driver) == []
    assert outside_requests(driver) == []


def find(driver: WebDriver, selector: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, selector)


def text(driver: WebDriver, selector: str) -> str:
    return find(driver, selector).text


def set_number(driver: WebDriver, name: str, value: int) -> None:
    field = find(driver, f"[name={name}]")
    field.clear()
    field.send_keys(str(value), Keys.ENTER)


def choose(driver: WebDriver, name: str, value: object) -> None:
    Select(find(driver, f"[name={name}]")).select_by_value(str(value))


def point(
    driver: WebDriver, panel: int, r: int, c: int, *, shape: tuple[int, int], click: bool = False
) -> str:
    """Moves the mouse over cell (r, c) of a panel of `shape` cells; what the view then says."""
    canvas = driver.find_elements(By.CSS_SELECTOR, ".mgx canvas")[panel]
    box: dict[str, float] = canvas.rect
    widest = 34.0
    cell = min(widest, (box["width"] - SIDE - 2) / shape[1])
    tall = (box["height"] - HEAD - 2) / shape[0]
    x = SIDE + (c + 0.5) * cell - box["width"] / 2
    y = HEAD + (r + 0.5) * tall - box["height"] / 2
    move = ActionChains(driver, duration=0).move_to_element_with_offset(canvas, round(x), round(y))
    (move.click() if click else move).perform()
    return text(driver, ".mgx-inspector")


def test_shared_memory_is_what_numpy_says_in_both_directions(open_page: Opener) -> None:
    driver = open_page("smem")
    set_number(driver, "columns", 32)
    set_number(driver, "rows", 16)
    set_number(driver, "tile_columns", 32)
    choose(driver, "swizzle", 64)
    assert text(driver, ".mgx-error") == ""
    ref = SmemRef(shape=(16, 32), tiling=Tiling(((8, 32),)), swizzle=64)
    for r, c in np.random.default_rng().integers((16, 32), size=(4, 2)).tolist():
        byte = int(ref.byte_offset([r, c]))
        said = point(driver, 0, r, c, shape=(16, 32))
        assert said.startswith(f"Element ({r}, {c}): byte {byte} = element {byte // 2} ")
        assert f"bank {int(bank(np.array(byte)))}." in said
        slot = byte // 2
        assert point(driver, 1, slot // 64, slot % 64, shape=(8, 64)) == said


def test_a_click_keeps_an_element_and_a_link_restores_the_exact_state(open_page: Opener) -> None:
    driver = open_page("smem")
    set_number(driver, "rows", 8)
    choose(driver, "colour", "phase")
    said = point(driver, 0, 3, 20, shape=(8, 64), click=True)
    link = driver.execute_script("return window.model.link()")
    assert link.endswith("#smem?rows=8&colour=phase&element=212")
    assert driver.current_url == link
    driver.get("about:blank")
    driver.get(link)
    assert text(driver, ".mgx-inspector") == said
    assert find(driver, "[name=rows]").get_attribute("value") == "8"
    driver.back()
    driver.get(page.address("#tmem?rows=64&packed=false"))
    assert text(driver, ".mgx-sentence").startswith("(64, 64) of 16 bits, unpacked")


def test_a_click_on_a_thread_isolates_what_it_holds(open_page: Opener) -> None:
    driver = open_page("#registers?columns=16")
    said = point(driver, 1, 4, 5, shape=(16, 8), click=True)
    held = named("WGMMA", (64, 16)).elements((64, 16))[37]
    first = " ".join(f"({e // 16}, {e % 16})" for e in held[0].tolist())
    assert said.startswith(f"Thread 37: warp 1, lane 5. r0: {first}; r1: ")
    assert find(driver, "[name=thread]").get_attribute("value") == "37"
    said = point(driver, 0, 63, 15, shape=(64, 16))
    assert said == ("Element (63, 15): warp 3, lane 31 (thread 127), register 3, element 1 of it.")


def test_replication_is_shown(open_page: Opener) -> None:
    driver = open_page("#registers?register_layout=WGMMA_ROW&columns=64")
    said = point(driver, 0, 0, 1, shape=(4, 16))
    assert said.startswith("Element (1,) is held by 4 threads: warp 0, lanes 4, 5, 6, 7;")
    assert "4 threads (replicated)" in text(driver, ".mgx-table")


def test_conflicts_their_degree_and_their_reason(open_page: Opener) -> None:
    driver = open_page("#banks?bits=32&tile_columns=32")
    ref = SmemRef(shape=(64, 64), bits=32, tiling=Tiling(((8, 32),)), swizzle=128)
    found = Transfer(named("WGMMA", (64, 64)), ref)
    assert text(driver, ".mgx-sentence") == found.summary()
    assert found.reason(0, 0, 0) in text(driver, ".mgx-table")
    canvas = find(driver, ".mgx canvas")
    canvas.send_keys(Keys.PAGE_DOWN)
    assert "2 of 128: warp 0, register 0, lanes 16 to 31" in text(driver, ".mgx-table")
    assert found.reason(0, 0, 1) in text(driver, ".mgx-table")
    canvas.send_keys(Keys.PAGE_UP, Keys.PAGE_UP)
    assert "128 of 128: warp 3" in text(driver, ".mgx-table")


def test_settings_that_do_not_fit_get_a_sentence_and_can_be_mended(open_page: Opener) -> None:
    driver = open_page("smem")
    set_number(driver, "tile_columns", 60)
    assert "60 does not divide the 64 of axis 1. What does: 1, 2, 4" in text(driver, ".mgx-error")
    assert "mgx-stale" in (find(driver, ".mgx-main").get_attribute("class") or "")
    set_number(driver, "tile_columns", 64)
    assert text(driver, ".mgx-error") == ""
    assert "mgx-stale" not in (find(driver, ".mgx-main").get_attribute("class") or "")


def test_a_link_to_what_does_not_fit_says_so(open_page: Opener) -> None:
    driver = open_page("#registers?rows=32")
    assert "The next that is: (64, 32)" in text(driver, ".mgx-error")
    assert not find(driver, ".mgx-main").is_displayed()


@pytest.mark.parametrize("view", VIEWS)
def test_keys_walk_over_the_cells_and_everything_has_a_name(open_page: Opener, view: str) -> None:
    driver = open_page(view)
    for canvas in driver.find_elements(By.CSS_SELECTOR, ".mgx canvas"):
        assert canvas.get_attribute("tabindex") == "0"
        assert "Arrow keys move" in (canvas.get_attribute("aria-label") or "")
        canvas.send_keys(Keys.ARROW_DOWN)
        at_first = text(driver, ".mgx-inspector")
        canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
        assert text(driver, ".mgx-inspector") != at_first
        canvas.send_keys(Keys.ESCAPE)
    for field in driver.find_elements(By.CSS_SELECTOR, ".mgx input, .mgx select, .mgx button"):
        assert field.accessible_name
    choose_all = driver.find_elements(By.CSS_SELECTOR, "nav a")
    assert len(choose_all) == 6


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 700])
@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_the_page_and_follows_the_theme(
    open_page: Opener, view: str, width: int, dark: bool
) -> None:
    driver = open_page(view)
    set_viewport(driver, width=width, height=1100)
    set_dark(driver, dark=dark)
    WebDriverWait(driver, 10).until(
        lambda d: ("mgx-dark" in (find(d, ".mgx").get_attribute("class") or "")) == dark
    )
    wide = driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    back = find(driver, ".mgx").value_of_css_property("background-color")
    assert ("20, 24, 29" in back) == dark
    pixel = driver.execute_script(
        "const c = document.querySelector('.mgx canvas');"
        "return Array.from(c.getContext('2d').getImageData(2, c.height - 2, 1, 1).data)"
    )
    assert (sum(pixel[:3]) < 150) == dark


def test_the_canvas_shows_the_banks_in_their_colours(open_page: Opener) -> None:
    driver = open_page("#smem?rows=8&element=0")
    ActionChains(driver).move_by_offset(1, 1).perform()
    colours = driver.execute_script(
        """const c = document.querySelectorAll('.mgx canvas')[1];
        const cell = (c.width - 48) / 64;
        const at = (k) => Array.from(
          c.getContext('2d').getImageData(46 + (k + 0.25) * cell, 34 + 40, 1, 1).data).slice(0, 3);
        return [at(0), at(63)];"""
    )
    assert colours == [[0, 32, 76], [255, 233, 69]]


def test_an_outline_goes_when_the_mouse_has_left(open_page: Opener) -> None:
    driver = open_page("smem")
    image = "return [...document.querySelectorAll('.mgx canvas')].map((c) => c.toDataURL()).join()"
    before = driver.execute_script(image)
    for r, c in ((0, 0), (63, 63), (7, 40)):
        point(driver, 0, r, c, shape=(64, 64))
        assert driver.execute_script(image) != before
    find(driver, ".mgx canvas").send_keys(Keys.ESCAPE)
    assert driver.execute_script(image) == before


def test_copying_saving_and_animating(open_page: Opener) -> None:
    driver = open_page("smem")
    buttons = {b.text: b for b in driver.find_elements(By.CSS_SELECTOR, ".mgx-tools button")}
    buttons["Copy plgpu code"].click()
    WebDriverWait(driver, 5).until(lambda d: text(d, ".mgx-said") == "Code copied.")
    buttons["Copy link"].click()
    WebDriverWait(driver, 5).until(lambda d: text(d, ".mgx-said") == "Link copied.")
    buttons["▶ animate"].click()
    moving = "return Boolean(document.querySelector('.mgx'))"
    assert driver.execute_script(moving)
    choose(driver, "swizzle", 0)
    buttons["▶ animate"].click()
    assert text(driver, ".mgx-said") == "Nothing moves: there is no swizzle."


SPEED = """
const started = performance.now();
for (const key of ['rows', 'columns']) window.model.set(key, 256);
const drawn = performance.now() - started;
const canvas = document.querySelector('.mgx canvas');
const box = canvas.getBoundingClientRect();
const times = [];
for (let i = 0; i < 200; i++) {
  const at = { clientX: box.left + 50 + Math.random() * (box.width - 60),
               clientY: box.top + 40 + Math.random() * (box.height - 60) };
  const from = performance.now();
  canvas.dispatchEvent(new PointerEvent('pointermove', at));
  canvas.getContext('2d').getImageData(0, 0, 1, 1);
  times.push(performance.now() - from);
}
times.sort((a, b) => a - b);
return [drawn, times[Math.floor(times.length * 0.95)]];
"""


@pytest.mark.parametrize("view", ["smem", "registers", "banks"])
def test_256_by_256_is_drawn_and_pointed_at_without_waiting(open_page: Opener, view: str) -> None:
    """First draw under 100 ms, hover to highlight p95 under 16 ms; the best of three runs.

    The first draw counts two: one for each of the two sizes that change.
    """
    runs = []
    for _ in range(3):
        driver = open_page(view)
        runs.append(driver.execute_script(SPEED))
    drawn, hover = np.min(runs, axis=0)
    print(f"{view}: two draws {drawn:.1f} ms, hover p95 {hover:.2f} ms")
    assert drawn < 200
    assert hover < 16


def test_a_closed_view_lets_go_of_the_page(open_page: Opener) -> None:
    driver = open_page("smem")
    driver.execute_script("window.before = window.model; location.hash = 'banks'")
    WebDriverWait(driver, 5).until(lambda d: "Bank" in d.title)
    assert driver.execute_script(
        "return [...window.before.handlers.values()].every((set) => set.size === 0)"
    )
    assert len(driver.find_elements(By.CSS_SELECTOR, ".mgx")) == 1


# ---- in JupyterLab ----

CELLS = [
    "from course_lib import explore\nv = explore.smem(128, 128, tile=(8, 64), swizzle=128)\nv",
    "v.element = 130\nexplore.registers('WGMMA', 64, 16)",
    "print('Python has element', v.element)",
]


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_in_jupyterlab(tmp_path: Path, theme: str) -> None:
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in CELLS],
        metadata={"kernelspec": kernelspec},
    )
    nbformat.write(notebook, tmp_path / "views.ipynb")
    with jupyter_lab(tmp_path, theme=theme) as lab, chromium() as driver:
        driver.get(lab.page("views.ipynb"))
        set_viewport(driver, width=1280, height=1000)
        set_dark(driver, dark=False)  # the theme decides, not the system
        wait = WebDriverWait(driver, 120, poll_frequency=1)
        lab.wait_for_kernel()
        run_cell(driver, wait, 0)
        wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, ".mgx canvas"))
        is_dark = "mgx-dark" in (find(driver, ".mgx").get_attribute("class") or "")
        assert is_dark == (theme == "JupyterLab Dark")
        run_cell(driver, wait, 1)
        wait.until(lambda d: text(d, ".mgx-inspector").startswith("Element (1, 2): byte "))
        driver.execute_script("document.querySelector('.mgx canvas').focus()")
        ActionChains(driver).send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER).perform()
        run_cell(driver, wait, 2)
        wait.until(lambda d: "Python has element 128" in text(d, ".jp-Notebook"))
        assert not re.search("Copy link", text(driver, ".mgx-tools"))
        assert outside_requests(driver) == []
        assert console_errors(driver) == []


def run_cell(driver: WebDriver, wait: WebDriverWait[Any], number: int) -> None:
    """Runs a code cell; tries again while JupyterLab draws its cells anew under the mouse."""

    def started(d: WebDriver) -> bool:
        try:
            cell = d.find_elements(By.CSS_SELECTOR, ".jp-CodeCell")[number]
            if cell.find_element(By.CSS_SELECTOR, ".jp-InputPrompt").text != "[ ]:":
                return True
            d.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
            cell.find_element(By.CSS_SELECTOR, ".cm-content").click()
            shift_enter(d)
        except (StaleElementReferenceException, ElementNotInteractableException):
            pass
        return False

    wait.until(started)


def shift_enter(driver: WebDriver) -> None:
    keys = ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT)
    keys.perform()
