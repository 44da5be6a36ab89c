"""How fast the layout explorer is, in Chromium on this machine.

    python -m tests.browser.benchmark             prints the numbers and writes the record

Measured: the first draw once the data is there and, from the pointer's move to the painted
highlight, hovering (256 x 256 elements, on a bare page, no Python behind it); and how long
a view of 128 x 128 takes in JupyterLab, from running the cell to its canvas. The record,
`explorer_speed.json`, is a claim about one machine; `test_layout_views.py` only guards
against regressions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import nbformat
from playwright.sync_api import Page

from course_lib import explore
from tests.browser import host_page
from tests.browser.acting import LONG_MS, run_cell
from tests.browser.chromium import chromium
from tests.browser.lab import jupyter_lab

RECORD = Path(__file__).with_name("explorer_speed.json")
LIMITS = {  # ms
    "first draw": 100.0,
    "hover p95": 16.0,
    "model and first draw": 1000.0,
    "JupyterLab": 2000.0,
}

WIDE = {"tile": (8, 64), "swizzle": 128}
VIEWS: dict[str, Callable[[], anywidget.AnyWidget]] = {
    "smem": lambda: explore.smem(256, 256, **WIDE),
    "registers": lambda: explore.registers("WGMMA", 256, 256),
    "banks": lambda: explore.banks("WGMMA", 256, 256, **WIDE),
    "waves": lambda: explore.waves(256, 256, 4, order="snake", width=16, concurrent=132),
}

# From the pointer's event to the last painted pixel: reading one back waits for the painting.
HOVER = """(moves) => {
  const canvas = document.querySelector('canvas');
  const box = canvas.getBoundingClientRect();
  const times = [];
  for (let i = 0; i < moves; i++) {
    const at = { clientX: box.left + 50 + Math.random() * (box.width - 60),
                 clientY: box.top + 40 + Math.random() * (box.height - 60) };
    const from = performance.now();
    canvas.dispatchEvent(new PointerEvent('pointermove', { ...at, bubbles: true }));
    canvas.getContext('2d').getImageData(0, 0, 1, 1);
    times.push(performance.now() - from);
  }
  return times;
}"""
# The wave view's data is the whole L2 model's run, so its draw is that of another wave;
# the model's run and the first draw together are measured too.
REDRAW = """() => {
  const from = performance.now();
  window.model.set('wave', window.model.get('wave') + 1);
  document.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1);
  return performance.now() - from;
}"""
WATCH = """(number) => {
  const cell = document.querySelectorAll('.jp-CodeCell')[number];
  window.started = performance.now();
  window.shown = 0;
  const look = () => {
    const canvas = cell.querySelector('.mgx canvas');
    if (canvas && canvas.clientHeight > 100) window.shown = performance.now() - window.started;
    else requestAnimationFrame(look);
  };
  cell.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.shiftKey) window.started = performance.now();
  }, true);
  look();
}"""


def measure_views(page: Page, folder: Path, *, runs: int, moves: int) -> dict[str, Any]:
    """For each view, `runs` pages: the first draws and the 95th percentiles of hovering, in ms."""
    found: dict[str, Any] = {}
    for name, make in VIEWS.items():
        address = host_page.write(make(), folder)
        drawn, hover, modelled = [], [], []
        for _ in range(runs):
            page.goto("about:blank")
            page.goto(address)
            modelled.append(page.evaluate("window.first_draw_ms"))
            drawn.append(page.evaluate(REDRAW) if name == "waves" else modelled[-1])
            times = sorted(page.evaluate(HOVER, moves))
            hover.append(times[int(0.95 * len(times))])
        found[name] = {"first draw": rounded(drawn), "hover p95": rounded(hover)}
        if name == "waves":
            found[name]["model and first draw"] = rounded(modelled)
    return found


CELL = "from course_lib import explore\nexplore.smem(128, 128, tile=(8, 64), swizzle=128)"


def measure_lab(folder: Path, *, runs: int) -> dict[str, list[float]]:
    """From running a cell to its canvas, in ms: in a new kernel, imports included, and again."""
    found: dict[str, list[float]] = {"first cell of a kernel": [], "later cells": []}
    for run in range(runs):
        own = folder / str(run)
        own.mkdir()
        cells = [nbformat.v4.new_code_cell(CELL) for _ in range(2)]
        spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})
        nbformat.write(notebook, own / "speed.ipynb")
        with jupyter_lab(own) as lab, chromium() as page:
            page.goto(lab.page("speed.ipynb"))
            lab.wait_for_kernel()
            for number, name in enumerate(found):
                page.evaluate(WATCH, number)
                run_cell(page, number)
                page.wait_for_function("window.shown > 0", timeout=LONG_MS)
                found[name].append(page.evaluate("window.shown"))
    return {name: rounded(times) for name, times in found.items()}


def rounded(times: Sequence[float]) -> list[float]:
    """To a tenth of a millisecond, the fastest first."""
    return sorted(round(t, 1) for t in times)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def report(record: dict[str, Any]) -> str:
    """A line for each number: the median, and the runs' spread, against its limit."""
    rows = [
        (f"{view}, 256 x 256: {what}", times, LIMITS[what])
        for view, measured in record["views"].items()
        for what, times in measured.items()
    ]
    rows += [
        (f"JupyterLab, 128 x 128: {name}", times, LIMITS["JupyterLab"])
        for name, times in record["lab"].items()
    ]
    return "\n".join(
        f"{name:48} {statistics.median(t):8.1f} ms  ({t[0]:.1f} to {t[-1]:.1f}, limit {limit:g})"
        for name, t, limit in rows
    )


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description="How fast the layout explorer is.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--lab-runs", type=int, default=3)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with chromium() as page:
            views = measure_views(page, folder, runs=options.runs, moves=options.moves)
            browser = page.context.browser
            version = browser.version if browser else ""
        lab = measure_lab(folder, runs=options.lab_runs)
    record = {
        "unit": "ms",
        "machine": machine() | {"chromium": version},
        "views": views,
        "lab": lab,
    }
    options.record.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(report(record))


if __name__ == "__main__":
    main()
