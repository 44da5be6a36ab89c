"""What all tests share: what a test needs of the machine, and no traces of the user's own course.

    @pytest.mark.needs("chromium", "node")
    def test_...

skips with a sentence where a program is missing on a user's machine. On CI
(CI=true), which installs what the tests need, the same test fails, and so does
every other test that skips itself there, unless it needs a GPU or a newer jax
(`pytest.skip("this jax ...")`: the other jax runs it). Nothing is left untested
without anybody noticing.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Generator

import pytest

from course_lib.setup_env import has_nvidia_gpu

# Tests must not count as the learner's own tries, nor fill a GPU's memory at the first array.
os.environ.pop("COURSE_WORKSPACE", None)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# program -> the names it goes by, and what installs it (Debian's package)
PROGRAMS = {
    "bubblewrap": (("bwrap",), "bubblewrap"),
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "chromium"),
    "make": (("make",), "make"),
    "node": (("node",), "nodejs"),
}


def on_ci() -> bool:
    """Whether this is the run that has to have everything."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def find_program(name: str) -> str | None:
    """The path of one of `PROGRAMS`, or None where the machine does not have it."""
    names, _ = PROGRAMS[name]
    return next((path for n in names if (path := shutil.which(n))), None)


@functools.cache
def _missing(programs: tuple[str, ...]) -> str:
    """A sentence about what is missing of `programs`; "" where nothing is."""
    absent = [p for p in programs if find_program(p) is None]
    if not absent:
        return ""
    packages = " ".join(PROGRAMS[p][1] for p in absent)
    return f"needs {' and '.join(absent)} (Debian and Ubuntu: apt-get install {packages})"


@functools.cache
def _gpu() -> bool:
    return has_nvidia_gpu()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*programs): skips (on CI: fails) without them")


def pytest_runtest_setup(item: pytest.Item) -> None:
    programs = tuple(p for mark in item.iter_markers("needs") for p in mark.args)
    if sentence := _missing(programs):
        (pytest.fail if on_ci() else pytest.skip)(sentence)
    if item.get_closest_marker("gpu") and not _gpu():
        pytest.skip("needs an NVIDIA GPU")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        report.skipped
        and not hasattr(report, "wasxfail")
        and on_ci()
        and not _may_skip(item, report)
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, which no CPU test may be on CI: {_reason(report)}"
    return report


def _may_skip(item: pytest.Item, report: pytest.TestReport) -> bool:
    return item.get_closest_marker("gpu") is not None or _reason(report).startswith("this jax ")


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
