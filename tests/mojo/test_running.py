"""Programs run where a GPU is; elsewhere their record is shown, and marked as one."""

import stat
import time

import pytest

from course_lib import runtime
from course_lib.mojo import (
    MojoCompileError,
    MojoMissing,
    MojoRunError,
    compiling,
    records,
    run_on_cpu,
    run_program,
    running,
)
from course_lib.mojo.records import Record

SOURCE = "def main():\n    pass  # a program of the tests\n"


@pytest.fixture
def card(tmp_path, monkeypatch):
    """A machine with a GPU for which programs come prebuilt; returns how to put one there."""
    found = runtime.Device("NVIDIA H200", (9, 0))
    monkeypatch.setattr(runtime, "device", lambda: found)
    monkeypatch.setenv("COURSE_MOJO_PREBUILT", str(tmp_path))

    def put(script: str) -> None:
        file = tmp_path / compiling.program_key(SOURCE, "sm_90a")
        file.write_text("#!/bin/sh\n" + script)
        file.chmod(file.stat().st_mode | stat.S_IEXEC)

    return put


@pytest.fixture
def no_card(monkeypatch):
    monkeypatch.setattr(runtime, "device", lambda: None)


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((8, 9), "sm_89"), ((7, 0), None)],
)
def test_programs_are_built_for_the_card_that_is_here(monkeypatch, capability, arch):
    monkeypatch.setattr(runtime, "device", lambda: runtime.Device("a card", capability))
    assert running.arch_here() == arch


def test_it_runs_where_a_gpu_is(card):
    card("echo 3.0 3.0")
    output = run_program(SOURCE)
    assert (output.text, output.recorded) == ("3.0 3.0\n", "")
    assert output.origin == "[run: NVIDIA H200]"


def test_a_program_that_fails_says_what_it_printed(card):
    card("echo out of bounds >&2; exit 3")
    with pytest.raises(MojoRunError, match=r"exit status 3\).\nout of bounds"):
        run_program(SOURCE)


def test_a_program_that_never_ends_is_stopped_with_its_children(card, tmp_path):
    alive = tmp_path / "alive"
    card(f"echo begun; (while true; do touch {alive}; sleep 0.1; done) & wait")
    began = time.monotonic()
    with pytest.raises(MojoRunError, match=r"stopped after 1 s[^\n]*\n[^\n]*\nbegun"):
        run_program(SOURCE, timeout_s=1)
    assert time.monotonic() - began < 20
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


def test_without_a_gpu_the_record_is_shown_as_one(no_card, tmp_path, monkeypatch):
    record = Record("20/x", {}, output="3.0 3.0\n", device="NVIDIA H200", date="2026-11-30")
    records.store(SOURCE, record, folder=tmp_path)
    monkeypatch.setattr(records.load, "__kwdefaults__", {"folder": tmp_path})
    output = run_program(SOURCE + "\n")
    assert output.text == "3.0 3.0\n"
    assert output.origin == "[record: NVIDIA H200, 2026-11-30]"
    assert run_program(SOURCE.replace("pass", "print(1)")) is None


def test_a_program_without_a_record_gives_nothing(no_card):
    assert run_program(SOURCE) is None


def test_a_program_for_the_cpu_is_built_once(no_card):
    source = "def main() raises:\n    print(5 * 5)  # of the tests\n"
    assert run_on_cpu(source).text == "25\n"
    began = time.monotonic()
    assert run_on_cpu(source).text == "25\n"
    assert time.monotonic() - began < 2 or not compiling.has_linker()


def test_a_program_for_the_cpu_that_fails_says_what_it_printed(no_card):
    source = 'def main() raises:\n    print("begun")\n    raise Error("too far")\n'
    with pytest.raises(MojoRunError, match=r"begun(.|\n)*too far"):
        run_on_cpu(source)


def test_a_program_for_the_cpu_that_does_not_compile_names_the_line(no_card):
    with pytest.raises(MojoCompileError, match="Line 2 does not compile"):
        run_on_cpu("def main() raises:\n    print(nothing_of_that_name)\n")


def test_without_a_linker_it_is_compiled_and_run_at_once(no_card, monkeypatch):
    monkeypatch.setattr(compiling, "has_linker", lambda: False)
    assert run_on_cpu("def main() raises:\n    print(6)\n").text == "6\n"
    with pytest.raises(MojoCompileError, match="Line 2 does not compile"):
        run_on_cpu("def main() raises:\n    print(nothing_of_this_name)\n")


def test_without_mojo_the_cpu_s_record_is_shown(no_card, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_MOJO", str(tmp_path / "none"))
    with pytest.raises(MojoMissing, match="make mojo"):
        run_on_cpu(SOURCE)
    record = Record("20/x", {}, output="7\n", device="CPU", date="2026-11-30")
    records.store(SOURCE, record, folder=tmp_path)
    monkeypatch.setattr(records.load, "__kwdefaults__", {"folder": tmp_path})
    assert run_on_cpu(SOURCE).origin == "[record: CPU, 2026-11-30]"
