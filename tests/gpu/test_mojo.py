"""On a GPU that Mojo supports: the chapters' programs print what their records say, and the
exercises' own answers are right when they are launched.

Without Mojo, `$COURSE_MOJO_PREBUILT` names the programs that were built elsewhere.
"""

from __future__ import annotations

import nbformat
import pytest

from course_lib.authoring import Course
from course_lib.authoring.mojo_cells import MAGICS, program_of
from course_lib.exercises import judge
from course_lib.mojo import answers, records, run_program, running

pytestmark = pytest.mark.gpu

# The stored notebooks, as reading the sources takes packages that a cluster's machine may not have.
CELLS = [
    (f"{path.stem}/{cell.id}", cell)
    for path in sorted(Course().solutions.glob("2*.ipynb"))
    for cell in nbformat.read(path, as_version=4).cells
    if cell.cell_type == "code" and cell.source.startswith(MAGICS[0])
]
RUN = [
    pytest.param(cell.source, id=name)
    for name, cell in CELLS
    if not {"--wrong", "--no-run"} & set(cell.source.partition("\n")[0].split())
    and "nbval-ignore-output" not in cell.metadata.get("tags", ())
]
EXERCISES = [pytest.param(c.source, id=n) for n, c in CELLS if answers.exercise_of(c.source)]


@pytest.fixture(autouse=True)
def _card():
    if running.arch_here() is None:
        pytest.skip("there is no GPU here that Mojo supports")


@pytest.mark.parametrize("cell", RUN)
def test_a_program_prints_what_its_record_says(cell):
    source = program_of(cell + "\n")
    output = run_program(source)
    record = records.load(source)
    assert output is not None
    assert record is not None
    assert output.recorded == "", "it was not run"
    assert output.text == record.output


@pytest.mark.parametrize("cell", EXERCISES)
def test_an_exercise_s_answer_is_right_when_it_is_launched(cell):
    verdict = judge(answers.exercise_of(cell), answers.answer_of(cell + "\n"), native=True)
    assert verdict.ok, str(verdict)
    assert "its launch on" in verdict.checked
