"""Runs every notebook again under nbval and compares what it prints with what is stored.

    python -m course_lib.authoring.verification            every chapter
    python -m course_lib.authoring.verification 00 01      some of them

Both notebooks of a chapter run: of the solution every output is compared, of the
learner's too, where the checks say "not done yet". Each notebook has a kernel of
this very Python, in the notebook's folder, as when it was built; several run at
a time. Where the machine has a GPU the kernels run there: the stored outputs are
the same, but for where a Mojo program ran (`sanitize.cfg`). Cells with the tag
`nbval-ignore-output` run and are not compared; `tests/notebooks/uncompared.toml`
lists them with the reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from course_lib.authoring.source import Course, find_sources
from course_lib.diagnostics import CourseError

SANITIZE = Path(__file__).with_name("sanitize.cfg")
CELL_TIMEOUT_S = 240  # below pytest's own limit of 300 s, which would end the whole run


def verify(
    chapters: Sequence[str] | None = None,
    *,
    course: Course | None = None,
    jobs: int | None = None,
    options: Sequence[str] = (),
) -> int:
    """Runs nbval over the notebooks of some chapters, or of all; returns pytest's exit status.

    Args:
      chapters: numbers or titles ("00", "start_here"); None is every chapter.
      course: where the course is; this one by default.
      jobs: how many notebooks run at a time; by default one for each processor.
      options: more arguments for pytest.

    Raises:
      CourseError: there is no such chapter, or no notebook.
    """
    course = course or Course()
    notebooks = _notebooks(course, chapters)
    jobs = min(jobs or _processors(), len(notebooks))
    command = [sys.executable, "-m", "pytest", *_arguments(course, jobs), *options]
    with tempfile.TemporaryDirectory(prefix="course-ipython-") as ipython:
        return subprocess.run(
            [*command, *map(str, notebooks)], cwd=course.root, env=_environment(ipython)
        ).returncode


def _notebooks(course: Course, chapters: Sequence[str] | None) -> list[Path]:
    names = [s.stem for s in find_sources(course, chapters)]
    paths = [
        folder / f"{name}.ipynb"
        for name in names
        for folder in (course.solutions, course.notebooks)
    ]
    missing = [f"{p.parent.name}/{p.name}" for p in paths if not p.is_file()]
    if missing or not paths:
        raise CourseError(f"Not built yet: {', '.join(missing) or 'any chapter'}. `course build`.")
    return paths


def _processors() -> int:
    """How many notebooks may run at a time; one where pytest cannot do more."""
    return (os.cpu_count() or 1) if importlib.util.find_spec("xdist") else 1


def _arguments(course: Course, jobs: int) -> list[str]:
    return [
        "--nbval",
        "--nbval-current-env",
        f"--nbval-cell-timeout={CELL_TIMEOUT_S}",
        f"--nbval-sanitize-with={SANITIZE}",
        f"--rootdir={course.root}",
        *(["--numprocesses", str(jobs), "--dist=loadfile"] if jobs > 1 else []),
        "-p",
        "no:cacheprovider",
    ]


def _environment(ipython: str) -> dict[str, str]:
    """The kernels' variables.

    No history or start-up files of the user's, and no progress kept. On a GPU several
    kernels share its memory: JAX would give most of it to the first.
    """
    env = {k: v for k, v in os.environ.items() if k != "COURSE_WORKSPACE"}
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **env, "IPYTHONDIR": ipython}


def main() -> int:
    """Verifies the chapters named on the command line, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m course_lib.authoring.verification",
        description="Run the notebooks again and compare what they print with what is stored.",
    )
    parser.add_argument("chapters", nargs="*", help="numbers or titles; all of them by default")
    parser.add_argument("--jobs", type=int, help="how many run at a time (one per processor)")
    options = parser.parse_args()
    try:
        return verify(options.chapters or None, jobs=options.jobs)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
