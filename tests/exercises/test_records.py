"""Progress: kept in the workspace, in memory elsewhere, safe from other notebooks and bad files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.diagnostics import CourseError
from course_lib.exercises import records as kept
from course_lib.exercises.records import note_check, note_hint, progress_table, records

ID = "practice.double"
ROOT = Path(__file__).parents[2]


def file_of(workspace: Path) -> Path:
    return workspace / ".course" / "progress.json"


def test_a_workspace_is_found_from_a_folder_inside_it(workspace, monkeypatch):
    inside = workspace / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    note_check(ID, fault="value")
    assert json.loads(file_of(workspace).read_text())["exercises"] == {
        ID: {"tries": 1, "hints": 0, "done": False}
    }


def test_the_variable_names_the_workspace(no_workspace, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("COURSE_WORKSPACE", str(elsewhere))
    note_check(ID, fault="")
    assert file_of(elsewhere).exists()
    assert not (no_workspace / ".course").exists()


def test_outside_of_a_workspace_nothing_is_written(no_workspace):
    note_check(ID, fault="")
    assert note_hint(ID, of=3) == 1
    assert records()[ID].done
    assert list(no_workspace.iterdir()) == []


def test_on_the_model_only_nothing_is_written(workspace, monkeypatch):
    monkeypatch.setenv("COURSE_MODEL_ONLY", "1")
    note_check(ID, fault="")
    assert records()[ID].done
    assert not file_of(workspace).exists()


def test_tries_are_counted_and_an_untouched_stub_is_none(workspace):
    for fault in ("not-done", "value", "race", "", "not-done"):
        note_check(ID, fault=fault)
    assert records()[ID] == kept.Record(tries=3, hints=0, done=True)


def test_what_was_done_stays_done(workspace):
    note_check(ID, fault="")
    note_check(ID, fault="race")
    assert records()[ID].state == "done"


def test_hints_come_one_after_the_other_and_the_last_stays(workspace):
    assert [note_hint(ID, of=3) for _ in range(5)] == [1, 2, 3, 3, 3]


def test_states():
    assert kept.Record().state == "open"
    assert kept.Record(tries=1).state == "tried"
    assert kept.Record(hints=1).state == "open"
    assert kept.Record(tries=1, done=True).state == "done"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b'{"version": 99, "exercises": {}}',
        b'{"version": 1}',
        b'{"version": 1, "exercises": []}',
        b'{"version": 1, "exercises": {"a.b": {"tries": "3", "hints": 0, "done": false}}}',
        b'{"version": 1, "exercises": {"a.b": {"tries": -1, "hints": 0, "done": false}}}',
        b'{"version": 1, "exercises": {"a.b": {"tries": 1, "hints": 0, "done": 1}}}',
        b'{"version": 1, "exercises": {"a.b": null}}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_cannot_be_read_is_kept_aside_with_a_sentence(workspace, capsys, content):
    file = file_of(workspace)
    file.write_bytes(content)
    note_check(ID, fault="")
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "progress.unreadable-1.json" in said
    assert (file.parent / "progress.unreadable-1.json").read_bytes() == content
    assert records()[ID].done


def test_an_earlier_file_kept_aside_is_not_overwritten(workspace, capsys):
    for content in (b"first", b"second"):
        file_of(workspace).write_bytes(content)
        records()
    kept = [file_of(workspace).with_name(f"progress.unreadable-{n}.json") for n in (1, 2)]
    assert [k.read_bytes() for k in kept] == [b"first", b"second"]


def test_a_good_file_is_not_touched_by_reading(workspace, capsys):
    note_check(ID, fault="")
    before = file_of(workspace).stat()
    assert records()[ID].done
    assert file_of(workspace).stat().st_mtime_ns == before.st_mtime_ns
    assert capsys.readouterr().out == ""


def test_a_folder_that_cannot_be_written_costs_a_sentence_and_not_the_count(
    no_workspace, monkeypatch, capsys
):
    (no_workspace / ".course").write_text("a file where the folder should be")
    monkeypatch.setenv("COURSE_WORKSPACE", str(no_workspace))
    assert [note_hint(ID, of=3) for _ in range(2)] == [1, 2]
    assert capsys.readouterr().out.count("Your progress could not be saved") == 2


def test_a_file_that_may_not_be_read_is_a_sentence_and_is_left_alone(workspace, monkeypatch):
    note_check(ID, fault="")
    content = file_of(workspace).read_bytes()

    def refuse(self, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(CourseError, match="Permission denied"):
        records()
    note_check(ID, fault="value")
    assert file_of(workspace).read_bytes() == content


def test_a_write_that_fails_leaves_the_old_file_whole(workspace, monkeypatch, capsys):
    note_check(ID, fault="")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    note_check(ID, fault="value")
    assert "No space left on device" in capsys.readouterr().out
    assert records()[ID].tries == 1
    assert sorted(p.name for p in file_of(workspace).parent.iterdir()) == [
        "progress.json",
        "progress.lock",
    ]


def test_notebooks_that_write_at_once_lose_nothing(workspace):
    script = (
        "import sys; from course_lib.exercises.records import note_check\n"
        "for _ in range(25): note_check(sys.argv[1], fault='value'); "
        "note_check('practice.shared', fault='value')"
    )
    env = {**os.environ, "COURSE_WORKSPACE": str(workspace), "PYTHONPATH": str(ROOT)}
    ids = ["practice.one", "practice.two", "practice.three"]
    writers = [subprocess.Popen([sys.executable, "-c", script, i], env=env) for i in ids]
    assert [w.wait() for w in writers] == [0, 0, 0]
    known = records()
    assert [known[i].tries for i in ids] == [25, 25, 25]
    assert known["practice.shared"].tries == 75


def test_a_lock_that_nobody_gives_back_is_not_waited_for_for_ever(workspace, monkeypatch):
    import fcntl

    monkeypatch.setattr(kept, "_LOCK_PATIENCE_S", 0.1)
    with open(file_of(workspace).with_suffix(".lock"), "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        note_check(ID, fault="")
    assert records()[ID].done


@pytest.mark.usefixtures("exercises")
def test_the_table_shows_every_exercise(workspace):
    note_check("practice.double", fault="")
    note_check("practice.scale", fault="value")
    note_hint("practice.scale", of=3)
    assert progress_table() == (
        "chapter   exercise            state  tries  hints\n"
        "--------  ------------------  -----  -----  ------\n"
        "practice  double              done   1      0 of 3\n"
        "practice  sum_and_difference  open   0      0 of 3\n"
        "practice  scale               tried  1      1 of 3\n"
        "\n"
        "1 of 3 exercises done."
    )


@pytest.mark.usefixtures("exercises")
def test_the_table_of_another_workspace_can_be_asked_for(workspace, monkeypatch, tmp_path_factory):
    note_check("practice.double", fault="")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert "0 of 3 exercises done." in progress_table()
    assert "1 of 3 exercises done." in progress_table(workspace)
