"""The Mojo programs of the chapters, read from their sources."""

from __future__ import annotations

import re
from pathlib import Path

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
MAGIC = "%%mojo_gpu"
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"^:id:\s*(\S+)", re.MULTILINE)


def programs(folder: Path = SOLUTIONS) -> list[tuple[str, str]]:
    """(chapter/cell, program) of every cell that the magic compiles and may run, in order."""
    found = []
    for chapter in sorted(folder.glob("2[0-9]_*.md")):
        for match in _CELL.finditer(chapter.read_text(encoding="utf-8")):
            options, source = _split(match["body"])
            if source.startswith(MAGIC):
                line, _, program = source.partition("\n")
                if "--no-run" not in line:
                    name = _ID.search(options)
                    assert name is not None, f"a cell of {chapter.name} has no id"
                    found.append((f"{chapter.stem}/{name[1]}", program))
    return found


def _split(body: str) -> tuple[str, str]:
    """A cell's options, which come first, and its text."""
    lines = body.split("\n")
    count = next((i for i, line in enumerate(lines) if not line.startswith(":")), len(lines))
    return "\n".join(lines[:count]), "\n".join(lines[count:]).strip("\n") + "\n"
