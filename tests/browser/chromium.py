"""Headless Chromium for tests, driven by Playwright: it starts, it logs what it asks of the
network, it ends.

The browser is the machine's own (Debian's `chromium`): Playwright downloads none.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright", reason="needs playwright (a development requirement)")

from playwright.sync_api import Page, Playwright, sync_playwright

from tests.conftest import find_program

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)
_LOCAL_SCHEMES = ("data", "blob", "about", "chrome", "file")
_WAIT_MS = 10_000


@dataclasses.dataclass
class Log:
    """What a page asked for and complained about since it was last read."""

    requests: list[str] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)


_logs: dict[Page, Log] = {}
_running: list[Playwright] = []  # one for all browsers that are open: a thread has only one


@contextlib.contextmanager
def _playwright() -> Iterator[Playwright]:
    if _running:
        yield _running[0]
        return
    with sync_playwright() as started:
        _running.append(started)
        try:
            yield started
        finally:
            _running.clear()


@contextlib.contextmanager
def chromium(*, width: int = 1280, height: int = 1000) -> Iterator[Page]:
    """A page of a browser of its own; `outside_requests` and `console_errors` read its log."""
    with _playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_program("chromium"), args=list(_QUIET)
        )
        context = browser.new_context(viewport={"width": width, "height": height})
        context.set_default_timeout(_WAIT_MS)
        page = context.new_page()
        log = _logs.setdefault(page, Log())
        # of the context: workers' requests too
        context.on("request", lambda request: log.requests.append(request.url))
        page.on("websocket", lambda socket: log.requests.append(socket.url))
        page.on("pageerror", lambda error: log.errors.append(str(error)))
        page.on("console", lambda said: log.errors.append(said.text) if said.type == "error" else 0)
        try:
            yield page
        finally:
            del _logs[page]
            browser.close()


def set_viewport(page: Page, *, width: int, height: int) -> None:
    """Makes the page's inside `width` x `height` CSS pixels."""
    page.set_viewport_size({"width": width, "height": height})


def set_dark(page: Page, *, dark: bool) -> None:
    """What the system's preference for a dark theme is."""
    page.emulate_media(color_scheme="dark" if dark else "light")


def outside_requests(page: Page) -> list[str]:
    """URLs the page asked for since the last call that are not of this machine."""
    log = _logs[page]
    asked, log.requests = log.requests, []
    return [url for url in asked if not _is_local(url)]


def console_errors(page: Page) -> list[str]:
    """What the page's console complained about since the last call."""
    log = _logs[page]
    found, log.errors = log.errors, []
    return found


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in _LOCAL_SCHEMES or parts.hostname in (None, "127.0.0.1", "localhost")
