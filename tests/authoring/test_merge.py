"""A newer chapter comes into the learner's copy, and nothing of the learner's is lost.

A notebook is written here as `{"id": "text"}`: ids that start with "t" are Markdown,
"ex" is an exercise, "check" its check, every other cell is given code.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from course_lib.authoring.merge import issued, merge

STUB = "def f(x):\n    raise NotImplementedError"
BASE = {"title": "# Goal", "setup": "x = 1", "ex": STUB, "check": "check(f)", "use": "print(x)"}


def cell(cell_id: str, text: str) -> NotebookNode:
    kind = "markdown" if cell_id.startswith("t") else "code"
    metadata: dict[str, Any] = {}
    if kind == "code":
        metadata["tags"] = [{"ex": "exercise", "check": "check"}.get(cell_id, "given")]
    if cell_id == "ex":
        metadata["exercise"] = "tiny.f"
    node = {"cell_type": kind, "id": cell_id, "metadata": metadata, "source": text}
    if kind == "code":
        node |= {"execution_count": None, "outputs": []}
    return nbformat.from_dict(node)


def notebook(cells: Mapping[str, str]) -> NotebookNode:
    return nbformat.from_dict(
        {
            "cells": [cell(i, t) for i, t in cells.items()],
            "metadata": {"course": {"chapter": "00_tiny"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def run_all(nb: NotebookNode) -> NotebookNode:
    """The notebook after Run All in JupyterLab, which adds metadata of its own."""
    ran = copy.deepcopy(nb)
    for n, c in enumerate(c for c in ran.cells if c.cell_type == "code"):
        c.execution_count = n + 1
        c.outputs = [
            nbformat.from_dict({"output_type": "stream", "name": "stdout", "text": f"{n}\n"})
        ]
        c.metadata["scrolled"] = True
    ran.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    ran.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    return ran


def merged(
    mine: Mapping[str, str] | NotebookNode,
    new: Mapping[str, str],
    base: Mapping[str, str] | None = BASE,
) -> Any:
    learners = notebook(mine) if not isinstance(mine, NotebookNode) else mine
    return merge(learners, notebook(new), notebook(base) if base is not None else None)


def texts(nb: NotebookNode) -> list[tuple[str, str]]:
    return [(c.id, c.source) for c in nb.cells]


def changed(base: Mapping[str, str], **cells: str) -> dict[str, str]:
    return {**base, **cells}


def without(base: Mapping[str, str], *ids: str) -> dict[str, str]:
    return {i: t for i, t in base.items() if i not in ids}


def inserted(base: Mapping[str, str], after: str, **cells: str) -> dict[str, str]:
    new: dict[str, str] = {}
    for cell_id, text in base.items():
        new[cell_id] = text
        if cell_id == after:
            new |= cells
    return new


def test_nothing_new_changes_nothing() -> None:
    mine = run_all(
        notebook(inserted(changed(BASE, ex="def f(x):\n    return x"), "ex", own="f(1)"))
    )
    result = merged(mine, BASE)
    assert not result.changed
    assert result.notebook == mine
    assert result.sentences == ()


def test_cells_that_the_learner_left_alone_are_updated() -> None:
    new = changed(BASE, title="# A better goal", setup="x = 2")
    result = merged(run_all(notebook(BASE)), new)
    assert result.changed
    assert texts(result.notebook) == list(new.items())
    assert result.sentences == ()


def test_an_updated_cell_has_not_been_run_and_the_others_keep_their_outputs() -> None:
    new = inserted(changed(BASE, setup="x = 2"), "setup", more="x + 1")
    result = merge(run_all(notebook(BASE)), run_all(notebook(new)), notebook(BASE))
    by_id = {c.id: c for c in result.notebook.cells}
    for cell_id in ("setup", "more"):
        assert (by_id[cell_id].outputs, by_id[cell_id].execution_count) == ([], None)
    assert by_id["use"].outputs
    assert by_id["use"].metadata["scrolled"]


def test_an_answer_is_kept() -> None:
    mine = changed(BASE, ex="def f(x):\n    return x + 1")
    result = merged(mine, changed(BASE, title="# New", setup="x = 2"))
    assert texts(result.notebook) == list(changed(mine, title="# New", setup="x = 2").items())


@pytest.mark.parametrize("cell_id", ["ex", "setup", "title"])
def test_where_both_have_changed_a_cell_the_learners_stays_and_the_new_one_is_shown(
    cell_id: str,
) -> None:
    mine = changed(BASE, **{cell_id: "mine"})
    result = merged(mine, changed(BASE, **{cell_id: "new ``` text"}))
    ids = [c.id for c in result.notebook.cells]
    at = ids.index(cell_id)
    note = result.notebook.cells[at + 1]
    assert result.notebook.cells[at].source == "mine"
    assert note.cell_type == "markdown"  # Run All must not put the stub in the answer's place
    assert note.source.startswith(f"> **Newer in the course:** the cell above (`{cell_id}`)")
    assert "new ``` text" in note.source
    assert without(dict(texts(result.notebook)), note.id) == mine
    (sentence,) = result.sentences
    assert cell_id in sentence
    nbformat.validate(result.notebook)


def conflict() -> NotebookNode:
    """A copy with a note: both sides have changed "setup"."""
    return merged(changed(BASE, setup="mine"), changed(BASE, setup="new")).notebook


def test_a_note_is_shown_once() -> None:
    new = changed(BASE, setup="new")
    again = merged(conflict(), new, new)
    assert not again.changed
    assert not merged(conflict(), new, BASE).changed  # as if the new base had not been stored


def test_a_note_that_the_learner_deleted_does_not_come_back() -> None:
    mine, new = changed(BASE, setup="mine"), changed(BASE, setup="new")
    assert not merged(mine, new, new).changed


def test_a_note_goes_when_the_learner_has_taken_the_new_text() -> None:
    mine, new = conflict(), changed(BASE, setup="new")
    mine.cells[1].source = "new"
    assert texts(merged(mine, new, new).notebook) == list(new.items())


def test_a_note_gives_way_to_a_newer_one() -> None:
    result = merged(conflict(), changed(BASE, setup="newest"), changed(BASE, setup="new"))
    notes = [c.source for c in result.notebook.cells if "Newer in the course" in c.source]
    assert len(notes) == 1
    assert "newest" in notes[0]


def test_a_note_that_the_learner_wrote_into_stays() -> None:
    mine, new = conflict(), changed(BASE, setup="new")
    mine.cells[1].source = "new"
    mine.cells[2].source += "\n\nAsk about this."
    assert merged(mine, new, new).notebook.cells[2].source.endswith("Ask about this.")


def test_the_same_change_on_both_sides_is_no_conflict() -> None:
    both = changed(BASE, setup="x = 3")
    result = merged(both, both)
    assert texts(result.notebook) == list(both.items())
    assert result.sentences == ()


def test_cells_of_the_learners_own_stay_where_they_are() -> None:
    mine = {"own1": "# mine", **inserted(BASE, "setup", own2="x + 1", own3="x + 2"), "own4": "end"}
    new = inserted(changed(BASE, setup="x = 2"), "setup", fresh="y = 1")
    assert [i for i, _ in texts(merged(mine, new).notebook)] == [
        "own1", "title", "setup", "own2", "own3", "fresh", "ex", "check", "use", "own4",
    ]  # fmt: skip


def test_new_cells_come_where_the_course_has_them() -> None:
    new = {"t0": "first", **inserted(BASE, "check", t1="between", more="1"), "t2": "last"}
    assert texts(merged(BASE, new).notebook) == list(new.items())


def test_a_cell_that_the_course_removed_goes_if_the_learner_left_it_alone() -> None:
    new = without(BASE, "setup", "title")
    result = merged(BASE, new)
    assert texts(result.notebook) == list(new.items())
    assert result.sentences == ()


def test_a_cell_that_the_course_removed_stays_if_the_learner_changed_it() -> None:
    mine, new = changed(BASE, setup="x = 7"), without(BASE, "setup")
    result = merged(mine, new)
    assert texts(result.notebook) == list(mine.items())
    assert result.sentences == ('cell "setup" is not in the course any more; yours was kept',)
    again = merged(result.notebook, new, new)
    assert not again.changed
    assert again.sentences == ()


def test_a_given_cell_that_the_learner_removed_stays_removed() -> None:
    mine = without(BASE, "title", "setup")
    assert not merged(mine, BASE).changed


def test_a_removed_cell_comes_back_when_the_course_changes_it() -> None:
    result = merged(without(BASE, "setup"), changed(BASE, setup="x = 2"))
    assert texts(result.notebook) == list(changed(BASE, setup="x = 2").items())
    assert result.sentences == ('cell "setup" had been removed and is back',)


@pytest.mark.parametrize("cell_id", ["ex", "check"])
def test_an_exercise_and_its_check_always_come_back(cell_id: str) -> None:
    result = merged(without(BASE, cell_id), BASE)
    assert texts(result.notebook) == list(BASE.items())


def test_the_courses_new_order_is_followed_and_own_cells_go_along() -> None:
    mine = inserted(changed(BASE, ex="mine"), "ex", own="f(1)")
    new = {i: BASE[i] for i in ("title", "use", "ex", "check", "setup")}
    result = merged(mine, new)
    assert [i for i, _ in texts(result.notebook)] == [
        "title", "use", "ex", "own", "check", "setup",
    ]  # fmt: skip
    assert dict(texts(result.notebook)) == mine


def test_the_learners_order_is_left_alone_while_the_courses_stays() -> None:
    order = ["use", "title", "check", "setup", "ex"]
    result = merged({i: BASE[i] for i in order}, changed(BASE, setup="x = 2"))
    assert [i for i, _ in texts(result.notebook)] == order


def test_a_copied_cell_becomes_one_of_the_learners_own() -> None:
    mine = notebook(BASE)
    answer = cell("ex", "def f(x):\n    return x")
    mine.cells.insert(3, answer)  # an untouched original, then a copy with the answer
    result = merged(mine, BASE)
    ids = [c.id for c in result.notebook.cells]
    assert len(set(ids)) == len(ids)
    assert {c.id: c.source for c in result.notebook.cells}["ex"] == answer.source
    assert sorted(c.source for c in result.notebook.cells) == sorted(c.source for c in mine.cells)
    assert not merged(result.notebook, BASE).changed


@pytest.mark.parametrize("lose", ["dropped", "moved", "renamed"])
def test_cells_are_found_again_when_a_program_has_lost_their_ids(lose: str) -> None:
    mine = notebook(inserted(changed(BASE, ex="def f(x):\n    return 5"), "use", own="f(2)"))
    for n, c in enumerate(mine.cells):
        if lose == "moved":
            c.metadata["id"] = c.id
        c.pop("id")
        if lose == "renamed":
            c["id"] = f"colab-{n}"
    result = merged(mine, changed(BASE, setup="x = 2"))
    by_id = dict(texts(result.notebook))
    assert without(by_id, *(set(by_id) - set(BASE))) == changed(
        BASE, setup="x = 2", ex="def f(x):\n    return 5"
    )
    assert [t for i, t in by_id.items() if i not in BASE] == ["f(2)"]
    nbformat.validate(result.notebook)


def test_without_a_base_every_difference_is_the_learners() -> None:
    mine = inserted(changed(BASE, ex="mine", setup="x = 0"), "ex", own="f(1)")
    result = merged(mine, BASE, None)
    kept = [(i, t) for i, t in texts(result.notebook) if not i.startswith("newer-")]
    assert kept == list(mine.items())
    assert len(result.notebook.cells) == len(mine) + 2


def test_a_cell_made_markdown_by_the_learner_counts_as_changed() -> None:
    mine = notebook(BASE)
    mine.cells[4] = cell("title", BASE["use"])
    mine.cells[4]["id"] = "use"
    result = merged(mine, changed(BASE, use="print(x, x)"))
    assert result.notebook.cells[4].cell_type == "markdown"
    assert "print(x, x)" in result.notebook.cells[5].source


def test_tags_follow_the_course_and_other_metadata_is_the_learners() -> None:
    mine = notebook(changed(BASE, use="mine"))
    mine.cells[4].metadata = nbformat.from_dict({"tags": ["given"], "collapsed": True})
    new = notebook(BASE)
    new.cells[4].metadata["tags"] = ["given", "break-it"]
    result = merge(mine, new, notebook(BASE))
    assert result.notebook.cells[4].metadata == {"tags": ["given", "break-it"], "collapsed": True}


def test_a_merge_changes_none_of_its_arguments() -> None:
    mine, new, base = (
        run_all(notebook(changed(BASE, setup="mine"))),
        notebook(changed(BASE, setup="new")),
        notebook(BASE),
    )
    before = copy.deepcopy((mine, new, base))
    merge(mine, new, base)
    assert (mine, new, base) == before


def test_an_issued_notebook_shows_no_answers() -> None:
    nb = run_all(notebook(BASE))
    nb.metadata["course"]["digest"] = "0"
    fresh = issued(nb)
    assert all(c.outputs == [] and c.execution_count is None for c in fresh.cells[1:])
    assert fresh.metadata["course"] == {"chapter": "00_tiny"}
    assert nb.cells[1].outputs


ASKED = {**BASE, "ask": 'predict("tiny.lanes", ..., choices=(16, 32))', "tell": "reveal"}


def test_a_prediction_is_kept() -> None:
    mine = changed(ASKED, ask='predict("tiny.lanes", 32, choices=(16, 32))')
    result = merged(run_all(notebook(mine)), changed(ASKED, title="# New", setup="x = 2"), ASKED)
    assert texts(result.notebook) == list(changed(mine, title="# New", setup="x = 2").items())
    assert result.sentences == ()


def test_a_prediction_is_kept_where_the_question_has_changed_too() -> None:
    mine = changed(ASKED, ask='predict("tiny.lanes", 32, choices=(16, 32))')
    new = changed(ASKED, ask='predict("tiny.lanes", ..., choices=(32, 64))')
    result = merged(mine, new, ASKED)
    kept = dict(texts(result.notebook))
    assert kept["ask"] == mine["ask"]
    assert any("choices=(32, 64)" in text for text in kept.values())
    assert not merged(result.notebook, new, new).changed


def test_a_prediction_is_found_by_its_question_where_the_ids_are_lost() -> None:
    mine = notebook(changed(ASKED, ask='predict("tiny.lanes", 32)  # I think'))
    for own in mine.cells:
        own["id"] = f"lost-{own.id}"
    result = merged(mine, ASKED, ASKED)
    assert dict(texts(result.notebook))["ask"] == 'predict("tiny.lanes", 32)  # I think'
    assert len(result.notebook.cells) == len(ASKED)
