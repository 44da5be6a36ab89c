"""What browser tests do with a page: look, type, choose, press keys."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

__all__ = [
    "choose",
    "find",
    "nameless",
    "press",
    "run_cell",
    "set_number",
    "shows_theme",
    "text",
    "wait_for_text",
]

LONG_MS = 90_000

# The parts of a control's accessible name that this course uses (WAI-ARIA, "accname").
_NAME = """(e) => (e.getAttribute('aria-label')
  || [...(e.labels ?? [])].map((label) => label.innerText).join(' ')
  || e.innerText || e.title || '').trim()"""


def find(page: Page, selector: str) -> Locator:
    """The first element."""
    return page.locator(selector).first


def text(page: Page, selector: str) -> str:
    """What an element shows."""
    return find(page, selector).inner_text()


def wait_for_text(
    page: Page, selector: str, wanted: str | re.Pattern[str], *, timeout_ms: int = 10_000
) -> None:
    """Returns once `wanted` is in an element's text, or matches it."""
    expect(find(page, selector)).to_contain_text(wanted, timeout=timeout_ms)


def set_number(page: Page, name: str, value: object) -> None:
    """Types a number into a field, as a user does."""
    field = find(page, f"input[name={name}]")
    field.fill(str(value))
    field.press("Tab")


def choose(page: Page, name: str, value: object) -> None:
    """Picks an option of a select."""
    find(page, f"select[name={name}]").select_option(str(value))


def press(target: Locator, *keys: str) -> None:
    """Presses keys, one after the other."""
    for key in keys:
        target.press(key)


def accessible_name(target: Locator) -> str:
    """The name that a screen reader reads."""
    name: str = target.evaluate(_NAME)
    return name


def nameless(page: Page, root: str) -> list[str]:
    """Controls that are shown and have no name."""
    controls = page.locator(f"{root} :is(button, input, select, canvas)").all()
    return [
        str(c.evaluate("(e) => e.outerHTML"))
        for c in controls
        if c.is_visible() and not accessible_name(c)
    ]


def shows_theme(page: Page, selector: str, name: str, *, dark: bool) -> None:
    """Returns once a view has its dark class, or has it no more."""
    view = expect(find(page, selector))
    wanted = re.compile(rf"\b{name}\b")
    if dark:
        view.to_have_class(wanted)
    else:
        view.not_to_have_class(wanted)


def run_cell(page: Page, number: int) -> None:
    """Runs a code cell of JupyterLab as a user does; until it has begun."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputPrompt")
    for _ in range(20):  # JupyterLab draws its cells anew under the mouse, now and then
        cell.locator(".cm-content").click(timeout=LONG_MS)
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(300)
        if prompt.inner_text() != "[ ]:":
            return
    raise AssertionError(f"cell {number} did not start")
