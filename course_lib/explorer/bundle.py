"""Puts a view and the modules it imports into one: a widget's module has no neighbours.

anywidget loads a view from text, where `import ... from "./layouts.mjs"` finds
nothing; a page opened from a file cannot import modules either.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
_IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./([\w.-]+)";\n', re.MULTILINE)


def bundle(name: str) -> str:
    """The text of module `name` of this folder, with what it imports in front of it.

    Modules may import named things from modules of this folder (`import {a} from
    "./b.mjs";`), and their top-level names have to differ.
    """
    parts: list[str] = []
    _collect(name, parts, set())
    return "\n".join(parts)


def _collect(name: str, parts: list[str], done: set[str]) -> None:
    done.add(name)
    text = (FOLDER / name).read_text(encoding="utf-8")
    for needed in _IMPORT.findall(text):
        if needed not in done:
            _collect(needed, parts, done)
    parts.append(_IMPORT.sub("", text))
