"""The command line: helps at once, does what it says, and answers a mistake with a sentence."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import cli
from course_lib.authoring import Course

COURSE = [sys.executable, "-m", "course_lib"]


def course(
    *arguments: str, workspace: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ)
    if workspace is not None:
        env["COURSE_WORKSPACE"] = str(workspace)
    command = [*COURSE, *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300)


def commands() -> list[str]:
    """The commands that the help lists."""
    said = course("--help").stdout
    block = said.split("<command>\n")[1].split("\n\n")[0]
    return re.findall(r"^    (\w+)", block, re.MULTILINE)


def test_help_names_every_command_and_each_explains_itself() -> None:
    names = commands()
    assert {"lab", "doctor", "build", "check", "hint", "progress", "reset", "test"} <= set(names)
    for name in names:
        said = course(name, "--help")
        assert said.returncode == 0
        assert re.search(r"^[A-Z][^\n]*\.$", said.stdout, re.MULTILINE), f"{name} says nothing"


def loaded(*arguments: str) -> set[str]:
    """Which of the packages that take long to load a command has loaded when it ends."""
    slow = {"jax", "numpy", "matplotlib", "nbformat", "jupytext", "IPython", "ipywidgets"}
    code = (
        "import sys\nfrom course_lib import cli\n"
        f"try:\n    cli.main({list(arguments)!r})\nexcept SystemExit:\n    pass\n"
        "print('loaded:', *sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return slow & set(said.stdout.rpartition("loaded:")[2].split())


def test_help_is_there_at_once() -> None:
    assert loaded("--help") == set()
    assert loaded("grade", "--help") == set()
    assert "numpy" in loaded("hint", "start_here.no_such_thing")


def test_no_command_shows_the_help() -> None:
    said = course()
    assert said.returncode == 2
    assert "make lab" in said.stdout


def test_version_says_what_is_installed() -> None:
    assert re.search(r"^jax \d+\.\d+", course("--version").stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["hint", "start_here.no_such_thing"], "There is no exercise"),
        (["check", "77"], 'There is no chapter "77"'),
        (["check", "00"], "You have no copy of 00_start_here yet"),
        (["reset", "nope"], 'There is no chapter "nope"'),
        (["build", "--check", "nope"], 'There is no chapter "nope"'),
        (["lab", "--port", "99999"], "99999 is not a port"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_a_sentence_and_exit_status_one(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    said = course(*arguments, workspace=tmp_path)
    assert said.returncode == 1
    assert sentence in said.stderr
    assert "Traceback" not in said.stdout + said.stderr


@pytest.mark.parametrize("arguments", [["frobnicate"], ["hint"], ["build", "--check", "--force"]])
def test_a_command_line_that_is_not_understood_is_exit_status_two(arguments: list[str]) -> None:
    said = course(*arguments)
    assert said.returncode == 2
    assert said.stderr.startswith("usage: course")
    assert "Traceback" not in said.stderr


def test_an_unforeseen_error_is_a_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> list[str]:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("course_lib.runtime.doctor", fail)
    assert cli.main(["doctor"]) == 1
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().err
    monkeypatch.setenv("COURSE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["doctor"])


def test_a_package_that_is_not_installed_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> list[str]:
        raise ModuleNotFoundError("No module named 'jax'", name="jax")

    monkeypatch.setattr("course_lib.runtime.doctor", fail)
    assert cli.main(["doctor"]) == 1
    assert "package jax is missing" in capsys.readouterr().err


def test_doctor_says_where_kernels_run() -> None:
    said = course("doctor")
    assert said.returncode == 0
    assert "Your kernels run on" in said.stdout


def test_a_workspace_from_update_to_reset(tmp_path: Path) -> None:
    """Hints and progress are those of the workspace, whatever folder the command runs in."""
    workspace, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "copied into mine" in course("update", workspace=workspace).stdout
    copies = sorted(p.name for p in workspace.glob("*.ipynb"))
    assert copies == sorted(p.name for p in Course().notebooks.glob("*.ipynb"))

    assert "Hint 1 of 3" in course("hint", "start_here.fill_iota", workspace=workspace).stdout
    again = course("hint", "start_here.fill_iota", workspace=workspace, cwd=elsewhere)
    assert "Hint 2 of 3" in again.stdout
    table = course("progress", workspace=workspace, cwd=elsewhere).stdout
    assert re.search(r"fill_iota +open +0 +2 of 3", table)

    copy = workspace / "00_start_here.ipynb"
    copy.write_text(copy.read_text().replace("# Your code here", "# my own words"))
    assert course("update", workspace=workspace).stdout == ""
    assert "my own words" in copy.read_text()
    assert course("reset", "00", workspace=workspace).returncode == 0
    assert "my own words" not in copy.read_text()
    assert [p for p in workspace.rglob("*.ipynb") if "my own words" in p.read_text()]
    assert list(elsewhere.iterdir()) == []
