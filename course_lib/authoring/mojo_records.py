"""Makes the records of the chapters' Mojo programs.

    mojo_records                       compile what has no record
    mojo_records --prebuild FOLDER     and build it for a GPU elsewhere
    mojo_records --run FOLDER OUTPUTS  there: run it (without Mojo)
    mojo_records --take OUTPUTS        here: its outputs are the record

each after `python -m course_lib.authoring.`.

The folder of `--prebuild` holds the programs and the runtime libraries that they
need; it is what `$COURSE_MOJO_PREBUILT` names on the other machine, too.
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

from course_lib.authoring.source import Course, read_chapter
from course_lib.mojo import MojoRunError, compiling, records, running, toolchain
from course_lib.mojo.records import Record

_LIST = "programs.json"
_MAGIC = "%%mojo_gpu"
# What an executable of Mojo's loads; seen to be all that it needs on an H200.
_LIBRARIES = (
    "libKGENCompilerRTShared.so",
    "libAsyncRTMojoBindings.so",
    "libMSupportGlobals.so",
    "libAsyncRTRuntimeGlobals.so",
)


def programs(course: Course | None = None) -> list[tuple[str, str]]:
    """(chapter/cell, program) of every cell that the magic compiles and runs, in order."""
    found = []
    for chapter in map(read_chapter, (course or Course()).sources()):
        for cell in chapter.code:
            line, _, program = cell.text.partition("\n")
            if line.startswith(_MAGIC) and "--no-run" not in line:
                found.append((f"{chapter.name}/{cell.id}", program))
    return found


def compile_all() -> list[str]:
    """Compiles every program that has no record for all architectures; drops stale records."""
    named = programs()
    wanted = {records.digest(source) for _, source in named}
    for file in records.FOLDER.glob("*.json.gz"):
        if file.name.removesuffix(".json.gz") not in wanted:
            file.unlink()
    made = []
    for name, source in named:
        known = records.load(source)
        if known is None or set(known.compiled) != set(compiling.ARCHITECTURES):
            records.store(source, _compiled(name, source))
            made.append(name)
    return made


def _compiled(name: str, source: str) -> Record:
    programs = {a: compiling.compile_data(source, arch=a) for a in compiling.ARCHITECTURES}
    return Record(name, programs)


def prebuild(folder: Path, *, arch: str) -> int:
    """Builds every program for a card of that architecture; returns how many there are."""
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    root = toolchain.find().root / "lib"
    for library in _LIBRARIES:
        shutil.copy2(root / library, folder / "lib" / library)
    listed = []
    for name, source in programs():
        target = folder / compiling.program_key(source, arch)
        if not target.exists():
            compiling.build(source, target, arch=arch)
        listed.append({"name": name, "file": target.name, "digest": records.digest(source)})
    (folder / _LIST).write_text(json.dumps(listed, indent=1))
    return len(listed)


def run_all(folder: Path, outputs: Path, *, timeout_s: float = 60.0) -> int:
    """Runs the programs of a prebuilt folder and writes what they printed; how many failed."""
    results: dict[str, Any] = {"device": _card(), "date": f"{datetime.date.today()}", "outputs": {}}
    failed = 0
    for entry in json.loads((folder / _LIST).read_text()):
        try:
            said = running.execute(folder / entry["file"], timeout_s=timeout_s, libraries=folder)
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
    for name, source in programs():
        said = results["outputs"].get(records.digest(source))
        if said is None:
            continue
        known = records.load(source) or _compiled(name, source)
        record = Record(name, known.compiled, said, results["device"], results["date"])
        records.store(source, record)
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
