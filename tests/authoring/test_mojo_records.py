"""A chapter's Mojo programs: found in its source, compiled, run elsewhere, and shown as records."""

import ast
import json
import stat

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from course_lib.authoring import closure, mojo_records
from course_lib.authoring.source import Course, read_chapter
from course_lib.mojo import Output, compiling, records, running
from course_lib.mojo.records import Record

NAMES = ("three", "refused", "on-the-cpu")
HEAD = "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n---\n"
PROGRAM = "def main():\n    print(3)\n"
REFUSED = "def main():\n    print(x)\n"
ON_CPU = "def main():\n    print(4)\n"
CHAPTER = f"""{HEAD}
+++ {{"id": "title"}}

# 20 Threads

```{{code-cell}} ipython3
:id: three
:tags: [given]
%%mojo_gpu --expect spill_bytes=0
{PROGRAM}```

```{{code-cell}} ipython3
:id: refused
:tags: [given, break-it]
%%mojo_gpu --wrong
{REFUSED}```

```{{code-cell}} ipython3
:id: on-the-cpu
:tags: [given]
%%mojo_cpu --as few
{ON_CPU}```

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
    ran = Output("4\n", "CPU")
    monkeypatch.setattr(running, "run_on_cpu", lambda source: ran)
    made = {"arch": "sm_90a", "kernels": []}
    monkeypatch.setattr(compiling, "compile_data", lambda source, *, arch: {**made, "arch": arch})
    return folder


def test_the_programs_are_found_with_their_names_and_with_what_becomes_of_them(chapter):
    three, refused, few = mojo_records.programs()
    assert [c.name for c in (three, refused, few)] == [f"20_threads/{n}" for n in NAMES]
    assert three.source.strip() == PROGRAM.strip()
    assert (three.on_gpu, three.wrong, three.on_cpu) == (True, False, False)
    assert (refused.on_gpu, refused.wrong, refused.on_cpu) == (False, True, False)
    assert (few.on_gpu, few.wrong, few.on_cpu) == (False, False, True)


def test_what_has_no_record_is_made_once_and_a_stale_record_goes(chapter):
    records.store("another program", Record("20_threads/old", {}))
    assert mojo_records.compile_all() == [f"20_threads/{n}" for n in NAMES]
    wanted = {records.digest(text) for text in (PROGRAM, REFUSED, ON_CPU)}
    assert {f.stem.split(".")[0] for f in chapter.iterdir()} == wanted
    assert set(records.load(PROGRAM).compiled) == set(compiling.ARCHITECTURES)
    assert (records.load(ON_CPU).output, records.load(ON_CPU).device) == ("4\n", "CPU")
    assert mojo_records.compile_all() == []


def test_a_chapter_depends_on_its_own_records_only(chapter):
    """A record of another chapter's must not make its notebooks stale."""
    (source,) = mojo_records.Course().sources()
    before = closure.digest(read_chapter(source), Course().library)
    records.store("another program", Record("21_tiles/x", {}, output="1"))
    assert closure.digest(read_chapter(source), Course().library) == before
    records.store(PROGRAM, Record("20_threads/three", {}, output="3\n"))
    assert closure.digest(read_chapter(source), Course().library) != before


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


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_prebuilt_program_is_named_by_the_text_that_jupyter_hands_over(chapter, end):
    cell = mojo_records.programs()[0]
    source = f"%%mojo_gpu --expect spill_bytes=0\n{PROGRAM.rstrip()}{end}"
    handed_over = ast.parse(TransformerManager().transform_cell(source)).body[0].value.args[2].value
    as_run = compiling.program_key(mojo_records._as_run(cell), "sm_90a")
    assert as_run == compiling.program_key(handed_over, "sm_90a")
    assert as_run != compiling.program_key(PROGRAM.rstrip(), "sm_90a"), "found to the letter"
