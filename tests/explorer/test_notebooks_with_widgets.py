"""Every view in a notebook: nbval passes over its cell, and HTML export shows its picture."""

from __future__ import annotations

import base64
import functools
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbconvert
import nbformat
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VIEWS = {
    "smem": "explore.smem(64, 64)",
    "registers": "explore.registers('WGMMA', 64, 16, lane=5)",
    "banks": "explore.banks('WGMMA', 64, 64, bits=32, tile=(8, 32))",
    "tmem": "explore.tmem(128, 64, more='128x64x32')",
    "pipeline": "explore.pipeline(2)",
    "timeline": "explore.pipeline(timeline=timeline)",
    "barriers": "explore.barriers('eager')",
    "waves": "explore.waves(8, 16, order='snake')",
    "schedules": "explore.schedules(12, sms=3)",
}
GIVEN = """\
from types import SimpleNamespace as Some
from course_lib import explore
span = Some(lane="block 0", kind="issue", start=0.0, end=20.0, name="wgmma", where="own.py:3")
timeline = Some(spans=(span,), cycles=40.0, clock_ghz=1.83)"""


@functools.cache
def executed() -> nbformat.NotebookNode:
    """A notebook with a cell for each view, as the course stores them: without widget state."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in (GIVEN, *VIEWS.values())],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbclient.NotebookClient(notebook, store_widget_state=False).execute()
    return notebook


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "views.ipynb"
    nbformat.write(executed(), path)
    return path


def nbval(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=path.parent,
    )
    return done.stdout


def test_nbval_passes_over_every_view(stored: Path) -> None:
    assert f"{len(VIEWS) + 1} passed" in nbval(stored)


def test_nbval_finds_a_view_that_says_something_else(stored: Path) -> None:
    notebook = nbformat.read(stored, 4)
    notebook.cells[1].source = "explore.smem(64, 128)"
    nbformat.write(notebook, stored)
    assert "1 failed" in nbval(stored)


@pytest.mark.parametrize("view", VIEWS)
def test_html_export_shows_a_picture_with_its_text(view: str) -> None:
    """As it is stored; and as `nbconvert` shows it where there is no JavaScript."""
    cell = executed().cells[1 + list(VIEWS).index(view)]
    [output] = cell.outputs
    picture = base64.b64decode(output.data["image/png"])
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert width > 900
    assert height > 400
    assert len(output.data["text/plain"]) > 20
    plain = nbformat.from_dict(
        {**executed(), "cells": [{**cell, "outputs": [without_widget(output)]}]}
    )
    html, _ = nbconvert.HTMLExporter().from_notebook_node(plain)
    [shown] = re.findall(r'<img[^>]*src="data:image/png;base64,([^"]*)"', html)
    assert base64.b64decode(shown) == picture


def without_widget(output: nbformat.NotebookNode) -> dict[str, object]:
    """An output without what only JavaScript can show."""
    kept = {mime: data for mime, data in output.data.items() if "widget" not in mime}
    return {**output, "data": kept}
