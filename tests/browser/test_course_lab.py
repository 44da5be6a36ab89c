"""What a newcomer sees after `make lab`: the first chapter, and nothing that asks for anything."""

from pathlib import Path

import pytest

from tests.browser.chromium import chromium, console_errors, outside_requests
from tests.cli.served import running

pytestmark = [pytest.mark.browser, pytest.mark.needs("chromium")]

_QUIET_MS = 5_000
_LONG_MS = 90_000
_POP_UPS = ".jp-Dialog, .jp-toastContainer [role=alert], .jp-Notification-List-Item"


def test_the_first_chapter_is_open_and_nothing_is_asked(tmp_path: Path) -> None:
    with running(tmp_path) as server, chromium() as page:
        page.goto(server.url)
        heading = page.locator(".jp-Notebook h1").first
        heading.wait_for(timeout=_LONG_MS)
        assert heading.inner_text().startswith("00 Start here")
        # the kernel is up when JupyterLab has shown all that it has to show
        page.locator("#jp-main-statusbar", has_text="Idle").wait_for(timeout=_LONG_MS)
        page.wait_for_timeout(_QUIET_MS)  # pop-ups come late, if they come
        assert page.locator(_POP_UPS).count() == 0
        assert outside_requests(page) == []
        assert console_errors(page) == []
