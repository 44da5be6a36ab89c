"""The command line of the course: `course <command>`, or `python -m course_lib <command>`.

Each command imports what it needs when it runs, so that `course --help` answers
at once. What goes wrong is said in a sentence, with exit status 1 (2 where the
command line itself is not understood).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.diagnostics.errors import CourseError

if TYPE_CHECKING:
    from course_lib.authoring import Course

_SUITES = (
    *("matmul", "attention", "copy", "collective", "simulator"),
    *("clusters", "clusters-stream", "clusters-product"),
)
_EPILOG = """\
Most people need one command: `make lab` (or `course lab`) opens the course.

  course lab                        open JupyterLab on your own copy of the chapters
  course check 01                   is what I wrote in chapter 01 right?
  course hint start_here.fill_iota  the next hint for an exercise
  course progress                   what is done, tried and open
  course doctor                     what this machine has, and where kernels run

`course <command> --help` says more about a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except CourseError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        return _fail(
            f"The package {error.name} is missing here: `make lab` or `make test` installs it."
        )
    except BrokenPipeError:  # the reader has seen enough, as in `course progress | head -3`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _fail("Interrupted.", status=130)
    except Exception as error:
        if os.environ.get("COURSE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return _fail(
            f"Something went wrong that should not: {what}\n"
            "With COURSE_TRACEBACK=1 before the command you see where; please report that."
        )


def _fail(sentence: str, *, status: int = 1) -> int:
    print(sentence, file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="course",
        description="Mosaic GPU, hands-on: an interactive course on GPU kernels with JAX.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="say which versions are installed")
    parser.set_defaults(run=_no_command, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="<command>")
    _add_learners_commands(commands)
    _add_engineers_commands(commands)
    _add_instructors_commands(commands)
    _add_authors_commands(commands)
    return parser


type Commands = argparse._SubParsersAction[argparse.ArgumentParser]
Run = Callable[[argparse.Namespace], int | None]


def _command(commands: Commands, name: str, run: Run, help: str) -> argparse.ArgumentParser:
    sentence = f"{help[0].upper()}{help[1:]}."
    command = commands.add_parser(name, help=help, description=sentence)
    command.set_defaults(run=run)
    return command


def _add_learners_commands(commands: Commands) -> None:
    lab = _command(commands, "lab", _lab, "open the course in JupyterLab")
    lab.add_argument("folder", nargs="?", type=Path, help="a hand-out to open instead")
    lab.add_argument("--port", type=int, default=8888, help="the port to use, or the next free one")
    lab.add_argument(
        "--no-browser",
        dest="browser",
        action="store_false",
        default=None,
        help="only print the address",
    )
    check = _command(commands, "check", _check, "check the exercises of one of your chapters")
    check.add_argument("chapter", help="its number or title, as 01 or memory_spaces")
    hint = _command(commands, "hint", _hint, "show the next hint for an exercise")
    hint.add_argument("exercise", help="its id, as start_here.fill_iota")
    _command(commands, "progress", _progress, "show which exercises are done, tried and open")
    _command(commands, "doctor", _doctor, "say what this machine has and where kernels run")
    explore = _command(commands, "explore", _explore, "open the layout explorer in your browser")
    explore.add_argument(
        "view",
        nargs="?",
        default="",
        help="smem, registers, banks, tmem, pipeline, waves, or a link's #...",
    )
    explore.add_argument("--print", action="store_true", help="only print the page's address")
    _command(commands, "update", _update, "bring new versions of chapters into your copies")
    reset = _command(commands, "reset", _reset, "give you a chapter anew; your old copy is kept")
    reset.add_argument("chapter", help="its number or title, as 01 or memory_spaces")


def _add_engineers_commands(commands: Commands) -> None:
    simulate = _command(commands, "simulate", _simulate, "find what is wrong with a kernel")
    simulate.add_argument("target", help="the function that launches it, as file.py:name")
    simulate.add_argument("types", nargs="*", help="its arguments, as float16[4096,4096]")
    simulate.add_argument("--arch", default="sm_90a", choices=("sm_90a", "sm_100a"))
    simulate.add_argument(
        "--schedule",
        default="in_order",
        help="in_order (default), adversarial, or a number: the seed of a random schedule",
    )
    simulate.add_argument(
        "--max-steps", type=int, default=20_000_000, help="after how many operations to stop"
    )
    simulate.add_argument("--timeline", metavar="FILE", help="write a trace that Perfetto opens")
    form = simulate.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the findings as JSON")
    form.add_argument("--sarif", action="store_true", help="print the findings as SARIF")
    compile_ = _command(commands, "compile", _compile, "show PTX, SASS and resources of a kernel")
    compile_.add_argument("function", help="the function that launches it, as file.py:name")
    compile_.add_argument("arrays", nargs="*", help="its arguments, as float16[4096,4096]")
    compile_.add_argument("--arch", default="sm_90a", help="sm_90a (default), sm_100a, ...")
    compile_.add_argument("--format", default="text", choices=("text", "ptx", "sass", "json"))
    compile_.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="CONDITION",
        help="exit with 1 unless it holds, as 'wgmma.mma_async>=4' or 'spill_bytes==0'",
    )

    bench = _command(commands, "bench", _bench, "time the course's kernels against libraries")
    bench.add_argument("suite", choices=_SUITES)
    bench.add_argument("--sizes", nargs="+", default=[], help="as 4096x8192x4096:float16, or 4GiB")
    bench.add_argument("--rounds", type=int, help="how many turns each kernel has (default: 5)")
    bench.add_argument("--no-record", action="store_true", help="do not write a record")
    bench.add_argument(
        "--anyway", action="store_true", help="measure on a busy or slowed card and say so"
    )
    tune = _command(commands, "tune", _tune, "find the best configuration of the last matmul")
    tune.add_argument("sizes", nargs="*", help="as 4096x8192x4096:float16")
    tune.add_argument("--limit", type=int, help="how many configurations to try at most")
    tune.add_argument("--anyway", action="store_true", help="tune on a busy or slowed card, too")


def _add_instructors_commands(commands: Commands) -> None:
    from course_lib.grading import arguments

    arguments.add_release(_command(commands, "release", _release, "give chapters to a class"))
    arguments.add_grade(_command(commands, "grade", _grade, "grade what a class handed in"))


def _add_authors_commands(commands: Commands) -> None:
    build = _command(commands, "build", _build, "build the notebooks from solutions/*.md")
    build.add_argument("chapters", nargs="*", help="numbers or titles; all of them by default")
    how = build.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="only say which are not up to date")
    how.add_argument("--force", action="store_true", help="run all cells even if nothing changed")
    test = _command(commands, "test", _test, "run the quick tests, then all notebooks again")
    test.add_argument("--notebooks", nargs="*", metavar="NN", help="only notebooks: these, or all")


# --- what the commands do ------------------------------------------------------------------------


def _no_command(options: argparse.Namespace) -> int:
    if not options.version:
        options.parser.print_help()
        return 2
    from importlib import metadata

    print(f"mosaic-gpu-hands-on {metadata.version('mosaic-gpu-hands-on')}")
    for name in ("jax", "jaxlib", "numpy", "jupyterlab"):
        print(f"{name} {metadata.version(name)}")
    return 0


def _course() -> Course:
    """This checkout's folders.

    Raises:
      CourseError: the package was installed without the course around it.
    """
    from course_lib.lab import skip_iri_grammar

    skip_iri_grammar()  # whoever needs the folders reads notebooks next
    from course_lib.authoring import Course

    course = Course()
    if not course.notebooks.is_dir():
        raise CourseError(
            "The chapters are not here: this command needs the course's own folder, with"
            " notebooks/ and solutions/ in it. Go there and run `make lab` once."
        )
    return course


def _workspace(course: Course) -> Path:
    """The learner's folder: that of the course, unless COURSE_WORKSPACE names another."""
    return Path(os.environ.get("COURSE_WORKSPACE") or course.workspace).absolute()


def _lab(options: argparse.Namespace) -> int:
    course = _course()
    from course_lib.authoring import update
    from course_lib.lab import open_lab

    if options.folder is not None:
        return _open_folder(options)
    update(course=course)
    print("Starting JupyterLab ...", flush=True)
    return open_lab(_workspace(course), port=options.port, browser=options.browser)


def _open_folder(options: argparse.Namespace) -> int:
    """Opens notebooks that are not the course's own copies: what an instructor gave out."""
    from course_lib.lab import open_lab

    notebooks = sorted(p.name for p in options.folder.glob("*.ipynb"))
    if not notebooks:
        raise CourseError(f"{options.folder} is no folder with notebooks in it.")
    folder = options.folder.absolute()
    return open_lab(folder, port=options.port, browser=options.browser, notebook=notebooks[0])


def _update(options: argparse.Namespace) -> None:
    course = _course()
    from course_lib.authoring import update

    update(course=course)


def _reset(options: argparse.Namespace) -> None:
    course = _course()
    from course_lib.authoring import reset

    reset(options.chapter, course=course)


def _check(options: argparse.Namespace) -> int:
    course = _course()
    from course_lib.authoring.source import find_sources
    from course_lib.chapter_check import check_chapter

    [source] = find_sources(course, [options.chapter])
    workspace = _workspace(course)
    notebook = workspace / f"{source.stem}.ipynb"
    if not notebook.is_file():
        raise CourseError(
            f"You have no copy of {source.stem} yet: `course update` makes one in workspace/."
        )
    return 0 if check_chapter(notebook, workspace=workspace) else 1


def _hint(options: argparse.Namespace) -> None:
    _use_workspace()
    from course_lib.exercises import hint

    hint(options.exercise)


def _progress(options: argparse.Namespace) -> None:
    _use_workspace()
    from course_lib.exercises import progress

    progress()


def _use_workspace() -> None:
    """Makes hints and progress those of the workspace, whatever folder the command runs in."""
    os.environ["COURSE_WORKSPACE"] = str(_workspace(_course()))


def _doctor(options: argparse.Namespace) -> None:
    from course_lib.runtime import doctor

    print("\n".join(doctor()))


def _simulate(options: argparse.Namespace) -> int:
    from course_lib.model import simulate_here
    from course_lib.simulator import command

    return command.run(options, simulate_here)


def _compile(options: argparse.Namespace) -> int:
    from course_lib.compiler.command import compile_command

    return compile_command(options)


def _bench(options: argparse.Namespace) -> int:
    from course_lib.benchmarks.command import bench_command

    return bench_command(options)


def _tune(options: argparse.Namespace) -> int:
    from course_lib.benchmarks.command import tune_command

    return tune_command(options)


def _explore(options: argparse.Namespace) -> None:
    import webbrowser

    from course_lib.explorer.page import address

    url = address(options.view)
    print(url)
    if not options.print and not webbrowser.open(url):
        print("No browser opened: open that address in yours. The page needs no server.")


def _release(options: argparse.Namespace) -> int:
    _course()
    from course_lib.grading.command import release_command

    return release_command(options)


def _grade(options: argparse.Namespace) -> int:
    _course()
    from course_lib.grading.command import grade_command

    return grade_command(options)


def _build(options: argparse.Namespace) -> None:
    course = _course()
    from course_lib.authoring import build

    build(options.chapters or None, check=options.check, force=options.force, course=course)
    if options.check:
        print("All notebooks are what their sources say.")


def _test(options: argparse.Namespace) -> int:
    import subprocess

    course = _course()
    from course_lib.authoring.verification import verify

    failed = 0
    if options.notebooks is None:
        quick = ["-m", "not slow and not browser and not gpu"]
        command = [sys.executable, "-m", "pytest", "-n", "auto", *quick]
        failed = subprocess.run(command, cwd=course.root).returncode
    return verify(options.notebooks or None, course=course) or failed


if __name__ == "__main__":
    sys.exit(main())
