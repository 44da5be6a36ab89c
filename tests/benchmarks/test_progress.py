"""On a terminal one line is written over; elsewhere each stage is said once."""

import io

from course_lib.benchmarks.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said_to(stream):
    progress = Progress(stream)
    progress("compiling", "1 of 2 functions")
    progress("compiling", "2 of 2 functions")
    progress("4GiB float32", "round 1 of 5")
    progress("done", "2 rows")
    return stream.getvalue()


def test_a_terminal():
    lines = said_to(Terminal()).split("\r")
    assert lines[0] == ""
    texts = [line.split("] ", 1)[1] for line in lines[1:]]
    assert [text.rstrip() for text in texts] == [
        "compiling: 1 of 2 functions",
        "compiling: 2 of 2 functions",
        "4GiB float32: round 1 of 5",
        "done: 2 rows",
    ]
    widths = [len(line.rstrip("\n")) for line in lines[1:]]
    assert widths[3] >= len(lines[3].rstrip())  # nothing of the longer line is left
    assert lines[-1].endswith("\n")


def test_a_file():
    lines = said_to(io.StringIO()).splitlines()
    assert [line.split("] ", 1)[1] for line in lines] == ["compiling", "4GiB float32", "done"]


def test_stderr_unless_told_otherwise(capsys):
    Progress()("compiling")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("s] compiling\n")
