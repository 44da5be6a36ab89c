"""A kernel's source beside its instructions: HTML for notebooks, and the same as plain text.

The HTML follows the theme of JupyterLab through its CSS variables, loads
nothing from outside, and has no ids, so that several views can share a page and
one kernel's view is the same at every run.
"""

from __future__ import annotations

import importlib.resources
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from course_lib.compiler.compiled import Compiled
from course_lib.compiler.listing import KINDS, Instruction
from course_lib.compiler.source import Excerpt, excerpts
from course_lib.diagnostics import Location

LANGUAGES = ("sass", "ptx")
_TEXT_WIDTH = 56
_MAX_NAMES = 4


class View:
    """What `Compiled.show` displays.

    Args:
      compiled: the kernel.
      language: the listing to begin with, "sass" or "ptx".
    """

    def __init__(self, compiled: Compiled, language: str = "sass"):
        if language not in LANGUAGES:
            raise ValueError(f'language is {language!r}; it can be "sass" or "ptx"')
        self._compiled = compiled
        self._language = language
        self._excerpts = excerpts(compiled.source_map)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        """The source lines with what became of each, for export and for screens without HTML."""
        lines = [repr(self._compiled)]
        for excerpt in self._excerpts:
            lines += ["", f"{excerpt.title}: line, source, instructions of {self._language}"]
            lines += self._text_rows(excerpt)
        return "\n".join(lines)

    def html(self) -> str:
        """The view as a piece of HTML."""
        code = self._compiled
        resources = importlib.resources.files(__package__)
        style = resources.joinpath("view.css").read_text("utf-8")
        events = _events(resources.joinpath("view.js").read_text("utf-8"))
        label = escape(f"Source and instructions, compiled for {code.arch}", quote=True)
        parts = [
            f"<style>{style}</style>",
            f'<section class="course-code" aria-label="{label}" {events}>',
            f"<p><strong>Compiled for {escape(code.arch)}.</strong></p>",
            f"<ul>{''.join(f'<li>{escape(str(k))}</li>' for k in code.kernels)}</ul>",
            *(f"<p>{escape(note)}</p>" for note in code.notes),
            self._controls(),
            '<div class="panes">',
            f'<div class="source" tabindex="0" role="group" aria-label="Python source">'
            f"{''.join(map(self._source, self._excerpts))}</div>",
            *(self._listing(language) for language in LANGUAGES),
            "</div>",
            self._layouts(),
            "</section>",
        ]
        return "\n".join(parts)

    def _controls(self) -> str:
        languages = "".join(
            f'<label><input type="radio" name="language" value="{name}"'
            f"{' checked' if name == self._language else ''}> {name.upper()}</label>"
            for name in LANGUAGES
        )
        kinds = "".join(
            f'<label class="{_css(kind)}"><input type="checkbox" value="{_css(kind)}" checked> '
            f"{kind}</label>"
            for kind in (*KINDS, "other")
        )
        return (
            '<form onsubmit="return false">'
            f"<fieldset><legend>Listing</legend>{languages}</fieldset>"
            f"<fieldset><legend>Show</legend>{kinds}</fieldset>"
            '<label>Search <input type="search" placeholder="HGMMA"></label>'
            '<output aria-live="polite"></output>'
            "</form>"
        )

    def _source(self, excerpt: Excerpt) -> str:
        places = {w.line: w for w in self._compiled.source_map if w.file == excerpt.file}
        rows = []
        for number, text in enumerate(excerpt.lines, excerpt.first):
            head, label = f"<li><span>{number}</span>", f"Line {number}: show its instructions"
            if number in places:
                button = f'<button type="button" aria-label="{label}">{number}</button>'
                head = f'<li data-l="{self._key(places[number])}">{button}'
            rows.append(f"{head}<code>{escape(text)}</code></li>")
        return f"<h4>{escape(excerpt.title)}</h4><ol>{''.join(rows)}</ol>"

    def _listing(self, language: str) -> str:
        rows = []
        for i in self._of(language):
            kind = f"<b>{i.kind}</b> " if i.kind else ""
            place = f' data-l="{self._key(i.where)}"' if i.where else ""
            text = escape(i.text.rstrip(";"))
            css = f' class="{_css(i.kind)}"' if i.kind else ""
            rows.append(f"<li{css}{place}>{kind}{text}</li>")
        name = language.upper()
        return (
            f'<div class="listing {language}" tabindex="0" role="group" '
            f'aria-label="{name} instructions"><h4>{name}</h4><ol>{"".join(rows)}</ol></div>'
        )

    def _layouts(self) -> str:
        rows = "".join(
            f"<tr><td>{d.kind}</td><td>{escape(d.name)} <code>{escape(d.array)}</code></td>"
            f"<td>{escape(str(d.where or ''))}</td><td>{escape(d.layout)}</td>"
            f"<td>{escape(d.words)}</td></tr>"
            for d in self._compiled.layouts
        )
        head = "".join(f"<th>{h}</th>" for h in ("Where", "What", "Line", "Layout", "In words"))
        return (
            f"<details><summary>What layout inference decided</summary>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details>"
        )

    def _text_rows(self, excerpt: Excerpt) -> Iterator[str]:
        by_line: dict[int, list[Instruction]] = {}
        for i in self._of(self._language):
            if i.where is not None and i.where.file == excerpt.file:
                by_line.setdefault(i.where.line, []).append(i)
        for number, text in enumerate(excerpt.lines, excerpt.first):
            if not min(by_line, default=0) <= number <= max(by_line, default=0):
                continue
            found = by_line.get(number, [])
            row = f"{number:5} {text[:_TEXT_WIDTH]:{_TEXT_WIDTH}}"
            yield f"{row} {len(found):4}  {_names(found)}".rstrip() if found else row.rstrip()

    def _of(self, language: str) -> Iterable[Instruction]:
        return (i for i in self._compiled.instructions() if i.language == language)

    def _key(self, where: Location) -> str:
        """A short name of a line, the same in both panes."""
        files = [e.file for e in self._excerpts]
        return f"{files.index(where.file)}.{where.line}"


def _names(instructions: Iterable[Instruction]) -> str:
    """The picked-out instructions, most frequent first: "4x HGMMA.64x128x16.F32"."""
    counts = Counter(i.opcode for i in instructions if i.kind)
    names = [f"{n}x {opcode}" for opcode, n in counts.most_common(_MAX_NAMES)]
    return ", ".join([*names, "..."] if len(counts) > _MAX_NAMES else names)


def _css(kind: str) -> str:
    return kind.replace(" ", "-")


def _events(script: str) -> str:
    """The script as attributes: handlers work in outputs whose script elements do not run."""
    body = escape(" ".join(script.split()), quote=True)
    return " ".join(f'on{event}="{body}"' for event in ("click", "input"))
