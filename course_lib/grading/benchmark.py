"""What grading a class costs, next to only running its notebooks, in one go.

    python -m course_lib.grading.benchmark [--chapter 00] [--count 60] [--jobs 2] [--json FILE]

Every submission is the chapter's solution with a comment of its own in it, so that no two are
the same. First nbclient executes all of them, `--jobs` at a time and without a sandbox; then
`course grade` does all that it does. Printed are the cost of a submission, the ratio of the two,
and how the time grows with the number of submissions: a line through the moments at which they
were done.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

from course_lib.authoring.files import read_notebook
from course_lib.authoring.source import Course, find_sources
from course_lib.grading.batch import grade_class
from course_lib.grading.release import unreleased
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.tasks import Options

_EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
for path in sys.argv[1:]:
    NotebookClient(nbformat.read(path, 4), timeout=600, kernel_name="python3").execute()
"""


def submissions(chapter: str, count: int, folder: Path) -> list[Path]:
    """Writes `count` notebooks, each solved, each in a folder of its own."""
    [source] = find_sources(Course(), [chapter])
    solved = read_notebook(Course().solutions / f"{source.stem}.ipynb")
    paths = []
    for number in range(count):
        notebook = copy.deepcopy(solved)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
            if cell.metadata.get("exercise"):
                cell.source += f"\n# answer number {number}"
        path = folder / f"student-{number:03}" / f"{source.stem}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
        paths.append(path)
    return paths


def execute_s(paths: Sequence[Path], jobs: int) -> float:
    """How long nbclient takes for all notebooks, `jobs` processes at a time, in seconds."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    start = time.perf_counter()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _EXECUTE, *map(str, paths[n::jobs])], env=environment
        )
        for n in range(jobs)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("nbclient could not execute the notebooks.")
    return time.perf_counter() - start


def grade_s(chapter: str, folder: Path, out: Path, jobs: int) -> tuple[float, list[float]]:
    """How long grading takes, and after how many seconds each submission was done."""
    release = unreleased([chapter], "a secret for the benchmark only")
    Sandbox.probe()
    done: list[float] = []
    start = time.perf_counter()
    records = grade_class(
        folder,
        release,
        out,
        options=Options(),
        jobs=jobs,
        progress=lambda line: done.append(time.perf_counter() - start),
    )
    total = time.perf_counter() - start
    full = sum(a.verdict == "right" for r in records for a in r.answers)
    if full != sum(len(r.answers) for r in records):
        raise SystemExit("Not all of the solutions were found right.")
    return total, done[1:]


def straightness(done: Sequence[float]) -> tuple[float, float]:
    """Seconds a submission, and R2, of a line through the moments at which they were done."""
    count = len(done)
    xs = [n + 1 for n in range(count)]
    mean_x, mean_y = sum(xs) / count, sum(done) / count
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, done, strict=True)) / spread
    left = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, done, strict=True))
    whole = sum((y - mean_y) ** 2 for y in done)
    return slope, 1 - left / whole


def measure(chapter: str, count: int, jobs: int) -> dict[str, Any]:
    """All numbers, in seconds."""
    with tempfile.TemporaryDirectory(prefix="grading-benchmark-") as scratch:
        folder = Path(scratch) / "in"
        paths = submissions(chapter, count, folder)
        bare = execute_s(paths, jobs)
        print(f"nbclient alone: {bare / count:.2f} s a submission", flush=True)
        graded, done = grade_s(chapter, folder, Path(scratch) / "out", jobs)
    slope, r2 = straightness(done)
    half = done[count // 2 - 1]
    return {
        "chapter": chapter, "submissions": count, "jobs": jobs,
        "nbclient_s": round(bare, 1), "grade_s": round(graded, 1),
        "ratio": round(graded / bare, 2),
        "per_submission_s": round(graded / count, 2),
        "slope_s": round(slope, 2), "r2": round(r2, 4),
        "first_half_s": round(half, 1), "second_half_s": round(done[-1] - half, 1),
    }  # fmt: skip


def main() -> None:
    """Measures, and prints what was found."""
    parser = argparse.ArgumentParser(description="What grading costs, next to running notebooks.")
    parser.add_argument("--chapter", default="00")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    found = measure(options.chapter, options.count, options.jobs)
    print(f"course grade: {found['per_submission_s']:.2f} s a submission,", end=" ")
    print(f"{found['ratio']:.2f} x nbclient alone (to be at most 1.5)")
    print(
        f"growth: {found['slope_s']:.2f} s more for each submission, R2 {found['r2']:.4f};", end=" "
    )
    print(f"first half {found['first_half_s']:.0f} s, second {found['second_half_s']:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
