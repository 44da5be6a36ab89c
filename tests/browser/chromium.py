"""Headless Chromium for tests: it starts, it logs what it asks of the network, it ends."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

from tests.conftest import find_program

_QUIET = (
    "--headless=new",
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
_LOCAL_SCHEMES = ("data", "blob", "about", "chrome")


@contextlib.contextmanager
def chromium(*, width: int = 1280, height: int = 1000) -> Iterator[WebDriver]:
    """A browser with a profile of its own; `outside_requests` and `console_errors` read its log."""
    options = Options()
    options.binary_location = find_program("chromium") or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (*_QUIET, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        # with the driver's path given, selenium does not go and look for one
        driver = webdriver.Chrome(options, Service(find_program("chromedriver") or ""))
        try:
            yield driver
        finally:
            driver.quit()


def set_viewport(driver: WebDriver, *, width: int, height: int) -> None:
    """Makes the page's inside `width` x `height` CSS pixels."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def set_dark(driver: WebDriver, *, dark: bool) -> None:
    """What the system's preference for a dark theme is."""
    value = "dark" if dark else "light"
    feature = {"name": "prefers-color-scheme", "value": value}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def outside_requests(driver: WebDriver) -> list[str]:
    """URLs the page asked for since the last call that are not of this machine."""
    urls = []
    for entry in driver.get_log("performance"):
        message: dict[str, Any] = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            params = message["params"]
            urls.append(params["url"] if "url" in params else params["request"]["url"])
    return [u for u in urls if not _is_local(u)]


def console_errors(driver: WebDriver) -> list[str]:
    """What the page's console complained about since the last call."""
    return [e["message"] for e in driver.get_log("browser") if e["level"] == "SEVERE"]


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in _LOCAL_SCHEMES or parts.hostname in (None, "127.0.0.1", "localhost")
