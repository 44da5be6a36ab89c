"""What one version of a kernel changes in another, to be read: HTML for notebooks, and text.

    diff.between(matmul_ladder.step(1), matmul_ladder.step(0))    # a step and the one before
    diff.between(new, old, only=["copy_tile"])                    # one function of theirs

Only code is compared: docstrings and imports are left out. A line that was only
moved to the right or left is shown once, as moved, and not as one line gone and another one new.
In a pair of lines that are alike the parts that differ stand out. Nothing is told by colour
alone: each line has a sign, as in a unified diff, and ">" is a line that moved.

The HTML follows the theme of JupyterLab through its CSS variables and has no ids.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib.resources
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Protocol

CONTEXT = 2
"""How many lines around a change are shown as they were."""
_ALIKE = 0.7
_SIGNS = {"same": " ", "moved": ">", "gone": "-", "new": "+"}
_TOKEN = re.compile(r"\w+|\s+|.")


class Version(Protocol):
    """A step of a ladder, or anything else with a name and source text."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def source(self) -> str:
        """Its code."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a diff.

    Attributes:
      kind: "same", "moved" (only its indentation differs), "gone", "new", or "fold" for lines
        that are not shown.
      text: the line as it is now; for "gone" as it was; for "fold" what is said instead.
      marks: the parts of `text` that its partner does not have, as (start, end).
    """

    kind: str
    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        if self.kind == "fold":
            return f"  ... {self.text}"
        return f"{_SIGNS[self.kind]} {self.text}".rstrip()


@dataclasses.dataclass(frozen=True, repr=False)
class Diff:
    """What `new` changes in `old`; a notebook shows it in colours.

    Attributes:
      old, new: the names of the two.
      lines: what to show, in order.
    """

    old: str
    new: str
    lines: tuple[Line, ...]

    def count(self, kind: str) -> int:
        """How many lines of a kind there are."""
        return sum(line.kind == kind for line in self.lines)

    @property
    def summary(self) -> str:
        """How much changes, in words."""
        counts = (("gone", "gone"), ("new", "new"), ("moved", "only moved"))
        parts = [f"{self.count(kind)} {word}" for kind, word in counts if self.count(kind)]
        return f"lines: {', '.join(parts)}" if parts else "no line changes"

    def __repr__(self) -> str:
        head = f"{self.old} -> {self.new}, {self.summary}"
        return "\n".join([head, *map(str, self.lines)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def html(self) -> str:
        """The diff as a piece of HTML."""
        style = importlib.resources.files(__package__).joinpath("diff.css").read_text("utf-8")
        label = escape(f"What {self.new} changes in {self.old}", quote=True)
        rows = "\n".join(map(_row, self.lines))
        return (
            f'<style>{style}</style>\n<section class="course-diff" tabindex="0" '
            f'aria-label="{label}">\n<h4>{escape(self.old)} → {escape(self.new)}'
            f"<small>{self.summary}</small></h4>\n<ol>\n{rows}\n</ol></section>"
        )


def between(
    new: Version, old: Version, *, only: Sequence[str] = (), context: int = CONTEXT
) -> Diff:
    """What `new` changes in `old`.

    Args:
      new: a version of a kernel: something with a `name` and a `source`.
      old: the version it follows.
      only: names of functions or classes, inner ones too: compare these and nothing else.
      context: how many lines around a change to show.

    Raises:
      ValueError: neither version has a function of a name in `only`.
    """
    pairs = [(code_of(old.source), code_of(new.source))]
    if only:
        pairs = [(_part(old.source, name), _part(new.source, name)) for name in only]
        missing = [name for name, (a, b) in zip(only, pairs, strict=True) if not a and not b]
        if missing:
            raise ValueError(f"neither {old.name} nor {new.name} has a function {missing[0]!r}")
    lines = [line for a, b in pairs for line in _folded(list(_compare(a, b)), context)]
    return Diff(old.name, new.name, tuple(lines))


def _part(source: str, name: str) -> list[str]:
    """The code of the first function or class of a name; nothing if there is none."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and node.name == name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines = source.splitlines()[first - 1 : node.end_lineno]
            return code_of(textwrap.dedent("\n".join(lines)))
    return []


def code_of(source: str) -> list[str]:
    """The lines of a module without its imports and without any docstring."""
    left_out = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) and _is_no_code(node)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    kept = [t for n, t in enumerate(source.splitlines(), 1) if n not in left_out]
    # What was around the lines left out is now several empty lines, or one below a head.
    code = [
        t
        for i, t in enumerate(kept)
        if t.strip() or (i and kept[i - 1].strip()[-1:] not in ("", ":"))
    ]
    return code[next((i for i, t in enumerate(code) if t.strip()), 0) :]


def _is_no_code(node: ast.Import | ast.ImportFrom | ast.Expr) -> bool:
    """Whether a statement is an import, or nothing but text, as a docstring is."""
    if not isinstance(node, ast.Expr):
        return True
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _compare(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    """All lines of both, in order."""
    matcher = difflib.SequenceMatcher(
        None, [s.strip() for s in old], [s.strip() for s in new], autojunk=False
    )
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(old[i1:i2], new[j1:j2], strict=True)
            yield from (Line("same" if a == b else "moved", b) for a, b in pairs)
        else:
            yield from _changed(old[i1:i2], new[j1:j2])


def _changed(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    """Lines that were replaced; those that have a partner next to each other."""
    partners = dict(_partners(old, new))
    done = 0
    for i, line in enumerate(old):
        if i not in partners:
            yield Line("gone", line)
            continue
        j = partners[i]
        yield from (Line("new", text) for text in new[done:j])
        gone, come = _marks(line, new[j])
        yield Line("gone", line, gone)
        yield Line("new", new[j], come)
        done = j + 1
    yield from (Line("new", text) for text in new[done:])


def _partners(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of lines that are alike, in order."""
    after = 0
    for i, line in enumerate(old):
        scores = [(_likeness(line, new[j]), j) for j in range(after, len(new))]
        best, j = max(scores, key=lambda s: (s[0], -s[1]), default=(0.0, 0))
        if best >= _ALIKE:
            yield i, j
            after = j + 1


def _likeness(a: str, b: str) -> float:
    a, b = a.strip(), b.strip()
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() if a and b else 0.0


def _marks(old: str, new: str) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The parts of two lines that differ, word by word, without their indentation."""
    indents = [len(s) - len(s.lstrip()) for s in (old, new)]
    words = [_TOKEN.findall(s.lstrip()) for s in (old, new)]
    gone, come = [], []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(
        None, words[0], words[1], autojunk=False
    ).get_opcodes():
        if tag != "equal":
            gone.append(_span(words[0], i1, i2, indents[0]))
            come.append(_span(words[1], j1, j2, indents[1]))
    return tuple(s for s in gone if s[0] < s[1]), tuple(s for s in come if s[0] < s[1])


def _span(words: Sequence[str], start: int, end: int, indent: int) -> tuple[int, int]:
    before = indent + sum(map(len, words[:start]))
    return before, before + sum(map(len, words[start:end]))


def _folded(lines: Sequence[Line], context: int) -> Iterator[Line]:
    """The lines near a change; what lies between is one line that says how much that is."""
    changed = [i for i, line in enumerate(lines) if line.kind in ("gone", "new")]
    shown = {j for i in changed for j in range(i - context, i + context + 1)}
    hidden: list[Line] = []
    for i, line in enumerate(lines):
        if i in shown:
            yield from _fold(hidden)
            hidden = []
            yield line
        else:
            hidden.append(line)
    yield from _fold(hidden)


def _fold(hidden: Sequence[Line]) -> Iterator[Line]:
    if 0 < len(hidden) <= 2:
        yield from hidden
    elif hidden:
        moved = all(line.kind == "moved" for line in hidden if line.text.strip())
        how = "only moved" if moved else "as before"
        yield Line("fold", f"{len(hidden)} lines {how}{_where(hidden)}")


def _where(hidden: Iterable[Line]) -> str:
    """The function in which the lines after the fold stand, if it began in the fold."""
    heads = [re.match(r"\s*(?:def|class) (\w+)", line.text) for line in hidden]
    names = [head[1] for head in heads if head]
    return f", up to {names[-1]}" if names else ""


def _row(line: Line) -> str:
    if line.kind == "fold":
        return f'<li class="fold">⋯ {escape(line.text)}</li>'
    css = "" if line.kind == "same" else f' class="{line.kind}"'
    return f"<li{css}><code>{_SIGNS[line.kind]} {_marked(line)}</code></li>"


def _marked(line: Line) -> str:
    parts, done = [], 0
    for start, end in line.marks:
        parts += [escape(line.text[done:start]), f"<mark>{escape(line.text[start:end])}</mark>"]
        done = end
    return "".join([*parts, escape(line.text[done:])])
