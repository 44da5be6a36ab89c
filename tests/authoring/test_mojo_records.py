"""A chapter's Mojo programs: found in its source, compiled, run elsewhere, and shown as records."""

import json
import stat

import pytest

from course_lib.authoring import mojo_records
from course_lib.authoring.source import Course
from course_lib.mojo import compiling, records
from course_lib.mojo.records import Record

HEAD = "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n---\n"
PROGRAM = "def main():\n    print(3)\n"
CHAPTER = f"""{HEAD}
+++ {{"id": "title"}}

# 20 Threads

```{{code-cell}} ipython3
:id: three
:tags: [given]
%%mojo_gpu --expect spill_bytes=0
{PROGRAM}```

```{{code-cell}} ipython3
:id: only-compiled
:tags: [given]
%%mojo_gpu --no-run
{PROGRAM}```

```{{code-cell}} ipython3
:id: python
:tags: [given]
print(3)
```
"""


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """A course of one chapter, whose programs compile at once; and its records' folder."""
    solutions = tmp_path / "solutions"
    solutions.mkdir()
    (solutions / "20_threads.md").write_text(CHAPTER)
    course = Course(root=tmp_path)
    monkeypatch.setattr(mojo_records, "Course", lambda: course)
    folder = tmp_path / "recorded"
    monkeypatch.setattr(records, "FOLDER", folder)
    for function in (records.load, records.store):
        monkeypatch.setattr(function, "__kwdefaults__", {"folder": folder})
    made = {"arch": "sm_90a", "kernels": []}
    monkeypatch.setattr(compiling, "compile_data", lambda source, *, arch: {**made, "arch": arch})
    return folder


def test_the_programs_that_run_are_found_with_their_names(chapter):
    [(name, source)] = mojo_records.programs()
    assert name == "20_threads/three"
    assert source.strip() == PROGRAM.strip()


def test_what_has_no_record_is_compiled_once_and_a_stale_record_goes(chapter):
    records.store("another program", Record("20_threads/old", {}))
    assert mojo_records.compile_all() == ["20_threads/three"]
    assert [f.stem.split(".")[0] for f in chapter.iterdir()] == [records.digest(PROGRAM)]
    assert set(records.load(PROGRAM).compiled) == set(compiling.ARCHITECTURES)
    assert mojo_records.compile_all() == []


def _prebuilt(folder, script):
    folder.mkdir()
    program = folder / "program"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    entry = {"name": "20_threads/three", "file": "program", "digest": records.digest(PROGRAM)}
    (folder / "programs.json").write_text(json.dumps([entry]))
    return folder


def test_what_a_program_printed_elsewhere_becomes_its_record(chapter, tmp_path, monkeypatch):
    monkeypatch.setattr(mojo_records, "_card", lambda: "NVIDIA H200")
    outputs = tmp_path / "outputs.json"
    assert mojo_records.run_all(_prebuilt(tmp_path / "p", "echo 3"), outputs) == 0
    assert mojo_records.take(outputs) == 1
    record = records.load(PROGRAM)
    assert (record.output, record.device) == ("3\n", "NVIDIA H200")
    assert record.date


def test_a_program_that_failed_leaves_the_record_without_output(chapter, tmp_path, monkeypatch):
    monkeypatch.setattr(mojo_records, "_card", lambda: "NVIDIA H200")
    outputs = tmp_path / "outputs.json"
    assert mojo_records.run_all(_prebuilt(tmp_path / "p", "echo 3; exit 1"), outputs) == 1
    assert mojo_records.take(outputs) == 0
    mojo_records.compile_all()
    assert records.load(PROGRAM).output is None
