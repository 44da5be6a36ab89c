"""Finds work that is nearly the same as another student's, or the same as the public solution.

Only what students wrote themselves is compared: lines that the notebook gave them are left out.
Short right answers are alike by nature, so a pair needs many lines in common to be named.
It is a hint where to look, and says nothing about who wrote what first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from course_lib.authoring.regions import regions
from course_lib.authoring.source import Course, find_sources, read_chapter
from course_lib.grading.records import StudentRecord
from course_lib.grading.release import Release

ALIKE = 0.96  # the share of the text that two have in common
FEWEST_CHARACTERS = 400
MISSING = "Near-identical work was not looked for: that needs rapidfuzz (`make grading`)."
_MOST_NAMED = 4
_MOST_CHARACTERS = 20_000
# A few right lines are everybody's; three long answers that agree to the letter are not.
_FEWEST_ALIKE = 3
_FEWEST_LINES = 5


def flags_of(
    records: Sequence[StudentRecord], release: Release, *, names: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Flags by student, for work that is nearly that of others.

    Args:
      records: the class.
      release: what was given out.
      names: what the report calls each student, where that is not their own name.

    Raises:
      ModuleNotFoundError: rapidfuzz is missing.
    """
    shown = names or {}
    public = dict(_as_the_solution(records, release))
    # who copied the public solution is like all others who did: that is one flag, not many
    texts = {r.student: own_text(r, release) for r in records if r.student not in public}
    alike: dict[str, list[tuple[float, str]]] = {}
    for one, other, share in _pairs(texts):
        alike.setdefault(one, []).append((share, shown.get(other, other)))
        alike.setdefault(other, []).append((share, shown.get(one, one)))
    flags: dict[str, tuple[str, ...]] = {
        student: (_sentence(found),) for student, found in alike.items()
    }
    return flags | {student: (sentence,) for student, sentence in public.items()}


def _pairs(texts: Mapping[str, str]) -> Iterator[tuple[str, str, float]]:
    from rapidfuzz.distance import Indel

    long = {s: t for s, t in texts.items() if len(t) >= FEWEST_CHARACTERS}
    for one, other in itertools.combinations(sorted(long), 2):
        share = Indel.normalized_similarity(long[one], long[other], score_cutoff=ALIKE)
        if share >= ALIKE:
            yield one, other, share


def _sentence(found: Sequence[tuple[float, str]]) -> str:
    best = sorted(found, key=lambda f: (-f[0], f[1]))
    named = ", ".join(f"{name} ({math.floor(share * 100)}%)" for share, name in best[:_MOST_NAMED])
    more = f" and {len(best) - _MOST_NAMED} more" if len(best) > _MOST_NAMED else ""
    return f"nearly the same work as {named}{more}"


def own_text(record: StudentRecord, release: Release) -> str:
    """What a student wrote into the exercises, without the lines that were given."""
    given = {
        line.strip()
        for chapter in release.chapters
        for cell in release.skeletons[chapter].cells
        for line in cell.source.splitlines()
    }
    lines = [line.strip() for a in record.answers for line in a.source.splitlines()]
    own = "\n".join(line for line in lines if line and line not in given)
    return own[:_MOST_CHARACTERS]  # comparing takes time with the square of it


def _as_the_solution(
    records: Sequence[StudentRecord], release: Release
) -> Iterator[tuple[str, str]]:
    """The students whose answers are the course's own, word for word."""
    public = public_answers(release.chapters)
    for record in records:
        same = [
            a.exercise
            for a in record.answers
            if a.exercise in public and all(b in _packed(a.source) for b in public[a.exercise])
        ]
        if len(same) >= _FEWEST_ALIKE:
            yield record.student, f"word for word the public solution: {', '.join(same)}"


def public_answers(chapters: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The regions of some chapters' solutions without white space; only those of some length."""
    answers = {}
    for source in find_sources(Course(), list(chapters)):
        for cell in read_chapter(source).exercises:
            lines = cell.text.splitlines()
            bodies = ["\n".join(lines[r.begin : r.end - 1]) for r in regions(cell.text)]
            if sum(len(b.splitlines()) for b in bodies) >= _FEWEST_LINES:
                answers[cell.exercise] = tuple(map(_packed, bodies))
    return answers


def _packed(text: str) -> str:
    return "".join(text.split())
