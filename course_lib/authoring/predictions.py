"""Questions that are answered before a run: the cells that call `predict`, and those that `reveal`.

    predict("tiny.lanes", 32)                     the source, and the executed record
    predict("tiny.lanes", ...)                    the learner's notebook

The learner gets `...` for every answer, whatever stands behind the question's id but
`choices`; the rest of the cell's text is as the source has it.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from course_lib.authoring.source import Cell, Chapter

TAG = "predict"
Problem = tuple[int, str]  # a line of the chapter's source, and what is wrong there

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MARK = re.compile(r"\*\*predict\b", re.IGNORECASE)
_OUTCOME = re.compile(r"^Prediction [a-z0-9-]+(, \w+)?: the run gives .*\n?", re.MULTILINE)
_OPTIONS = {"predict": {"choices"}, "reveal": {"within"}}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of `predict` or `reveal` in a cell.

    Attributes:
      question: the question's id; "" where it is not written out as the first argument.
      parts: the values by the part's name; a value without a name has the name "".
      unnamed: how many values have no name.
      starred: whether there are values that are not written out one by one (`**values`).
      line: the line of the cell, from 1.
    """

    question: str
    parts: dict[str, ast.expr]
    unnamed: int
    starred: bool
    line: int


def calls(text: str, verb: str) -> list[Call]:
    """The calls of `verb` ("predict" or "reveal") in a cell, top to bottom."""
    found = [n for n in ast.walk(_parse(text)) if _is_call(n, verb)]
    return sorted((_read_call(n, verb) for n in found), key=lambda call: call.line)


def question_of(text: str) -> str:
    """The id of the question that a cell asks, "" if it asks none."""
    return next((call.question for call in calls(text, "predict")), "")


def unanswered(text: str) -> str:
    """A cell that asks, as the learner gets it: `...` for every answer."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = [
        (starts[v.lineno - 1] + v.col_offset, starts[v.end_lineno - 1] + v.end_col_offset)
        for call in calls(text, "predict")
        for v in call.parts.values()
        if v.end_lineno is not None and v.end_col_offset is not None
    ]
    for start, end in sorted(spans, reverse=True):
        data = data[:start] + b"..." + data[end:]
    return data.decode()


def without_outcomes(outputs: Any) -> list[Any]:
    """A cell's outputs without the lines that `reveal` prints: those depend on the answers."""
    kept = []
    for output in outputs:
        if not outcomes([output]):
            kept.append(output)
        elif text := _OUTCOME.sub("", "".join(output["text"])):
            kept.append({**output, "text": text})
    return kept


def outcomes(outputs: Any) -> list[str]:
    """The lines that `reveal` printed among a cell's outputs."""
    return [
        found[0].strip()
        for output in outputs
        if output.get("output_type") == "stream" and output.get("name") == "stdout"
        for found in _OUTCOME.finditer("".join(output["text"]))
    ]


def confirms(outcome: str) -> bool:
    """Whether a line of `reveal` says that the answer was right."""
    return ", as you predicted" in outcome


def problems(chapter: Chapter) -> Iterator[Problem]:
    """What is wrong with a chapter's questions: where they are asked, answered and revealed."""
    asked: dict[str, tuple[Cell, Call]] = {}
    for cell in chapter.code:
        yield from _cell_problems(cell)
        for call in calls(cell.text, "predict"):
            yield from _question_problems(chapter, cell, call)
            if call.question in asked:
                first = asked[call.question][0].id
                yield (
                    cell.line + call.line - 1,
                    f'the question "{call.question}" is asked in cell "{first}" already: '
                    "choose another name",
                )
            elif call.question:
                asked[call.question] = (cell, call)
    yield from _reveal_problems(chapter, asked)
    yield from _mark_problems(chapter)


# --- reading -------------------------------------------------------------------------------------


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def _is_call(node: ast.AST, verb: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == verb


def _read_call(node: ast.Call, verb: str) -> Call:
    first = node.args[0] if node.args else None
    question = first.value if isinstance(first, ast.Constant) else ""
    unnamed = node.args[1:]
    keywords = [k for k in node.keywords if k.arg not in _OPTIONS[verb]]
    starred = any(isinstance(a, ast.Starred) for a in unnamed) or any(not k.arg for k in keywords)
    parts: dict[str, ast.expr] = {"": unnamed[0]} if unnamed else {}
    return Call(
        question=question if isinstance(question, str) else "",
        parts={**parts, **{k.arg: k.value for k in keywords if k.arg}},
        unnamed=len(unnamed),
        starred=starred,
        line=node.lineno,
    )


# --- the rules -----------------------------------------------------------------------------------


def _cell_problems(cell: Cell) -> Iterator[Problem]:
    every = calls(cell.text, "predict")
    body = _parse(cell.text).body
    on_top = [s for s in body if isinstance(s, ast.Expr) and _is_call(s.value, "predict")]
    if TAG not in cell.tags and every:
        yield cell.line, f'the cell "{cell.id}" calls predict(...): give it the tag "{TAG}"'
    if TAG in cell.tags and not len(every) == len(on_top) == 1:
        yield (
            cell.line,
            f'the cell "{cell.id}" has the tag "{TAG}": it calls predict(...) exactly once, and '
            "not inside anything else",
        )


def _question_problems(chapter: Chapter, cell: Cell, call: Call) -> Iterator[Problem]:
    line = cell.line + call.line - 1
    title, _, name = call.question.partition(".")
    if title != chapter.title or not _NAME.fullmatch(name):
        yield (
            line,
            f'bad id of a question "{call.question}": here it is "{chapter.title}.name", written '
            'out, the name in small letters and digits with "-" between its words',
        )
    if call.starred or call.unnamed > 1 or (call.unnamed and len(call.parts) > 1):
        yield line, "the answer is one value, or each of its parts has a name in front of it"
    elif not call.parts:
        yield line, f'the question "{call.question}" has no answer'
    for value in call.parts.values():
        if any(isinstance(n, ast.Constant) and n.value is ... for n in ast.walk(value)):
            yield line, f'"..." is no answer to "{call.question}": the source holds the right one'


def _reveal_problems(chapter: Chapter, asked: dict[str, tuple[Cell, Call]]) -> Iterator[Problem]:
    order = {cell.id: number for number, cell in enumerate(chapter.code)}
    revealed: set[str] = set()
    for cell in chapter.code:
        for call in calls(cell.text, "reveal"):
            line = cell.line + call.line - 1
            if call.question not in asked:
                yield line, f'no cell asks the question "{call.question}" that is revealed here'
                continue
            revealed.add(call.question)
            asking, question = asked[call.question]
            if order[asking.id] >= order[cell.id]:
                yield line, f'"{call.question}" is revealed before it is asked'
            yield from ((line, p) for p in _value_problems(question, call))
    for name, (cell, call) in asked.items():
        if name not in revealed:
            yield (
                cell.line + call.line - 1,
                f'no cell below this one calls reveal("{name}", ...) with what the run gave',
            )


def _value_problems(question: Call, call: Call) -> Iterator[str]:
    unlike = sorted(call.parts) != sorted(question.parts) and not call.starred
    if unlike or call.unnamed > 1:
        wanted = ", ".join(f"{name}=..." for name in question.parts if name) or "one value"
        yield f'"{call.question}" is asked with {wanted}, and is revealed with the same'
    for name, value in call.parts.items():
        if not any(isinstance(n, ast.Name | ast.Attribute) for n in ast.walk(value)):
            what = f"{name} of " if name else ""
            yield f'the value of {what}"{call.question}" is written down, not taken from a run'


def _mark_problems(chapter: Chapter) -> Iterator[Problem]:
    following = [*chapter.cells[1:], None]
    for cell, after in zip(chapter.cells, following, strict=True):
        if cell.kind != "markdown" or not _MARK.search(cell.text):
            continue
        if after is None or TAG not in after.tags:
            yield (
                cell.line,
                f'the cell "{cell.id}" says **Predict.**, so a cell with predict(...) follows it; '
                "a question whose answer is not checked begins with **Think first.**",
            )
