"""A page with one widget on it and no Python behind: what a widget does on the client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anywidget

# What anywidget gives a view, without a kernel: values, change events, nothing to save to.
_MODEL = """
class Model {
  constructor(state) { this.state = state; this.handlers = {}; }
  get(name) { return this.state[name]; }
  set(name, value) {
    if (this.state[name] === value) return;
    this.state[name] = value;
    for (const handler of this.handlers[`change:${name}`] ?? []) handler();
  }
  on(event, handler) { (this.handlers[event] ??= []).push(handler); }
  off(event, handler) {
    this.handlers[event] = (this.handlers[event] ?? []).filter((h) => h !== handler);
  }
  save_changes() {}
}
"""


def write(widget: anywidget.AnyWidget, folder: Path) -> str:
    """Writes the page into `folder`; its `file:` URL. The page has `window.model`.

    `window.first_draw_ms` is how long it took from the data to the first picture.
    """
    state: dict[str, Any] = {
        name: getattr(widget, name)
        for name in widget.traits(sync=True)
        if not name.startswith("_") and name not in ("comm", "layout", "tabbable", "tooltip")
    }
    view = str(widget._esm).replace("export default", "const view =")
    page = folder / "page.html"
    page.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>widget</title>"
        "<style>body { margin: 0; background: Canvas; color-scheme: light dark; }"
        f"{widget._css}</style></head><body><main></main>"
        f"<script type='module'>{view}\n{_MODEL}\n"
        f"window.model = new Model({json.dumps(state)});\n"
        "const started = performance.now();\n"
        "window.close_view = view.render({ model, el: document.querySelector('main') });\n"
        "document.querySelector('canvas')?.getContext('2d').getImageData(0, 0, 1, 1);\n"
        "window.first_draw_ms = performance.now() - started;"
        "</script></body></html>",
        encoding="utf-8",
    )
    return page.as_uri()
