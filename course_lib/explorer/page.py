"""Builds the static page: all views in one file that needs neither a server nor the network.

    python -m course_lib.explorer.page        writes course_lib/explorer/index.html

A page opened from a file cannot import modules, so the modules of each view stand in
the page itself, each view's in a function of its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import FOLDER, bundle
from course_lib.explorer.wave_widget import Waves
from course_lib.layouts.tiling import listed

__all__ = ["PAGE", "address", "build_page", "write_page"]

PAGE = FOLDER / "index.html"

VIEWS = {
    "smem": ("Shared memory", "smem_view.mjs", "smemSpec.state"),
    "registers": ("Registers", "register_view.mjs", "registerSpec.state"),
    "banks": ("Bank conflicts", "bank_view.mjs", "bankSpec.state"),
    "tmem": ("Tensor memory", "tmem_view.mjs", "tmemSpec.state"),
    "pipeline": ("Pipelines", "pipeline_view.mjs", "pipelineSpec.state"),
    "barriers": ("Barriers", "barrier_view.mjs", "barrierSpec.state"),
    "waves": ("Waves of blocks", "waves.mjs", None),
    "schedules": ("Schedules", "schedule_view.mjs", "scheduleSpec.state"),
}
_NOT_STATE = {"comm", "layout", "tabbable", "tooltip"}

_HTML = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Layout explorer</title>
<style>
{css}</style>
</head>
<body>
<header>
<h1>Layout explorer for Pallas:Mosaic GPU</h1>
<p>Where each element lies in shared memory, registers and tensor memory, and what that costs.
The address of this page holds what you set.</p>
<nav aria-label="Views"></nav>
</header>
<main></main>
<script type="module">
{script}</script>
</body>
</html>
"""


def build_page() -> str:
    """The text of the page. The same sources give the same page."""
    css = "".join((FOLDER / name).read_text("utf-8") for name in _STYLES)
    views = ",\n".join(f"{json.dumps(name)}: {_view(*view)}" for name, view in VIEWS.items())
    main = (FOLDER / "page.mjs").read_text("utf-8")
    return _HTML.format(css=css, script=f"const VIEWS = {{\n{views},\n}};\n{main}")


_STYLES = ("page.css", "explorer.css", "waves.css")


def address(view: str = "") -> str:
    """The page's `file:` address, opened at a view, as "smem" or "#smem?columns=128".

    Raises:
      CourseError: there is no such view.
    """
    wanted = view.removeprefix("#")
    if wanted and wanted.split("?")[0] not in VIEWS:
        raise CourseError(f"view {view!r} is none of {listed(VIEWS)}.")
    return PAGE.as_uri() + (f"#{wanted}" if wanted else "")


def write_page(path: Path = PAGE) -> Path:
    """Writes the page; its path."""
    path.write_text(build_page(), encoding="utf-8")
    return path


def _view(title: str, module: str, state: str | None) -> str:
    """A JavaScript expression `{title, render, state}`."""
    text = re.sub(r"^export (?!default)", "", bundle(module), flags=re.MULTILINE)
    body, found = re.subn(r"^export default (\{.*\});$", "", text, flags=re.MULTILINE)
    if found != 1:
        raise ValueError(f"{module} and its imports have {found} default exports instead of one")
    exported = re.search(r"^export default (\{.*\});$", text, flags=re.MULTILINE)
    assert exported is not None
    shown = state or json.dumps(_waves_state())
    return (
        f"(() => {{\n{body}\nreturn {{ title: {json.dumps(title)}, state: {shown}, "
        f"...({exported[1]}) }};\n}})()"
    )


def _waves_state() -> dict[str, object]:
    """What the wave view begins with: the defaults of its widget."""
    return {
        name: trait.default_value
        for name, trait in sorted(Waves.class_traits(sync=True).items())
        if not name.startswith("_") and name not in _NOT_STATE
    }


if __name__ == "__main__":
    print(write_page())
