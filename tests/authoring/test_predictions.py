"""Questions before a run: the learner gets no answers, and the source is right or refused."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from course_lib.authoring.notebooks import learners_cells
from course_lib.authoring.predictions import question_of, unanswered, without_outcomes
from course_lib.diagnostics import CourseError
from course_lib.exercises import predict, records, reveal
from tests.authoring import tiny
from tests.authoring.tiny import code, md, read

ASK = 'predict("tiny.lanes", 32)'
TELL = 'lanes = 2 * 16\nreveal("tiny.lanes", lanes)'


def ask(text: str = ASK, *, cell_id: str = "ask", tag: str = "predict") -> str:
    return code(cell_id, text, tags=[tag])


def tell(text: str = TELL, *, cell_id: str = "tell") -> str:
    return code(cell_id, text)


def refused(root: Path, *cells: str) -> str:
    with pytest.raises(CourseError) as caught:
        read(root, *cells)
    return str(caught.value)


# --- what the learner gets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "learners"),
    [
        ('predict("tiny.a", 8)', 'predict("tiny.a", ...)'),
        ('predict("tiny.a", first=128, last=-1)', 'predict("tiny.a", first=..., last=...)'),
        ('predict("tiny.a", (1, {2: [3]}))', 'predict("tiny.a", ...)'),
        ('predict("tiny.a", (8))', 'predict("tiny.a", (...))'),
        (
            'predict("tiny.a", "x", choices=("x", "y"))',
            'predict("tiny.a", ..., choices=("x", "y"))',
        ),
        ("predict('tiny.a', 4 * 32)  # short", "predict('tiny.a', ...)  # short"),
        (
            '# "é" and ü come first\nx = "8"; predict("tiny.ü", "é8", b="ü",\n  c=8)  # é\ny = 8',
            '# "é" and ü come first\nx = "8"; predict("tiny.ü", ..., b=...,\n  c=...)  # é\ny = 8',
        ),
        (
            'predict(\n    "tiny.a",\n    rows=(\n        1,\n        2,\n    ),\n    last=3,\n)',
            'predict(\n    "tiny.a",\n    rows=...,\n    last=...,\n)',
        ),
        ("x = 8", "x = 8"),
        ("other(8)", "other(8)"),
        ("%magic 8", "%magic 8"),
    ],
)
def test_every_answer_becomes_dots_and_the_rest_stays(text: str, learners: str) -> None:
    assert unanswered(text) == learners
    assert unanswered(learners) == learners


def test_only_cells_with_the_tag_lose_their_answers(tmp_path: Path) -> None:
    chapter = read(tmp_path, code("x", "x = 32"), ask(), tell())
    texts = {c.id: c.text for c in learners_cells(chapter)}
    assert texts == {"x": "x = 32", "ask": 'predict("tiny.lanes", ...)', "tell": TELL}


def test_a_cell_is_known_by_its_question() -> None:
    assert question_of('x = 1\npredict("tiny.lanes", ...)') == "tiny.lanes"
    assert question_of(TELL) == question_of("predict(x, 1)") == question_of("!ls") == ""


# --- what reveal prints ---------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], question: str, **parts: object) -> str:
    reveal(question, **parts)
    return capsys.readouterr().out


def stream(text: str, name: str = "stdout") -> nbformat.NotebookNode:
    return nbformat.from_dict({"output_type": "stream", "name": name, "text": text})


def test_what_reveal_says_is_set_aside_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_in_memory", records._Progress())
    monkeypatch.delenv("COURSE_WORKSPACE", raising=False)
    unmade = printed(capsys, "tiny.a-1", first=1, last="x")
    predict("tiny.b", first=1, last=2)
    capsys.readouterr()
    made = printed(capsys, "tiny.b", first=1, last="x")
    late = printed(capsys, "tiny.a-1", first=1, last="x")
    for words in (unmade, made, late):
        assert len(words.splitlines()) == 2
        assert without_outcomes([stream(words)]) == []
        kept = without_outcomes([stream(f"before\n{words}after\n"), stream(words, "stderr")])
        assert [o["text"] for o in kept] == ["before\nafter\n", words]


def test_other_words_about_predictions_stay() -> None:
    outputs = [stream("Prediction is hard: the run gives up.\n"), stream("Prediction a: 4\n")]
    assert without_outcomes(outputs) == outputs


# --- the rules ------------------------------------------------------------------------------------


def test_a_question_and_its_answer_are_taken(tmp_path: Path) -> None:
    parts = 'predict("tiny.ends", first=0, last=31)'
    told = (
        'ends = (0, 31)\nfor _ in range(1):\n    reveal("tiny.ends", first=ends[0], last=ends[1])'
    )
    estimate = 'reveal("tiny.time-1", lanes.t, within=0.2)'
    read(
        tmp_path,
        md("question", "**Predict.** How many?"),
        ask(),
        ask(parts, cell_id="ask2"),
        ask('predict("tiny.time-1", 3.5, choices=(3.5, 7))', cell_id="ask3"),
        tell(),
        tell(told, cell_id="tell2"),
        tell(estimate, cell_id="tell3"),
    )


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (
            [ask(tag="given"), tell()],
            'the cell "ask" calls predict(...): give it the tag "predict"',
        ),
        ([ask("x = 1")], "it calls predict(...) exactly once"),
        ([ask(f"{ASK}\n{ASK}"), tell()], "it calls predict(...) exactly once"),
        ([ask(f"if True:\n    {ASK}"), tell()], "and not inside anything else"),
        ([ask(f"x = {ASK}"), tell()], "and not inside anything else"),
        ([ask('predict("other.lanes", 32)'), tell()], 'bad id of a question "other.lanes"'),
        ([ask('predict("tiny.Lanes", 32)'), tell()], 'bad id of a question "tiny.Lanes"'),
        ([ask('predict("tiny.lanes_2", 32)'), tell()], 'bad id of a question "tiny.lanes_2"'),
        ([ask('predict("lanes", 32)'), tell()], 'bad id of a question "lanes"'),
        ([ask("predict(name, 32)"), tell()], 'bad id of a question ""'),
        ([ask(), ask('predict("tiny.lanes", 16)', cell_id="b"), tell()], 'asked in cell "ask"'),
        ([ask('predict("tiny.lanes")'), tell()], "has no answer"),
        ([ask('predict("tiny.lanes", ...)'), tell()], "the source holds the right one"),
        ([ask('predict("tiny.lanes", (1, ...))'), tell()], "the source holds the right one"),
        ([ask('predict("tiny.lanes", 1, 2)'), tell()], "the answer is one value, or each of its"),
        ([ask('predict("tiny.lanes", 1, a=2)'), tell()], "the answer is one value, or each of its"),
        ([ask('predict("tiny.lanes", *values)'), tell()], "the answer is one value, or each of"),
        ([ask('predict("tiny.lanes", **values)'), tell()], "the answer is one value, or each of"),
        ([ask()], 'no cell below this one calls reveal("tiny.lanes", ...)'),
        ([ask(), tell("reveal(question, lanes)")], 'asks the question "" that is revealed here'),
        ([tell()], 'no cell asks the question "tiny.lanes" that is revealed here'),
        ([tell(), ask()], '"tiny.lanes" is revealed before it is asked'),
        ([ask(f"{ASK}\n{TELL}")], '"tiny.lanes" is revealed before it is asked'),
        ([ask(), tell('reveal("tiny.lanes", a=x)')], "is asked with one value, and is revealed"),
        ([ask(), tell('reveal("tiny.lanes", x, y)')], "is asked with one value, and is revealed"),
        (
            [ask('predict("tiny.lanes", a=1, b=2)'), tell('reveal("tiny.lanes", a=x)')],
            "is asked with a=..., b=..., and is revealed with the same",
        ),
        ([ask(), tell('reveal("tiny.lanes", 32)')], "is written down, not taken from a run"),
        ([ask(), tell('reveal("tiny.lanes", (4 * 8, "x"))')], "is written down, not taken from a"),
        (
            [ask('predict("tiny.lanes", a=1)'), tell('reveal("tiny.lanes", a=1)')],
            'the value of a of "tiny.lanes" is written down',
        ),
        ([ask(tag="predict, given"), tell()], 'a cell is only one of "given", "predict"'),
    ],
)
def test_what_would_give_an_answer_away_or_ask_in_vain_is_refused(
    tmp_path: Path, cells: list[str], says: str
) -> None:
    assert says in refused(tmp_path, *cells)


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        ([md("q", "**Predict.** How many?"), ask(), tell()], True),
        ([md("q", "**Think first.** How many?"), tell("x = 1")], True),
        ([md("q", "To *predict* is hard."), tell("x = 1")], True),
        ([md("q", "**Predict.** How many?"), tell("x = 1")], False),
        ([md("q", "Then.\n\n**Predict** it."), md("r", "So?"), ask(), tell()], False),
        ([ask(), tell(), md("q", "**Predict.** And now?")], False),
    ],
)
def test_prose_that_says_predict_is_followed_by_the_cell(
    tmp_path: Path, cells: list[str], right: bool
) -> None:
    if right:
        read(tmp_path, *cells)
    else:
        assert "**Think first.**" in refused(tmp_path, *cells)


def test_parts_may_be_revealed_all_at_once(tmp_path: Path) -> None:
    """Whether they are those that were asked for shows when the chapter is built."""
    read(tmp_path, ask('predict("tiny.ends", a=1, b=2)'), tell('reveal("tiny.ends", **ends)'))


def test_a_problem_has_the_line_of_the_call(tmp_path: Path) -> None:
    cells = [ask(f"# a comment\n\n{ASK.replace('tiny', 'other')}"), tell("x = 1")]
    path = tiny.write(tmp_path, *cells)
    message = refused(tmp_path, *cells).splitlines()[0]
    line = int(message.split("line ")[1].split(":")[0])
    assert path.read_text().splitlines()[line - 1].startswith("predict(")
