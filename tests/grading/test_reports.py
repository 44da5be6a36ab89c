"""Reports: complete, escaped, the same each time, and without anything that is not a student's."""

from __future__ import annotations

import base64
import csv
import dataclasses
import datetime
import io
import json
import random
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course_lib.diagnostics import CourseError
from course_lib.grading import overrides, reports, similarity
from course_lib.grading.feedback import CellRun, Run
from course_lib.grading.flags import differing_outputs, introspection, says_correct
from course_lib.grading.marking import ask
from course_lib.grading.model import Late, Merged, Problem, Rubric, SourceCell, read_rubric
from course_lib.grading.pages import fault_words, kind_of
from course_lib.grading.records import ChapterRecord, ExerciseRecord, StudentRecord
from course_lib.grading.release import Release
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.skeletons import ABOUT_HINTS
from course_lib.grading.tasks import Options, Sheet, Task, grade, packed
from course_lib.grading.totals import total
from tests.grading.classroom import CHAPTER, TRIPLE, release, solutions

EVIL = '=HYPERLINK("x")<script>alert(1)</script>\x07\ud83d'.encode("utf-8", "replace").decode()
DEADLINE = datetime.datetime(2026, 5, 4, 12, 0, tzinfo=datetime.UTC)
RING = "asynchronous_copies.ring_copy"


def record(
    name: str = "Ada", points: float = 1.0, received: str = "", source: str = "", **more: object
) -> StudentRecord:
    verdict = "right" if points == 1 else "wrong"
    answer = ExerciseRecord(
        TRIPLE, points, 1.0, verdict, "" if points == 1 else "value", source=source,
        words=() if points == 1 else (f"Element [0, 3] is wrong. {EVIL}",),
        private=("hidden: wanted 1.25",), hints=(EVIL,), passed=1, cases=3,
    )  # fmt: skip
    other = ExerciseRecord(RING, 0.0, 2.0, "not-done", "not-done")
    run = Run((CellRun(EVIL, False, EVIL, ""), CellRun("setup", True)), 3, "its process ended")
    chapter = ChapterRecord(
        CHAPTER, (answer, other), run, (Problem("missing-cell", EVIL),), (f"flag {EVIL}",), received
    )
    return StudentRecord(name, "key", (chapter,), **more)  # type: ignore[arg-type]


def with_late(**late: object) -> Release:
    rubric = Rubric(late=Late(DEADLINE, **late))  # type: ignore[arg-type]
    return dataclasses.replace(release(), rubric=rubric)


def rows(out: Path) -> list[dict[str, str]]:
    text = (out / "grades.csv").read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def pages(out: Path) -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in out.rglob("*.html")}


def test_all_reports_are_written(tmp_path: Path) -> None:
    reports.write([record("Ada"), record("王芳", 0.0)], release(), tmp_path)
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {
        "grades.csv", "index.html", "students", "report.json", "junit.xml", "overrides.toml",
        "stamp.json",
    }  # fmt: skip
    assert [r["student"] for r in rows(tmp_path)] == ["Ada", "王芳"]
    assert rows(tmp_path)[0][TRIPLE] == "1"
    assert rows(tmp_path)[0]["percent"] == "33.3"
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [s.get("failures") for s in suites] == ["0", "1"]
    assert len(list((tmp_path / "students").iterdir())) == 2


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    class_ = [record("Ada"), record("Bob", 0.0)]
    for folder in ("a", "b"):
        reports.write(class_, release(), tmp_path / folder)
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file() and path.name != "stamp.json":
            assert (
                path.read_bytes()
                == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
            )


def test_what_a_student_wrote_is_never_markup(tmp_path: Path) -> None:
    reports.write([record(EVIL, 0.0, source=EVIL)], release(), tmp_path)
    for text in pages(tmp_path).values():
        assert "<script" not in text
        assert "\x07" not in text
        assert "default-src 'none'" in text
    [row] = rows(tmp_path)
    assert row["student"].startswith("'=HYPERLINK")
    ElementTree.parse(tmp_path / "junit.xml")
    assert all("/" not in p.name for p in (tmp_path / "students").iterdir())


@pytest.mark.parametrize(
    ("text", "stays"), [("half \ud83d \udc00", ""), ("whole \U0001f600", "\U0001f600")]
)
def test_half_a_character_spoils_no_report(tmp_path: Path, text: str, stays: str) -> None:
    """A student's process can write such into its results; no file can hold it."""
    evil = record("Eve", 0.0, source=text)
    [chapter] = evil.chapters
    answer = dataclasses.replace(
        chapter.answers[0], words=(text,), finding=(text,), flags=(text,), private=(text,)
    )
    run = Run((CellRun(text, False, text, text),), 1, text)
    chapter = dataclasses.replace(
        chapter,
        answers=(answer,),
        run=run,
        flags=(text,),
        problems=(Problem("x", text),),
        file=text,
    )
    class_ = [dataclasses.replace(evil, chapters=(chapter,), failed=text), record("Ada")]
    totals = reports.write(class_, release(), tmp_path)
    assert [t.points for t in totals] == [1.0, 0.0]
    [page] = [t for n, t in pages(tmp_path).items() if n.startswith("Eve")]
    assert stays in page
    json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    ElementTree.parse(tmp_path / "junit.xml")


def test_what_turns_text_around_is_not_in_a_page(tmp_path: Path) -> None:
    reports.write([record("Eve", 0.0, source="x = 1 \u202e2 \x9b31m \u2066z")], release(), tmp_path)
    assert not any(c in text for text in pages(tmp_path).values() for c in "\u202e\u2066\x9b")
    reports.write([record("Ada", 0.0, source="שלום ‏می‌خواهم")], release(), tmp_path)
    assert any("שלום ‏می‌خواهم" in text for text in pages(tmp_path).values())


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("=1+1", True), ("\uff1d1+1", True), (" @SUM(1)", True), ("\uff0b1", True), ("\t=1", True),
     ("Ada = Bob", False), ("王芳", False), ("李-小龙", False)],
)  # fmt: skip
def test_no_name_is_a_formula(tmp_path: Path, name: str, quoted: bool) -> None:
    reports.write([record(name)], release(), tmp_path)
    assert rows(tmp_path)[0]["student"] == (f"'{name}" if quoted else name)


def test_nobody_fills_the_class_page_with_flags(tmp_path: Path) -> None:
    loud, quiet = record("Eve"), record("Ada")
    [chapter] = loud.chapters
    chapter = dataclasses.replace(chapter, flags=tuple(f"{n} {'x' * 10_000}" for n in range(2_000)))
    reports.write([dataclasses.replace(loud, chapters=(chapter,)), quiet], release(), tmp_path)
    page = pages(tmp_path)["index.html"]
    assert "and 1970 more flags" in page
    assert len(page) < 100_000
    assert "flag =HYPERLINK" in page  # of the other one all is there


def test_a_students_page_has_no_flag_and_nothing_hidden(tmp_path: Path) -> None:
    reports.write([record("Ada", 0.0)], release(), tmp_path)
    [page] = [t for n, t in pages(tmp_path).items() if n.startswith("Ada")]
    assert "wanted 1.25" not in page
    assert "flag " not in page
    assert "Element [0, 3] is wrong" in page
    assert "wanted 1.25" not in pages(tmp_path)["index.html"]
    assert "wanted 1.25" in (tmp_path / "report.json").read_text()


def test_pages_fetch_nothing(tmp_path: Path) -> None:
    reports.write([record()], release(), tmp_path)
    for text in pages(tmp_path).values():
        assert "http:" not in text
        assert "https:" not in text
        assert "src=" not in text.replace("default-src", "").replace("style-src", "")


def test_a_name_that_left_has_no_page_any_more(tmp_path: Path) -> None:
    reports.write([record("Ada"), record("Bob")], release(), tmp_path)
    reports.write([record("Ada")], release(), tmp_path)
    assert [n[:3] for n in pages(tmp_path) if n != "index.html"] == ["Ada"]


def test_without_a_sandbox_every_report_says_so(tmp_path: Path) -> None:
    reports.write([record(unsafe=True)], release(), tmp_path)
    assert all("without a sandbox" in text for text in pages(tmp_path).values())
    assert rows(tmp_path)[0]["sandbox"] == "none"
    assert json.loads((tmp_path / "report.json").read_text())["sandbox"] is False
    assert json.loads((tmp_path / "stamp.json").read_text())["sandbox"] is False
    assert "without a sandbox" in (tmp_path / "junit.xml").read_text()


def test_anonymous_reports_name_nobody(tmp_path: Path) -> None:
    class_ = [record("Ada Lovelace", lms_id="123"), record("Bob", 0.0)]
    totals = reports.write(class_, release(), tmp_path, anonymous=True)
    reported = (p for p in tmp_path.iterdir() if p.is_file() and p.name != "overrides.toml")
    written = "".join(p.read_text() for p in reported)
    written += "".join(pages(tmp_path).values()) + "".join(pages(tmp_path))
    assert "Lovelace" not in written
    assert "123" not in written.replace("0123456789", "")
    assert all(t.name.startswith("s-") for t in totals)
    assert "Ada Lovelace" in (tmp_path / ".grading" / "names.tsv").read_text()
    again = reports.write(class_, release(), tmp_path, anonymous=True)
    assert [t.name for t in again] == [t.name for t in totals]


@pytest.mark.parametrize(
    ("received", "days", "points"),
    [
        ("2026-05-04T11:00:00+00:00", 0, 1.0),
        ("2026-05-04T12:59:00+00:00", 0, 1.0),  # within an hour of grace
        ("2026-05-04T13:30:00+00:00", 1, 0.9),
        ("2026-05-04T14:30:00+02:00", 0, 1.0),  # another time zone
        ("2026-05-06T12:00:01+00:00", 3, 0.7),
        ("2026-06-06T12:00:00+00:00", 33, 0.5),
        ("", 0, 1.0),
    ],
)
def test_late_work_costs_what_the_rubric_says(received: str, days: int, points: float) -> None:
    late = Late(DEADLINE, per_day=0.1, at_most=0.5, grace_hours=1)
    summed = total(record(received=received), late, overrides.Overrides())
    assert summed.late_days == days
    assert summed.points == pytest.approx(points)
    assert bool(summed.notes) is bool(days)


def test_what_was_decided_by_hand_stands(tmp_path: Path) -> None:
    (tmp_path / "overrides.toml").write_text(
        f"""
        [manual]
        talk = 5
        [Ada]
        note = "ill until Friday"
        late_days = 0
        points."{RING}" = 1.5
        manual.talk = 4
        """
    )
    late = with_late(per_day=0.5)
    received = "2026-05-07T12:00:00+00:00"
    [ada, bob] = reports.write(
        [record("Ada", received=received), record("Bob", received=received)], late, tmp_path
    )
    assert (ada.points, ada.of) == (1 + 1.5 + 4, 1 + 2 + 5)
    assert (bob.points, bob.late_days) == (0.0, 3)
    assert "ill until Friday" in ada.notes
    assert rows(tmp_path)[0]["talk"] == "4"
    assert "ill until" in (tmp_path / "overrides.toml").read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[Ada]\nmark = 3", "there is no 'mark'"),
        ('[Ada]\npoints."no.such" = 3', "no exercise"),
        ("[Ada]\nmanual.talk = 3", "not listed under"),
        (f'[Ada]\npoints."{TRIPLE}" = "all"', "not a number of points"),
        ('[Ada]\nlate_days = "none"', "not a number of days"),
        ("[Ada", "cannot be read"),
    ],
)
def test_a_slip_in_the_overrides_is_said(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "overrides.toml").write_text(text)
    with pytest.raises(CourseError, match=says):
        reports.write([record()], release(), tmp_path)


def test_a_decision_about_nobody_is_said(tmp_path: Path) -> None:
    (tmp_path / "overrides.toml").write_text('["Ada"]\nnote = "a"\n["Bob"]\nnote = "b"\n')
    decided = overrides.read(tmp_path, exercises=())
    [said] = decided.strangers({"Ada (12)", "Bob"})
    assert "nobody in the class is called 'Ada'" in said
    assert 'Did you mean ["Ada (12)"]?' in said
    assert decided.strangers({"Ada", "Bob"}) == []


def answers(change: str = "") -> dict[str, str]:
    return {name: text + change for name, text in solutions().items()}


def class_of(**sources: str) -> list[StudentRecord]:
    return [record(name, source=source) for name, source in sources.items()]


def test_near_identical_work_is_found_and_other_work_is_not() -> None:
    mine = "\n".join(f"my_name_{n} = x_gmem[{n}] + {n * 7 % 11}  # remark {n}" for n in range(30))
    slightly = mine.replace("my_name_3 ", "your_name_3 ")
    other = "\n".join(f"value{n * n} = jnp.sin(y_smem[{n}, {n}])" for n in range(30))
    flags = similarity.flags_of(class_of(Ada=mine, Bob=slightly, Cyd=other), release())
    assert set(flags) == {"Ada", "Bob"}
    assert "Bob (9" in flags["Ada"][0]


def test_work_without_end_is_compared_in_no_time() -> None:
    rng = random.Random()
    huge = ["".join(rng.choices("abcdefgh \n", k=2_000_000)) for _ in range(2)]
    started = time.process_time()
    flags = similarity.flags_of(class_of(Ada=huge[0], Bob=huge[0], Cyd=huge[1]), release())
    assert time.process_time() - started < 20
    assert set(flags) == {"Ada", "Bob"}


def test_short_answers_are_alike_by_nature() -> None:
    assert similarity.flags_of(class_of(Ada="y = 2 * x", Bob="y = 2 * x"), release()) == {}


def test_the_public_solution_word_for_word_is_found() -> None:
    def handing_in(texts: dict[str, str]) -> StudentRecord:
        done = [ExerciseRecord(e, 1.0, 1.0, "right", source=t) for e, t in texts.items()]
        return StudentRecord("Ada", "key", (ChapterRecord(CHAPTER, tuple(done)),))

    public = similarity.flags_of([handing_in(solutions())], release())
    assert "word for word the public solution" in public["Ada"][0]
    own = {e: t.replace("loaded", "done").replace("slot", "place") for e, t in solutions().items()}
    assert similarity.flags_of([handing_in({e: own[e] for e in list(own)[:2]})], release()) == {}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import inspect", "uses introspection: inspect (cell a, line 1)"),
        ("x = 1\nfrom os import path", "uses files: os (cell a, line 2)"),
        ("import course_lib.exercises.registry", "the course's inside"),
        ("from jax._src import core", "introspection: jax._src"),
        ("().__class__.__subclasses__()", "__subclasses__"),
        ("get_ipython().run_cell('x')", "the notebook: get_ipython"),
        ("eval('1')", "eval"),
        ("from course_lib import compiler as c", "the course's inside: course_lib.compiler"),
        ("from course_lib.compiler import lowering", "the course's inside: course_lib.compiler"),
        ("import jax\n\njax.make_jaxpr = None", "sets jax.make_jaxpr (cell a, line 3)"),
        ("from a import b as c\nc.d.e = 1", "sets c.d.e (cell a, line 2)"),
        ("plgpu.kernel = len", "sets plgpu.kernel"),
        ("del jax.jit", "sets jax.jit"),
        ("setattr(jax, 'jit', None)", "setattr"),
        ("import urllib.request", "network"),
    ],
)
def test_introspection_is_flagged(source: str, says: str) -> None:
    merged = Merged("Ada", CHAPTER, (SourceCell("a", source, exercise=TRIPLE),))
    assert any(says in flag for flag in introspection(merged))


@pytest.mark.parametrize(
    "source",
    [
        *solutions().values(),
        "import math\nclass A:\n    x = 1",
        "from course_lib import check, run\nimport jax\ny = jax.numpy.pi\ny_smem.x = 1",
        "import matplotlib.pyplot as plt\nplt.rcParams['font.size'] = 9\nself.x = np.zeros(3)",
    ],
)
def test_honest_code_is_not(source: str) -> None:
    cells = (
        SourceCell("a", source, exercise=TRIPLE),
        SourceCell("b", "import os", tags=("given",)),
    )
    assert introspection(Merged("Ada", CHAPTER, cells)) == ()


def test_outputs_that_do_not_come_out_again_are_flagged() -> None:
    def stored(text: str) -> dict[str, list[dict[str, object]]]:
        return {"check": [{"output_type": "stream", "text": [text]}]}

    right, wrong = f"{TRIPLE}: correct on 3 shapes.\n", f"{TRIPLE}: wrong values, ...\n"
    assert differing_outputs(stored(right), {"check": wrong}, ["check"])
    assert not differing_outputs(stored(right), {"check": right}, ["check"])
    assert not differing_outputs(stored(wrong), {"check": wrong + "other numbers"}, ["check"])
    assert not differing_outputs({}, {"check": wrong}, ["check"])


@pytest.mark.parametrize(
    ("points", "kind"), [(None, "wrong"), (0.0, "wrong"), (0.5, "part"), (1.0, "right")]
)
def test_a_square_shows_what_was_decided_by_hand(points: float | None, kind: str) -> None:
    given = {} if points is None else {TRIPLE: points}
    decided = overrides.Overrides({"Ada": overrides.Override(points=given)})
    [line, _] = total(record("Ada", 0.0), Late(), decided).lines
    assert kind_of(line) == kind


def test_the_class_page_speaks_of_the_code_and_not_of_yours() -> None:
    assert "the code" in fault_words("exception")
    assert "your" not in fault_words("exception")


def test_what_cannot_be_read_is_to_be_looked_at() -> None:
    broken = Sheet(f"{CHAPTER}.ipynb", base64.b64encode(b"{").decode(), 1, "")
    unknown = Sheet("notes.ipynb", base64.b64encode(b"\xff\xd8").decode(), 2, "")
    task = Task("Ada", "key", (broken, unknown), packed(release()), Options(run=False))
    graded = grade(task, Sandbox(unsafe=True))
    flagged = " ".join(total(graded, Late(), overrides.Overrides()).flags)
    assert f"{CHAPTER}.ipynb cannot be read" in flagged
    assert "notes.ipynb: " in flagged
    [chapter] = graded.chapters
    assert all(p.sentence.startswith(f"{CHAPTER}.ipynb: ") for p in chapter.problems)
    nothing = grade(dataclasses.replace(task, sheets=()), Sandbox(unsafe=True))
    assert total(nothing, Late(), overrides.Overrides()).flags == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("asynchronous_copies.triple: correct on 3 shapes.", True),
        ("mojo_tiles.load: correct [checked: it compiles].", True),
        ("asynchronous_copies.triple: wrong values, correct shapes", False),
    ],
)
def test_what_a_check_says_of_a_right_answer(text: str, said: bool) -> None:
    assert says_correct(text) is said


@pytest.mark.parametrize("line", ["per_day = 10", "at_most = 1.5"])
def test_a_penalty_is_a_share(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rubric.toml"
    path.write_text(f"[late]\n{line}\n", encoding="utf-8")
    with pytest.raises(CourseError, match="a share of the points, from 0 to 1"):
        read_rubric(path)
    path.write_text("[late]\nper_day = 1\nat_most = 0.5\n", encoding="utf-8")
    assert read_rubric(path).late.at_most == 0.5


def test_a_variants_report_says_whose_hints_they_are() -> None:
    rubric = Rubric()
    plain = ask(TRIPLE, "", rubric, seed=1).exercise
    mine = ask(TRIPLE, "factor=5, slots=3", rubric, seed=1).exercise
    assert ABOUT_HINTS not in plain.hints[0]
    assert mine.hints[0].startswith(ABOUT_HINTS)
    assert mine.hints[1:] == plain.hints[1:]
