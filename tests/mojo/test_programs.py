"""Every Mojo program of the chapters compiles for Hopper and Blackwell, and assembles there.

The compiler keeps its answers on the disk, so that only changed programs cost time.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections import Counter

import pytest

from course_lib.authoring.mojo_cells import MojoCell
from course_lib.authoring.mojo_records import programs
from course_lib.mojo import compiling, records

PROGRAMS = programs()
COMPILED = [cell for cell in PROGRAMS if not cell.on_cpu]


def _answer(job: tuple[MojoCell, str]) -> tuple[str, str, bool]:
    """(name, arch, whether it was refused): `compile_data` assembles what it compiles."""
    cell, arch = job
    return cell.name, arch, "refused" in compiling.compile_data(cell.source, arch=arch)


@pytest.mark.timeout(1200)
def test_every_program_compiles_for_both_architectures_or_is_refused_on_purpose():
    jobs = [(cell, arch) for cell in COMPILED for arch in compiling.ARCHITECTURES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        refused = {(name, arch) for name, arch, is_refused in pool.map(_answer, jobs) if is_refused}
    wrong = {
        (cell.name, arch) for cell in COMPILED if cell.wrong for arch in compiling.ARCHITECTURES
    }
    assert refused == wrong


def test_every_program_has_a_record_and_no_record_is_left_over():
    digests = {records.digest(cell.source): cell.name for cell in PROGRAMS}
    stored = {file.name.removesuffix(".json.gz") for file in records.FOLDER.glob("*.json.gz")}
    assert {digests.get(d, "of no program") for d in digests.keys() ^ stored} == set()


@pytest.mark.parametrize("cell", PROGRAMS, ids=lambda cell: cell.name)
def test_a_record_is_whole(cell):
    """The listings for both architectures; the output, with device and day, of what runs."""
    record = records.load(cell.source)
    assert record is not None
    if not cell.on_cpu:
        assert set(record.compiled) == set(compiling.ARCHITECTURES)
    if cell.runs:
        assert record.output is not None
        assert record.device == ("CPU" if cell.on_cpu else "NVIDIA H200")
        assert record.date


def test_no_two_cells_hold_the_same_program():
    assert max(Counter(records.digest(cell.source) for cell in PROGRAMS).values()) == 1
