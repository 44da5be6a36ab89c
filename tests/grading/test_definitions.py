"""What is run of a notebook so that one of its functions can be traced: what that needs, no more.

Each case has a twin: with one thing changed, it gives something else.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from course_lib.grading.tracing_child import define, definitions, write_error

HOME = "a.b"


def cells(
    *above: str, answer: str, below: tuple[str, ...] = (), check: bool = True
) -> list[dict[str, Any]]:
    """A notebook: own cells, the exercise's cell, own cells, its check, an own cell at the end."""

    def cell(name: str, source: str, **more: Any) -> dict[str, Any]:
        plain = {"id": name, "source": source, "tags": [], "exercise": "", "own": True}
        return plain | more

    found = [cell(f"above-{n}", text) for n, text in enumerate(above)]
    found.append(cell("answer", answer, exercise=HOME, own=False))
    found += [cell(f"below-{n}", text) for n, text in enumerate(below)]
    if check:
        found.append(cell("check", f'check("{HOME}", f)', tags=["check"], own=False))
    return found


def value(notebook: list[dict[str, Any]]) -> Any:
    """What the exercise's function `f` returns."""
    function, _ = define(notebook, {"id": HOME, "function": "f"})
    return function()


def taken(notebook: list[dict[str, Any]]) -> list[str]:
    """The statements that are run, a line each."""
    return [ast.unparse(s).splitlines()[0] for _, s in definitions(notebook, HOME, "f")]


F = "def f():\n    return helper()"
HELPER = "def helper():\n    return 1"


@pytest.mark.parametrize(
    ("notebook", "wanted"),
    [
        (cells(HELPER, answer=F), 1),
        (cells(HELPER, HELPER.replace("1", "2"), answer=F), 2),  # the last above counts
        (cells(answer=F, below=(HELPER,)), 1),
        (cells(HELPER, answer=F, below=(HELPER.replace("1", "2"),)), 1),  # above goes first
        (cells(HELPER, answer=f"{HELPER.replace('1', '2')}\n{F}"), 2),  # its own cell, too
        (cells(answer=f"{F}\n{HELPER}"), 1),
        (cells("def deep():\n    return 5", HELPER.replace("1", "deep()"), answer=F), 5),
        (cells("def even(n):\n    return n == 0 or odd(n - 1)",
               "def odd(n):\n    return n != 0 and even(n - 1)",
               answer="def f():\n    return even(4)"), True),
        (cells("import math as m", answer="def f():\n    return m.floor(1.5)"), 1),
        (cells("from math import *", answer="def f():\n    return floor(2.5)"), 2),
        (cells("A, (B, *C) = 1, (2, 3, 4)", answer="def f():\n    return A, B, C"), (1, 2, [3, 4])),
        (cells("def max(*x):\n    return 'mine'", answer="def f():\n    return max(1, 2)"), "mine"),
        (cells(answer="def f():\n    return max(1, 2)"), 2),  # nobody's own: Python's
        (cells("class T:\n    rows = 8\nT.rows += 1", answer="def f():\n    return T.rows"), 9),
        (cells("if True:\n    W = 3\nelse:\n    W = 4", answer="def f():\n    return W"), 3),
        (cells("f = 1", answer="f = lambda: 7"), 7),
        (cells("X = 1", answer="X += 1\ndef f():\n    return X"), 2),
        (cells("X = 1", answer="def f(x=X):\n    return x"), 1),
        (cells("def twice(g):\n    return lambda: 2 * g()",
               answer="@twice\ndef f():\n    return 4"), 8),
    ],
)  # fmt: skip
def test_what_a_function_needs_is_found_wherever_it_is(
    notebook: list[dict[str, Any]], wanted: object
) -> None:
    assert value(notebook) == wanted


TABLE = "def f():\n    return TABLE"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("TABLE.append(0)", [3, 1, 0]),
        ("TABLE.sort()", [1, 3]),
        ("TABLE.reverse()", [1, 3]),
        ("TABLE[0] = 9", [9, 1]),
        ("TABLE += [5]", [3, 1, 5]),
        ("for i in range(2):\n    TABLE.append(i)", [3, 1, 0, 1]),
        ("if TABLE:\n    TABLE.pop()", [3]),
        ("with open('/dev/null'):\n    TABLE.extend([4])", [3, 1, 4]),
        ("print(TABLE)", [3, 1]),  # changes nothing, and is not run
        ("TABLE.index(77)", [3, 1]),
        ("def later():\n    TABLE.append(1)", [3, 1]),
    ],
)
def test_a_table_is_what_the_notebook_makes_of_it(change: str, wanted: list[int]) -> None:
    notebook = cells("TABLE = [3, 1]", change, answer=TABLE)
    assert value(notebook) == wanted
    assert (change.splitlines()[0] in taken(notebook)) is (wanted != [3, 1])


def test_what_nobody_needs_is_not_run() -> None:
    attack = "import os\nwhile True:\n    os.fork()"
    unused = "BIG = list(range(10 ** 12))"
    notebook = cells(HELPER, attack, unused, "1 / 0", "print('x')", answer=F)
    assert taken(notebook) == ["def helper():", "def f():"]
    assert value(notebook) == 1
    needed = cells(HELPER.replace("1", "BIG[0]"), unused.replace("12", "2"), answer=F)
    assert taken(needed) == ["def helper():", "BIG = list(range(10 ** 2))", "def f():"]


def test_a_second_try_below_counts_up_to_the_check() -> None:
    again = "def f():\n    return 2"
    assert value(cells(answer="def f():\n    return 1", below=("print('hm')", again))) == 2
    late = cells(answer="def f():\n    return 1")
    late.append(late[0] | {"id": "late", "source": again, "exercise": "", "own": True})
    assert value(late) == 1
    given = cells(answer="def f():\n    return 1", below=(again,))
    given[1]["own"] = False
    assert value(given) == 1


def test_two_exercises_with_helpers_of_one_name_keep_their_own() -> None:
    other = cells(answer=HELPER.replace("1", "'other'"))[0] | {"id": "other", "exercise": "a.c"}
    assert value([*cells(answer=f"{HELPER}\n{F}"), other]) == 1
    assert value([other, *cells(answer=f"{HELPER}\n{F}")]) == 1
    assert value([other, *cells(answer=F)]) == "other"


@pytest.mark.parametrize(
    ("magic", "runs"),
    [("%%time\n", True), ("\n%%capture out\n", True), ("%matplotlib inline\n", True),
     ("!ls\n", True), ("%%bash\n", False), ("%%writefile x.py\n", False)],
)  # fmt: skip
def test_magics_are_read_as_ipython_reads_them(magic: str, runs: bool) -> None:
    notebook = cells(answer=f"{magic}def f():\n    return 3")
    if runs:
        assert value(notebook) == 3
        return
    with pytest.raises(LookupError, match="no function called f"):
        value(notebook)


def test_windows_line_ends_a_mark_at_the_start_and_lazy_annotations() -> None:
    text = "\ufefffrom __future__ import annotations\r\ndef f(x: Unknown = 1):\r\n    return x\r\n"
    assert value(cells(answer=text)) == 1
    assert value(cells("from __future__ import annotations", answer=text[36:])) == 1
    with pytest.raises(NameError, match="Unknown"):
        value(cells(answer=text[36:]))


def test_what_fails_on_the_way_is_told_only_where_it_matters() -> None:
    assert value(cells("TABLE = 1 / 0", answer="def f():\n    return 1\nx = TABLE")) == 1
    with pytest.raises(ZeroDivisionError):
        value(cells(answer="f = 1 / 0"))
    with pytest.raises(LookupError, match="no function called f"):
        value(cells(answer="def g():\n    return 1"))
    with pytest.raises(LookupError, match=r"no cell answers a\.z"):
        definitions(cells(answer=F), "a.z", "f")


def test_a_cell_that_is_no_python_says_where(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        value(cells(answer="x = 1\ndef f(:\n    return 1"))
    write_error(tmp_path, caught.value)
    said = json.loads((tmp_path / "error.json").read_text())
    assert (said["type"], said["cell"], said["line"]) == ("SyntaxError", "answer", 2)
    assert said["message"] == "invalid syntax"
    assert value(cells("def g(:\n    pass", answer="def f():\n    return 1")) == 1
