"""What a newcomer sees after `make lab`: the first chapter, and nothing that asks for anything."""

from pathlib import Path

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.chromium import chromium, console_errors, outside_requests
from tests.cli.served import running

pytestmark = [pytest.mark.browser, pytest.mark.needs("chromium", "chromedriver")]

_QUIET_S = 5.0
_POP_UPS = ".jp-Dialog, .jp-toastContainer [role=alert], .jp-Notification-List-Item"


def test_the_first_chapter_is_open_and_nothing_is_asked(tmp_path: Path) -> None:
    with running(tmp_path) as server, chromium() as driver:
        driver.get(server.url)
        wait = WebDriverWait(driver, 90)
        heading = wait.until(lambda d: d.find_element(By.CSS_SELECTOR, ".jp-Notebook h1"))
        assert heading.text.startswith("00 Start here")
        # the kernel is up when JupyterLab has shown all that it has to show
        wait.until(lambda d: "Idle" in d.find_element(By.ID, "jp-main-statusbar").text)
        with pytest.raises(TimeoutException):  # they come late, if they come
            WebDriverWait(driver, _QUIET_S).until(
                lambda d: d.find_elements(By.CSS_SELECTOR, _POP_UPS)
            )
        assert outside_requests(driver) == []
        assert console_errors(driver) == []
