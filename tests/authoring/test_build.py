"""Notebooks are built by running, stay byte for byte the same, and are known when they are not."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course_lib.authoring import BuildError, build
from course_lib.authoring.source import Course
from tests.authoring import tiny
from tests.authoring.conftest import cells
from tests.authoring.tiny import code

BOTH = ("solutions/00_tiny.ipynb", "notebooks/00_tiny.ipynb")


def stored(course: Course, name: str = BOTH[0]) -> Any:
    return json.loads((course.root / name).read_text())


def text_of(course: Course, cell: str, name: str = BOTH[0]) -> str:
    """What a cell has printed."""
    (found,) = [c for c in stored(course, name)["cells"] if c["id"] == cell]
    return "".join(line for output in found["outputs"] for line in output["text"])


def rebuild(course: Course, **options: Any) -> list[str]:
    """Builds and returns what was said."""
    said: list[str] = []
    build(course=course, registry=tiny.registry, say=said.append, **options)
    return said


def failures(course: Course, **options: Any) -> list[str]:
    """The sentences with which a build or check fails; none if it does not."""
    try:
        rebuild(course, **options)
    except BuildError as error:
        return list(error.sentences)
    return []


def files(course: Course) -> dict[str, bytes]:
    return {name: (course.root / name).read_bytes() for name in BOTH}


def new_course(root: Path, *added: str) -> Course:
    course = tiny.course(root)
    tiny.write(root, *tiny.whole(), *added)
    return course


# --- building ------------------------------------------------------------------------------------


def test_the_solution_is_solved_and_the_learners_notebook_is_not(built: Course) -> None:
    assert text_of(built, "check-double") == "tiny.double is right\n"
    assert text_of(built, "check-double", BOTH[1]) == "tiny.double not done yet\n"
    assert text_of(built, "setup") == text_of(built, "setup", BOTH[1]) == "6\n"


def test_a_notebook_runs_in_this_python_on_the_model_in_its_folder(built: Course) -> None:
    python = hashlib.sha256(sys.executable.encode()).hexdigest()
    for name in BOTH:
        assert text_of(built, "around", name).splitlines() == [
            "model only: 1 cpu",
            f"python: {python}",
            "folder: True",
            "id: around",
        ]


def test_notebooks_are_stored_in_one_form(built: Course) -> None:
    for name in BOTH:
        text = (built.root / name).read_text()
        nb = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
        nbformat.validate(nb)
        counts = [c.execution_count for c in nb.cells if c.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1))
        assert set(nb.metadata) == {"course", "kernelspec", "language_info"}
        assert "version" not in nb.metadata.language_info
        assert all(set(c.metadata) <= {"tags", "exercise"} for c in nb.cells)
        assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"  # noqa: E501  # fmt: skip


def test_building_again_runs_and_writes_nothing(built: Course) -> None:
    before = files(built)
    assert rebuild(built) == []
    assert files(built) == before


def test_a_forced_build_runs_and_gives_the_same_bytes(built: Course) -> None:
    before = files(built)
    said = rebuild(built, force=True)
    assert any("running" in line for line in said)
    assert files(built) == before  # the clock too: what was printed by this very code stays


def test_prose_is_rewritten_without_a_run(built: Course) -> None:
    tiny.write(built.root, tiny.md("title", "# 00 Tiny\n\nAnother goal."), *cells()[1:])
    clock = text_of(built, "clock")
    said = rebuild(built)
    assert said == [f"{name}: written" for name in BOTH]
    assert text_of(built, "clock") == clock
    assert "Another goal." in (built.root / BOTH[1]).read_text()
    assert failures(built, check=True) == []


def test_changed_code_is_run_again(built: Course) -> None:
    tiny.write(built.root, *cells(), code("more", "print(6 * 7)"))
    clock = text_of(built, "clock")
    assert any("running" in line for line in rebuild(built))
    assert text_of(built, "more") == "42\n"
    assert text_of(built, "clock") != clock


def test_a_library_file_that_the_chapter_can_reach_makes_it_run_again(built: Course) -> None:
    (built.library / "other.py").write_text("VALUE = 3\n")
    assert rebuild(built) == []
    (built.library / "tool.py").write_text("VALUE = 3\n")
    assert failures(built, check=True) == [
        f"{name} is out of date, the code that it depends on in course_lib has changed: "
        "run `course build 00`."
        for name in BOTH
    ]
    assert any("running" in line for line in rebuild(built))
    assert failures(built, check=True) == []


def test_only_the_chapters_asked_for_are_built(tmp_path: Path) -> None:
    course = tiny.course(tmp_path)
    tiny.write(tmp_path, tiny.md("title", "# 00"))
    tiny.write(tmp_path, tiny.md("title", "# 01"), name="01_small")
    build(["small"], course=course, say=lambda line: None)
    assert [p.name for p in tmp_path.rglob("*.ipynb")] == ["01_small.ipynb"] * 2


def test_a_notebook_without_a_source_is_removed(built: Course) -> None:
    left = [p.rename(p.with_name("01_gone.ipynb")) for p in map(built.root.joinpath, BOTH)]
    for path in left:
        path.write_text(path.read_text().replace('"00_tiny"', '"01_gone"'))
    assert [s for s in failures(built, check=True) if "01_gone" in s] == [
        "solutions/01_gone.ipynb has no source solutions/01_gone.md: remove it.",
        "notebooks/01_gone.ipynb has no source solutions/01_gone.md: remove it.",
    ]
    rebuild(built)
    assert not any(p.exists() for p in left)


def test_a_notebook_that_no_build_made_is_left_alone(built: Course) -> None:
    mine = built.notebooks / "mine.ipynb"
    mine.write_text("{}")
    wanted = ["notebooks/mine.ipynb has no source solutions/mine.md: remove it."]
    assert failures(built) == failures(built, check=True) == wanted
    assert mine.exists()


# --- what stops a build --------------------------------------------------------------------------


def test_a_cell_that_raises_stops_the_build(tmp_path: Path) -> None:
    course = new_course(tmp_path, code("halve", "def halve(x):\n    return x / 0\n\n\nhalve(6)"))
    (sentence,) = failures(course)
    first, *traceback = sentence.splitlines()
    assert first == ('solutions/00_tiny.ipynb, cell "halve": ZeroDivisionError: division by zero')
    assert any("return x / 0" in line for line in traceback)
    assert not list(tmp_path.rglob("*.ipynb"))


def test_an_error_of_the_course_is_one_sentence(tmp_path: Path) -> None:
    text = "from course_lib.diagnostics import CourseError\n\nraise CourseError('Too big.')"
    (sentence,) = failures(new_course(tmp_path, code("big", text)))
    assert sentence == 'solutions/00_tiny.ipynb, cell "big": CourseError: Too big.'


def test_a_cell_that_takes_too_long_stops_the_build(tmp_path: Path) -> None:
    course = new_course(tmp_path, code("wait", "import time\n\ntime.sleep(60)"))
    (sentence,) = failures(course, cell_timeout_s=1)
    assert sentence == 'solutions/00_tiny.ipynb, cell "wait": no answer within 1 s'


def test_a_kernel_that_dies_stops_the_build(tmp_path: Path) -> None:
    text = "import os\n\nos.write(2, b'Out of luck.')\nos._exit(3)"
    (sentence,) = failures(new_course(tmp_path, code("die", text)))
    assert 'cell "die": the Python that ran it ended' in sentence


def test_an_output_that_depends_on_the_learners_answer_stops_the_build(tmp_path: Path) -> None:
    use = "try:\n    print(double(2))\nexcept NotImplementedError:\n    print('later')"
    (sentence,) = failures(new_course(tmp_path, code("use", use)))
    assert sentence == (
        '00_tiny, cell "use": it prints something else while the exercises are unsolved: a given '
        "cell uses course_lib.kernels, never the learner's function"
    )
    assert not list(tmp_path.rglob("*.ipynb"))


QUESTION = [
    code("verbs", "from course_lib import predict, reveal"),
    code("ask", 'predict("tiny.six", gcd=6, lcm=36, choices=(6, 36))', tags=["predict"]),
    code("tell", 'print("run")\nreveal("tiny.six", gcd=math.gcd(12, 18), lcm=math.lcm(12, 18))'),
]


def test_the_record_has_the_right_predictions_and_the_learner_gets_none(tmp_path: Path) -> None:
    course = new_course(tmp_path, *QUESTION)
    assert failures(course) == failures(course, check=True) == []
    ours, theirs = (cell_named(stored(course, name), "ask")["source"] for name in BOTH)
    assert "".join(ours) == 'predict("tiny.six", gcd=6, lcm=36, choices=(6, 36))'
    assert "".join(theirs) == 'predict("tiny.six", gcd=..., lcm=..., choices=(6, 36))'
    assert text_of(course, "ask").startswith("Noted gcd=6, lcm=36.")
    assert text_of(course, "ask", BOTH[1]).startswith("Your prediction?")
    right, open_ = (text_of(course, "tell", name).splitlines() for name in BOTH)
    assert right[1:] == [
        "Prediction six, gcd: the run gives 6, as you predicted.",
        "Prediction six, lcm: the run gives 36, as you predicted.",
    ]
    assert [line.endswith("You made no prediction.") for line in open_] == [False, True, True]


def test_a_wrong_prediction_in_the_source_stops_the_build(tmp_path: Path) -> None:
    wrong = [cell.replace("lcm=36", "lcm=6") for cell in QUESTION]
    assert failures(new_course(tmp_path, *wrong)) == [
        'solutions/00_tiny.ipynb, cell "tell": the source predicts wrongly. Prediction six, lcm: '
        "the run gives 36. You predicted 6."
    ]


def test_what_is_printed_beside_an_outcome_may_not_depend_on_the_prediction(tmp_path: Path) -> None:
    use = "try:\n    print(double(2))\nexcept NotImplementedError:\n    print('later')"
    mixed = QUESTION[2].replace('print("run")', use)
    (sentence,) = failures(new_course(tmp_path, *QUESTION[:2], mixed))
    assert sentence.startswith('00_tiny, cell "tell": it prints something else')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\n\nprint('careful', file=sys.stderr)", "writes to stderr (careful)"),
        ("import tempfile\n\nprint(tempfile.gettempdir() + '/x')", "a path of this machine"),
    ],
)
def test_an_output_that_no_other_machine_has_stops_the_build(
    tmp_path: Path, text: str, says: str
) -> None:
    (sentence,) = failures(new_course(tmp_path, code("odd", text)))
    assert 'solutions/00_tiny.ipynb, cell "odd": ' in sentence
    assert says in sentence


def test_every_wrong_source_is_reported(tmp_path: Path) -> None:
    course = tiny.course(tmp_path)
    tiny.write(tmp_path, code("", "x = 1"))
    tiny.write(tmp_path, code("", "x = 2"), name="01_small")
    sentences = failures(course)
    assert len(sentences) == 2
    assert all("has no id" in s for s in sentences)


# --- checking ------------------------------------------------------------------------------------


def test_a_fresh_build_passes_the_check(built: Course) -> None:
    before = files(built)
    assert failures(built, check=True) == []
    assert files(built) == before


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Changes a stored notebook and writes it in the stored form."""
    nb = json.loads(path.read_text())
    change(nb)
    path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def cell_named(nb: Any, cell_id: str) -> Any:
    (found,) = [c for c in nb["cells"] if c["id"] == cell_id]
    return found


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda nb: cell_named(nb, "title").update(source=["# 00 Mine"]),
            '{} was edited by hand (cell "title"): edit solutions/00_tiny.md instead and run '
            "`course build 00`.",
        ),
        (lambda nb: cell_named(nb, "double")["source"].append("\n# more"), '(cell "double")'),
        (lambda nb: cell_named(nb, "setup")["metadata"].update(tags=["check"]), '(cell "setup")'),
        (lambda nb: nb["cells"].pop(), '(cell "library")'),
        (lambda nb: nb["cells"].append({**nb["cells"][0], "id": "own"}), '(cell "own")'),
        (lambda nb: nb["cells"].insert(0, nb["cells"].pop()), '(cell "title")'),
        (
            lambda nb: cell_named(nb, "setup")["outputs"][0].update(text=["7\n"]),
            "{} was edited by hand (its outputs): run `course build 00`.",
        ),
        (lambda nb: cell_named(nb, "setup").update(outputs=[]), "(its outputs)"),
        (lambda nb: cell_named(nb, "setup").update(execution_count=None), "(its outputs)"),
        (lambda nb: nb["metadata"].update(widgets={}), "(not in the stored form)"),
        (lambda nb: nb["metadata"]["course"].update(source="0"), "is out of date, its source"),
        (lambda nb: nb["metadata"].pop("course"), "is out of date"),
        (lambda nb: nb.pop("cells"), "cannot be read as a notebook"),
    ],
)
def test_a_notebook_edited_by_hand_fails_the_check_and_is_mended_by_a_build(
    built: Course, name: str, change: Callable[[Any], object], says: str
) -> None:
    edit(built.root / name, change)
    (sentence,) = failures(built, check=True)
    assert sentence.startswith(name)
    assert says.format(name) in sentence


def test_another_form_of_the_same_notebook_fails_the_check(built: Course) -> None:
    path = built.root / BOTH[0]
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert "not in the stored form" in failures(built, check=True)[0]
    rebuild(built)
    assert failures(built, check=True) == []


def test_a_missing_notebook_fails_the_check(built: Course) -> None:
    (built.root / BOTH[1]).unlink()
    assert failures(built, check=True) == [f"{BOTH[1]} is missing: run `course build 00`."]


def test_a_changed_source_fails_the_check(built: Course) -> None:
    tiny.write(built.root, *cells(), tiny.md("end", "The end."))
    assert failures(built, check=True) == [
        f"{name} is out of date, its source, solutions/00_tiny.md, has changed: "
        "run `course build 00`."
        for name in BOTH
    ]


def test_edited_outputs_are_run_again(built: Course) -> None:
    before = files(built)[BOTH[1]]
    edit(
        built.root / BOTH[1],
        lambda nb: cell_named(nb, "setup")["outputs"][0].update(text=["7\n"]),
    )
    rebuild(built)
    assert text_of(built, "setup", BOTH[1]) == "6\n"
    after = files(built)[BOTH[1]]
    assert len(after) == len(before)
