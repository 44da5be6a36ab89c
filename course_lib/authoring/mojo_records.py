"""Makes the records of the chapters' Mojo programs.

    mojo_records                       compile what has no record, run what runs on the CPU
    mojo_records --prebuild FOLDER     and build the rest for a GPU elsewhere
    mojo_records --run FOLDER OUTPUTS  there: run it (without Mojo)
    mojo_records --take OUTPUTS        here: its outputs are the record

each after `python -m course_lib.authoring.`.

The folder of `--prebuild` holds the programs, the exercises' harnesses with the
course's own answers, and the runtime libraries that they need; it is what
`$COURSE_MOJO_PREBUILT` names on the other machine, too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib import exercises
from course_lib.authoring.mojo_cells import MojoCell, holds_mojo, mojo_cells
from course_lib.authoring.source import Course, read_chapter
from course_lib.exercises.mojo_judging import MojoTask
from course_lib.mojo import Answer, MojoRunError, compiling, records, running, toolchain, trying
from course_lib.mojo.records import Record

_LIST = "programs.json"
# What an executable of Mojo's loads; seen to be all that it needs on an H200.
_LIBRARIES = (
    "libKGENCompilerRTShared.so",
    "libAsyncRTMojoBindings.so",
    "libMSupportGlobals.so",
    "libAsyncRTRuntimeGlobals.so",
)


def programs(course: Course | None = None) -> list[MojoCell]:
    """The Mojo programs of all chapters, in order."""
    sources = [s for s in (course or Course()).sources() if holds_mojo(s)]
    chapters = map(read_chapter, sources)
    return [cell for chapter in chapters for cell in mojo_cells(chapter)]


def compile_all() -> list[str]:
    """Makes the record of every program that has none; drops stale ones."""
    cells = programs()
    wanted = {records.digest(cell.source) for cell in cells}
    for file in records.FOLDER.glob("*.json.gz"):
        if file.name.removesuffix(".json.gz") not in wanted:
            file.unlink()
    made = []
    for cell in cells:
        known = records.load(cell.source)
        if known is None or not _is_whole(cell, known):
            records.store(cell.source, _made_here(cell))
            made.append(cell.name)
    return made


def _is_whole(cell: MojoCell, known: Record) -> bool:
    if cell.on_cpu:
        return known.output is not None
    return set(known.compiled) == set(compiling.ARCHITECTURES)


def _made_here(cell: MojoCell) -> Record:
    """A record without what takes a GPU."""
    if cell.on_cpu:
        output = running.run_on_cpu(cell.source)
        return Record(cell.name, {}, output.text, output.device, f"{datetime.date.today()}")
    made = {a: compiling.compile_data(cell.source, arch=a) for a in compiling.ARCHITECTURES}
    return Record(cell.name, made)


def prebuild(folder: Path, *, arch: str) -> int:
    """Builds every program for a card of that architecture; returns how many there are."""
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    root = toolchain.find().root / "lib"
    for library in _LIBRARIES:
        shutil.copy2(root / library, folder / "lib" / library)
    listed = []
    for cell in programs():
        if cell.on_gpu:
            source = _as_run(cell)
            target = folder / compiling.program_key(source, arch)
            if not target.exists():
                compiling.build(source, target, arch=arch)
            named = {"name": cell.name, "file": target.name}
            listed.append({**named, "digest": records.digest(cell.source)})
        if cell.exercise:
            _prebuild_harness(cell, folder, arch)
    (folder / _LIST).write_text(json.dumps(listed, indent=1))
    return len(listed)


def _as_run(cell: MojoCell) -> str:
    """The program's text as the cell hands it over: Jupyter ends a cell's last line.

    An executable is found by its text, to the letter.
    """
    return cell.source.rstrip("\n") + "\n"


def _prebuild_harness(cell: MojoCell, folder: Path, arch: str) -> None:
    """Builds what `check` runs on a GPU when it gets the course's own answer."""
    exercise = exercises.get(cell.exercise)
    assert isinstance(exercise.program, MojoTask), f"{cell.exercise} is no Mojo exercise"
    source = trying.program([case.static for case in exercise.cases])
    modules = trying.modules(Answer(_as_run(cell)), exercise.program.harness)
    key = compiling.program_key(source, arch, modules=modules, defines=trying.ON_GPU)
    if not (folder / key).exists():
        compiling.build(*(source, folder / key), arch=arch, modules=modules, defines=trying.ON_GPU)


def run_all(folder: Path, outputs: Path, *, timeout_s: float = 60.0) -> int:
    """Runs the programs of a prebuilt folder and writes what they printed; how many failed."""
    results: dict[str, Any] = {"device": _card(), "date": f"{datetime.date.today()}", "outputs": {}}
    failed = 0
    for entry in json.loads((folder / _LIST).read_text()):
        try:
            said = running.execute([folder / entry["file"]], timeout_s=timeout_s, libraries=folder)
            results["outputs"][entry["digest"]] = said
            print(f"{entry['name']}: {said.strip()[-200:]}", flush=True)
        except MojoRunError as error:
            failed += 1
            print(f"{entry['name']} FAILED: {error}", flush=True)
    outputs.write_text(json.dumps(results, indent=1))
    return failed


def take(outputs: Path) -> int:
    """Puts what programs printed elsewhere into their records; returns how many there were."""
    results = json.loads(outputs.read_text())
    taken = 0
    for cell in programs():
        said = results["outputs"].get(records.digest(cell.source))
        if said is None:
            continue
        known = records.load(cell.source) or _made_here(cell)
        record = Record(cell.name, known.compiled, said, results["device"], results["date"])
        records.store(cell.source, record)
        taken += 1
    return taken


def _card() -> str:
    """What the first GPU calls itself."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one of the commands above; returns the exit status."""
    parser = argparse.ArgumentParser(description="Records of the chapters' Mojo programs.")
    parser.add_argument("--prebuild", type=Path, metavar="FOLDER")
    parser.add_argument("--arch", default="sm_90a", help="the other machine's architecture")
    parser.add_argument("--run", nargs=2, type=Path, metavar=("FOLDER", "OUTPUTS"))
    parser.add_argument("--take", type=Path, metavar="OUTPUTS")
    options = parser.parse_args(arguments)
    if options.run:
        return 1 if run_all(*options.run) else 0
    if options.take:
        print(f"{take(options.take)} programs have an output now.")
        return 0
    print("Compiled:", ", ".join(compile_all()) or "nothing new")
    if options.prebuild:
        print(f"{prebuild(options.prebuild, arch=options.arch)} programs in {options.prebuild}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
