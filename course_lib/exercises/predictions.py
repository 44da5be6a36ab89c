"""Predict, then run: a short answer is noted before a run, and compared with what the run gave.

    predict("transforms.bank-degree", 8)                     # in one cell
    reveal("transforms.bank-degree", report.banks.degree)    # in a later one, after the run

In the learner's notebook every answer is `...`, "not answered yet", and the notebook
runs to its end all the same. Several parts have names:
`predict("start_here.ends", first=0, last=31)`. What can be an answer, and when it is
right, is said in `answers`.

What was answered when a question was first revealed is kept with the learner's
progress: an answer that is changed later is said to be late, and does not count.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.diagnostics import CourseError
from course_lib.exercises.answers import KINDS, Number, kind, plain, same, shown
from course_lib.exercises.records import Outcome, note_prediction, predictions

Choices = Sequence[Any] | Mapping[str, Sequence[Any]]

_ID = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9]+(-[a-z0-9]+)*")
_WHOLE = ""  # the name of the only part of a question without named parts


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of a question as it is revealed: what the run gave, and the answer or `...`."""

    name: str
    given: Any
    answer: Any
    within: float | None

    @property
    def right(self) -> bool:
        return self.answer is not ... and same(self.given, self.answer, self.within)

    @property
    def outcome(self) -> Outcome:
        return Outcome(_text(self.answer), self.right)


_answers: dict[str, dict[str, Any]] = {}  # question -> part -> answer, as plain data


def predict(question: str, *answer: Any, choices: Choices | None = None, **parts: Any) -> None:
    """Notes your answer to a question, before the run that shows the right one.

    It tells nothing: `reveal`, after the run, does. An answer of `...` is none.

    Args:
      question: the question's id, such as "transforms.bank-degree".
      answer: your answer, if the question has one part.
      choices: the answers to choose from, if there are such: for every part, or by its name.
      parts: your answers by the part's name, if the question has several.

    Raises:
      CourseError: `question` is not a question's id. Whatever else is wrong is printed, and
        the answer is not noted.
    """
    _check_id("predict", question)
    _answers.pop(question, None)
    try:
        read = _read(answer, parts, choices)
    except ValueError as error:
        print(f"Not noted: {error}.")
        return
    _answers[question] = {name: value for name, value in read.items() if value is not ...}
    print(_receipt(question, read, choices))


def reveal(
    question: str,
    *given: Any,
    within: float | Mapping[str, float] | None = None,
    **parts: Any,
) -> None:
    """Prints what the run gave, and whether that was predicted: a line for each part.

    Numbers have to be equal, up to what their own type rounds away, or `within` a
    tolerance; see `answers.same`.

    Args:
      question: the id that `predict` was given.
      given: what the run gave, if the question has one part.
      within: how far off a number may be and still count, relative to what the run gave:
        0.2 is 20 %. For every part, or by its name.
      parts: what the run gave by the part's name, if the question has several.

    Raises:
      CourseError: `question` is not a question's id, or a value is nothing that can be
        predicted.
    """
    _check_id("reveal", question)
    if len(given) + bool(parts) != 1:
        raise CourseError(f'reveal("{question}", ...) takes one value, or several by name.')
    answers = _answers.get(question, {})
    values = {**({_WHOLE: given[0]} if given else {}), **parts}
    shown_parts = [
        _Part(name, _given(question, value), answers.get(name, ...), _option(within, name))
        for name, value in values.items()
    ]
    first = note_prediction(question, {p.name: p.outcome for p in shown_parts})
    for part in shown_parts:
        print(_verdict(question, part, first[part.name]))


def _check_id(verb: str, question: object) -> None:
    if not isinstance(question, str) or not _ID.fullmatch(question):
        raise CourseError(
            f'{verb} takes the question\'s id first, such as "transforms.bank-degree"; '
            f"{question!r} is none."
        )


def _option(option: Any, name: str) -> Any:
    """An option of one part: it is given for all of them, or by name."""
    return option.get(name) if isinstance(option, Mapping) else option


def _text(answer: Any) -> str:
    return "" if answer is ... else shown(answer)


# --- before the run ------------------------------------------------------------------------------


def _read(
    whole: Sequence[Any], parts: Mapping[str, Any], choices: Choices | None
) -> dict[str, Any]:
    """The answer by part, as plain data; a part without one is `...`.

    Raises:
      ValueError: it is no answer; the message says why.
    """
    if not whole and not parts:
        raise ValueError(f"there is no answer behind the question's id. It is {KINDS}")
    if len(whole) > 1:
        raise ValueError("a question has one answer, in brackets if it is several values: (1, 2)")
    if whole and parts:
        raise ValueError("either every part of an answer has its name in front of it, or none has")
    given = {**({_WHOLE: whole[0]} if whole else {}), **parts}
    return {name: _read_part(name, value, _option(choices, name)) for name, value in given.items()}


def _read_part(name: str, value: Any, offered: Sequence[Any] | None) -> Any:
    if value is ...:
        return ...
    what = f"the answer to {name}" if name else "the answer"
    try:
        answer = plain(value)
    except TypeError as error:
        raise ValueError(f"{what} is {error}. It should be {KINDS}") from None
    wrong = _not_offered(answer, [plain(c) for c in offered]) if offered else []
    if offered and wrong:
        raise ValueError(f"{what} is {shown(wrong[0])}, and the choices are {_listed(offered)}")
    return answer


def _not_offered(answer: Any, offered: Sequence[Any]) -> list[Any]:
    """The values of an answer that are not among the choices."""
    if any(same(choice, answer) for choice in offered):
        return []
    values = list(answer) if isinstance(answer, tuple | frozenset) else [answer]
    return [v for v in values if not any(same(choice, v) for choice in offered)]


def _receipt(question: str, read: Mapping[str, Any], choices: Choices | None) -> str:
    """The line that `predict` prints about an answer that it could read."""
    waiting = [name for name, value in read.items() if value is ...]
    done = [
        f"{name}={shown(value)}" if name else shown(value)
        for name, value in read.items()
        if value is not ...
    ]
    if not done:
        return f"Your prediction? {_how_to_answer(waiting, choices)}"
    late = ", after a run has shown it: it does not count" if _is_late(question) else ""
    if waiting:
        return f"Noted {', '.join(done)}{late}. Still open: {', '.join(waiting)}."
    return f"Noted {', '.join(done)}{late}. Run the next cell."


def _how_to_answer(waiting: Sequence[str], choices: Choices | None) -> str:
    place = "every ..." if len(waiting) > 1 else "the ..."
    how = f"Write it in place of {place} and run this cell again."
    if not choices:
        return how
    if not isinstance(choices, Mapping):
        return f"{how} Choose from {_listed(choices)}."
    offers = "; ".join(f"for {name} from {_listed(offered)}" for name, offered in choices.items())
    return f"{how} Choose {offers}."


def _listed(offered: Sequence[Any]) -> str:
    return ", ".join(shown(plain(choice)) for choice in offered)


def _is_late(question: str) -> bool:
    """Whether an answer is not the one that stood there when a run first revealed it."""
    try:
        first = predictions().get(question, {})
    except CourseError:  # progress that cannot be read is no reason to refuse a prediction
        return False
    return any(
        name in first and first[name].answer != _text(answer)
        for name, answer in _answers[question].items()
    )


# --- after the run -------------------------------------------------------------------------------


def _given(question: str, value: Any) -> Any:
    try:
        return plain(value)
    except TypeError as error:
        raise CourseError(
            f'reveal("{question}", ...) got {error}. What can be predicted is {KINDS}.'
        ) from None


def _verdict(question: str, part: _Part, first: Outcome) -> str:
    """The line that `reveal` prints about a part; `authoring.predictions` knows its form."""
    name = question.partition(".")[2] + (f", {part.name}" if part.name else "")
    given, answer = _shown_given(part), _text(part.answer)
    head = f"Prediction {name}: the run gives {given}"
    if not answer:
        return f"{head}. You made no prediction."
    if first.answer != answer:
        said = "you said so" if part.right else f"you said {answer}"
        return f"{head}; {said} only after a run had shown it."
    if part.right:
        return f"{head}, as you predicted{_near(part, given, answer)}."
    return f"{head}. You predicted {answer}{_why_wrong(part)}."


def _shown_given(part: _Part) -> str:
    """What the run gave as text: of an estimate no more digits than it takes to judge it."""
    if isinstance(part.given, Number) and part.within and part.given.value % 1:
        return f"{part.given.value:.3g}"
    return shown(part.given)


def _near(part: _Part, given: str, answer: str) -> str:
    if not isinstance(part.given, Number) or part.within is None or answer == given:
        return ""
    return f" ({answer} is within {100 * part.within:g} %)"


def _why_wrong(part: _Part) -> str:
    got, wanted = kind(part.answer), kind(part.given)
    if got != wanted:
        return f", which is {got}; the question is about {wanted}"
    if isinstance(part.given, Number) and part.within is not None:
        return f", off by more than {100 * part.within:g} %"
    return ""
