"""The reports as pages: `index.html` for the class, one page for each student.

A page is one file without scripts, fonts or pictures from elsewhere; it follows the reader's
light or dark setting. Whatever a student wrote goes through `_e`: it is text, never markup.
"""

from __future__ import annotations

import html
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from course_lib.exercises import registry
from course_lib.exercises.verdict import FAULTS
from course_lib.grading.model import VERDICTS
from course_lib.grading.records import ChapterRecord, ExerciseRecord
from course_lib.grading.totals import Line, Total

UNSAFE = (
    "Graded without a sandbox (--unsafe-no-sandbox): students' code ran with the grader's own "
    "rights. Whatever it wrote or read, it could."
)
BY_HAND = "This could not be graded by machine. It will be graded by hand."
_BINS = 10
_STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2128; --soft: #59636e; --line: #d1d9e0;
  --card: #f6f8fa; --good: #1a7f37; --part: #9a6700; --bad: #c93c37; --bar: #3b76c4;
  --code: #eef1f4; }
@media (prefers-color-scheme: dark) { :root { --bg: #15181d; --fg: #e3e7ec; --soft: #9aa5b1;
  --line: #363c45; --card: #1d2128; --good: #57c271; --part: #d9a634; --bad: #f0736c;
  --bar: #6ea3e8; --code: #22272e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; background: var(--bg);
  color: var(--fg); font: 16px/1.5 system-ui, "Noto Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .4rem 0; } a { color: inherit; } .soft { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem 1rem; min-width: 8rem; } .tile b { display: block; font-size: 1.35rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .94rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.mark { display: inline-block; width: .85rem; height: .85rem; border-radius: 3px; margin: 0 2px;
  border: 1.5px solid currentColor; } .right { color: var(--good); } .part { color: var(--part); }
.wrong { color: var(--bad); } .open { color: var(--soft); }
.mark.right { background: currentColor; } .mark.part { background: linear-gradient(to top right,
  currentColor 50%, transparent 50%); }
.mark.wrong { background: linear-gradient(to top right, transparent 42%, currentColor 42% 58%,
  transparent 58%); }
.card { border: 1px solid var(--line); border-left: 4px solid; border-radius: 8px;
  padding: .8rem 1rem; margin: .8rem 0; } .card > * { color: var(--fg); }
.head { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .25rem 1rem; }
.badge { font-weight: 600; }
pre { background: var(--code); border-radius: 6px; padding: .6rem .8rem;
  overflow-x: auto; font: 13.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; margin: .5rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; } code { font: .92em ui-monospace,
  "DejaVu Sans Mono", monospace; background: var(--code); border-radius: 4px; padding: .05em .3em; }
.warn { border: 2px solid var(--bad); border-radius: 8px; padding: .6rem 1rem; margin: 1rem 0; }
svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--fg); font-size: 12px; }
svg .bar { fill: var(--bar); } svg line { stroke: var(--line); } ul { padding-left: 1.2rem; }
@media (max-width: 760px) { th { white-space: normal; } th, td { padding: .35rem .3rem; }
  td code { background: none; padding: 0; } }
td ul { margin: 0; }
summary { cursor: pointer; color: var(--soft); } li { margin: .15rem 0; overflow-wrap: anywhere; }
"""


# Controls, halves of characters, and what turns around the text behind it.
_NO_TEXT = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _e(text: object) -> str:
    return html.escape(_NO_TEXT.sub("", str(text)), quote=True)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _page(title: str, body: Iterable[str], *, unsafe: bool) -> str:
    warning = f'<p class="warn" role="alert">{_e(UNSAFE)}</p>' if unsafe else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>{_e(title)}</title><style>{_STYLE}</style></head>\n<body>\n{warning}\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


# --- the class -----------------------------------------------------------------------------------


def class_page(
    totals: Sequence[Total], *, title: str, files: Mapping[str, str], remarks: Sequence[str] = ()
) -> str:
    """The page of a class.

    Args:
      totals: the students.
      title: what was graded.
      files: the page of each student, by name, relative to this one.
      remarks: sentences about the whole run.
    """
    body = [
        f"<h1>{_e(title)}</h1>",
        *(f'<p class="soft">{_e(r)}</p>' for r in remarks),
        _tiles(totals),
        "<h2>Distribution</h2>",
        _distribution(totals),
        "<h2>Exercises, hardest first</h2>",
        _exercises(totals),
        *_to_look_at(totals, files),
        "<h2>Students</h2>",
        _LEGEND,
        _students(totals, files),
    ]
    return _page(title, body, unsafe=any(t.record.unsafe for t in totals))


_LEGEND = (
    '<p class="soft"><span class="mark right"></span> right <span class="mark part"></span> part '
    'of the points <span class="mark wrong"></span> wrong <span class="mark open"></span> not done'
    "</p>"
)


def _tiles(totals: Sequence[Total]) -> str:
    shares = [_share(t) for t in totals]
    facts = {
        "students": str(len(totals)),
        "mean": f"{statistics.mean(shares):.0%}" if shares else "-",
        "median": f"{statistics.median(shares):.0%}" if shares else "-",
        "full marks": str(sum(s >= 1 for s in shares)),
        "late": str(sum(t.late_days > 0 for t in totals)),
        "flagged": str(sum(bool(t.flags) for t in totals)),
    }
    tiles = (f'<div class="tile"><b>{_e(v)}</b>{_e(k)}</div>' for k, v in facts.items())
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _share(total: Total) -> float:
    return total.points / total.of if total.of else 0.0


def _distribution(totals: Sequence[Total]) -> str:
    """A histogram of the shares of the points, ten bars; full marks are in the last."""
    counts = [0] * _BINS
    for t in totals:
        counts[min(_BINS - 1, max(0, math.floor(_share(t) * _BINS)))] += 1
    most, width, height = max(counts, default=1) or 1, 620, 150
    step = width / _BINS
    parts = [f'<line x1="0" y1="{height}" x2="{width}" y2="{height}"/>']
    for n, count in enumerate(counts):
        tall = (height - 22) * count / most
        x, y = n * step + 4, height - tall
        if count:
            parts.append(
                f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{step - 8:.1f}" '
                f'height="{tall:.1f}" rx="2"/>'
                f'<text x="{n * step + step / 2:.1f}" y="{y - 5:.1f}" text-anchor="middle">'
                f"{count}</text>"
            )
        middle = f"{n * step + step / 2:.1f}"
        parts.append(
            f'<text x="{middle}" y="{height + 16}" text-anchor="middle">'
            f"{n * 10}-{n * 10 + 10}%</text>"
        )
    said = ", ".join(f"{c} from {n * 10} to {n * 10 + 10}%" for n, c in enumerate(counts) if c)
    return (
        f'<svg viewBox="0 0 {width} {height + 22}" width="{width}" role="img" '
        f'aria-label="Students by share of the points: {said}">{"".join(parts)}</svg>'
    )


def _exercises(totals: Sequence[Total]) -> str:
    by_exercise: dict[str, list[Line]] = {}
    for t in totals:
        for line in t.lines:
            by_exercise.setdefault(line.answer.exercise, []).append(line)
    rows = sorted(by_exercise.items(), key=lambda item: (_mean_share(item[1]), item[0]))
    card = any(x.answer.card for lines in by_exercise.values() for x in lines)
    cells = [
        f"<tr><td><code>{_e(name).replace('.', '.<wbr>')}</code></td>"
        f'<td class="n">{_mean_share(lines):.0%}</td>'
        f'<td class="n">{sum(x.answer.verdict == "right" for x in lines)}</td>'
        f'<td class="n">{sum(x.answer.verdict == "not-done" for x in lines)}</td>'
        f"<td>{_e(_commonest(lines))}</td>{_card_cell(lines) if card else ''}</tr>"
        for name, lines in rows
    ]
    head = (
        '<tr><th>exercise</th><th class="n">of the points</th><th class="n">right</th>'
        '<th class="n">not done</th><th>what went wrong most often</th>'
        f"{'<th>on the card</th>' if card else ''}</tr>"
    )
    return f'<div class="wide"><table>{head}{"".join(cells)}</table></div>'


def _card_cell(lines: Sequence[Line]) -> str:
    """Of the answers that are right, how many the card agrees with: "12 right, 1 not"."""
    kinds = Counter(
        {"right": "right", "not-run": "not run"}.get(x.answer.card.kind, "not right")
        for x in lines
        if x.answer.card
    )
    said = [f"{kinds[k]} {k}" for k in ("right", "not right", "not run") if kinds[k]]
    return f"<td>{_e(', '.join(said))}</td>"


def _mean_share(lines: Sequence[Line]) -> float:
    of = sum(x.answer.of for x in lines)
    return sum(x.answer.points for x in lines) / of if of else 0.0


def _commonest(lines: Sequence[Line]) -> str:
    faults = Counter(
        x.answer.fault for x in lines if x.answer.fault and x.answer.verdict != "not-done"
    )
    ranked = sorted(faults.items(), key=lambda item: (-item[1], item[0]))[:2]
    return ", ".join(f"{fault_words(fault)} ({count})" for fault, count in ranked)


def fault_words(fault: str) -> str:
    """A fault in words."""
    return FAULTS.get(fault, fault.replace("-", " ")).replace(" your code", " the code")


def _to_look_at(totals: Sequence[Total], files: Mapping[str, str]) -> list[str]:
    rows = []
    for t in totals:
        said = [*([t.record.failed] if t.record.failed else []), *t.flags]
        if said:
            items = "".join(f"<li>{_e(flag)}</li>" for flag in said)
            rows.append(f"<tr><td>{_link(t, files)}</td><td><ul>{items}</ul></td></tr>")
    if not rows:
        return []
    return [
        "<h2>To look at</h2>",
        '<p class="soft">Flags are hints for you: no mark depends on one, and students do not see '
        "them.</p>",
        f'<div class="wide"><table>{"".join(rows)}</table></div>',
    ]


def _link(total: Total, files: Mapping[str, str]) -> str:
    return f'<a href="{_e(files[total.name])}">{_e(total.name)}</a>'


def _students(totals: Sequence[Total], files: Mapping[str, str]) -> str:
    rows = []
    for t in totals:
        marks = "".join(
            f'<span class="mark {kind_of(x)}" role="img" title="{_e(_hover(x))}" '
            f'aria-label="{_e(_hover(x))}"></span>'
            for x in t.lines
        )
        late = f"{_n(t.late_days)} d" if t.late_days else ""
        rows.append(
            f"<tr><td>{_link(t, files)}</td><td>{marks}</td>"
            f'<td class="n">{_n(t.points)} / {_n(t.of)}</td><td class="n">{_share(t):.0%}</td>'
            f'<td class="n">{late}</td><td class="n">{len(t.flags) or ""}</td></tr>'
        )
    head = (
        '<tr><th>student</th><th>exercises</th><th class="n">points</th><th class="n">%</th>'
        '<th class="n">late</th><th class="n">flags</th></tr>'
    )
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _hover(line: Line) -> str:
    a = line.answer
    return f"{a.exercise}: {_n(line.points)} of {_n(a.of)}, {VERDICTS.get(a.verdict, a.verdict)}"


def kind_of(line: Line) -> str:
    """The class that a verdict is drawn with: right, part, wrong, open."""
    if line.by_hand:
        share = line.points / line.answer.of if line.answer.of else 1.0
        return "right" if share >= 1 else "part" if share > 0 else "wrong"
    if line.answer.verdict == "right":
        return "right"
    if line.answer.verdict == "not-done":
        return "open"
    return "part" if line.answer.points > 0 else "wrong"


# --- a student -----------------------------------------------------------------------------------


def student_page(total: Total, *, title: str) -> str:
    """The page of one student: theirs to read, without flags and without anything hidden."""
    body = [
        f"<h1>{_e(total.name)}</h1>",
        f'<p class="soft">{_e(title)}</p>',
        '<div class="tiles"><div class="tile">'
        f"<b>{_n(total.points)} of {_n(total.of)}</b>points</div>"
        f'<div class="tile"><b>{sum(x.answer.verdict == "right" for x in total.lines)} of '
        f"{len(total.lines)}</b>exercises right</div></div>",
        *_said(total.notes),
        *_said([p.sentence for p in total.record.problems]),
    ]
    if total.record.failed:
        body.append(f'<p class="warn">{BY_HAND}</p>')
    lines = {x.answer.exercise: x for x in total.lines}
    for chapter in total.record.chapters:
        body += _chapter(chapter, lines)
    return _page(f"{total.name}: {title}", body, unsafe=total.record.unsafe)


def _said(sentences: Sequence[str]) -> list[str]:
    items = "".join(f"<li>{_e(s)}</li>" for s in sentences)
    return [f"<ul>{items}</ul>"] if items else []


def _chapter(chapter: ChapterRecord, lines: Mapping[str, Line]) -> list[str]:
    return [
        f"<h2>{_e(chapter.chapter.replace('_', ' '))}</h2>",
        *_said([p.sentence for p in chapter.problems]),
        *(_card(lines[a.exercise]) for a in chapter.answers),
        *_run(chapter),
    ]


def _card(line: Line) -> str:
    answer, kind = line.answer, kind_of(line)
    exercise = registry.get(answer.exercise)
    verdict = VERDICTS.get(answer.verdict, answer.verdict)
    points = f"{_n(line.points)} of {_n(answer.of)}"
    parts = [
        '<div class="head">',
        f"<h3>{_e(exercise.title)} <code>{_e(answer.exercise)}</code></h3>",
        f'<span><span class="badge {kind}">{_e(verdict)}</span> · {points} points</span></div>',
        *(f"<p>{_e(w)}</p>" for w in answer.words),
        *([f"<p>{_e(answer.first_difference)}</p>"] if _is_new(answer) else []),
        *([f"<pre>{_e(chr(10).join(answer.finding))}</pre>"] if answer.finding else []),
        *(_hint(n, h) for n, h in enumerate(answer.hints, 1) if answer.verdict != "right"),
        *_cases(answer),
        *_on_card(answer),
        *_code(answer),
    ]  # fmt: skip
    return f'<div class="card {kind}">{"".join(parts)}</div>'


def _cases(answer: ExerciseRecord) -> list[str]:
    if not answer.cases or answer.verdict in ("right", "not-done"):
        return []
    said = f"{answer.passed} of {answer.cases} hidden cases were right, without an error."
    return [f'<p class="soft">{said}</p>']


def _on_card(answer: ExerciseRecord) -> list[str]:
    """What a card gave for an answer that is right, where one was asked for."""
    if answer.card is None:
        return []
    more = "" if answer.card.kind in ("right", "not-run") else " Your mark does not depend on it."
    return [f'<p class="soft">{_e(answer.card)}{more}</p>']


def _is_new(answer: ExerciseRecord) -> bool:
    return bool(answer.first_difference) and answer.first_difference not in answer.words


def _hint(number: int, text: str) -> str:
    return f"<p><b>Hint {number}.</b></p><pre>{_e(text)}</pre>"


def _code(answer: ExerciseRecord) -> list[str]:
    if not answer.source or answer.verdict == "not-done":
        return []
    return [f"<details><summary>your code</summary><pre>{_e(answer.source)}</pre></details>"]


def _run(chapter: ChapterRecord) -> list[str]:
    """How the notebook ran, with the cells that raised something."""
    run = chapter.run
    if run is None:
        return []
    raised = [c for c in run.cells if c.error]
    sentence = f"When your notebook was run again, {len(run.cells) - len(raised)} of {run.of} code "
    sentence += "cells ran without an error."
    if run.stopped:
        sentence += f" Then {run.stopped}."
    items = "".join(
        f"<li>cell <code>{_e(c.cell)}</code>: {_e(c.error[:300])}</li>" for c in raised[:10]
    )
    return [f'<p class="soft">{_e(sentence)}</p>', f"<ul>{items}</ul>" if items else ""]
