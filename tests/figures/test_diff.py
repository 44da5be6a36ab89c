"""A diff of two kernels: what counts as changed, what as moved, and both forms of showing it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from course_lib.figures import diff
from course_lib.kernels import attention_ladder, matmul_ladder

OLD = '''"""A module."""

import jax


def kernel(x):
    """Doubles."""
    for i in range(4):
        wait(i)
        y = x[i] * 2
        store(i, y)
    finish()
    return y
'''
NEW = '''"""Another text."""

import jax
import numpy


def kernel(x):
    """Triples, and says more about it."""
    for i in range(4):
        wait(i)
        y = x[i] * 3
        if i > 0:
            store(i, y)
    finish()
    return y
'''


@dataclasses.dataclass(frozen=True)
class Text:
    name: str
    source: str


def kinds(new: str, old: str, **options) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in diff.between(Text("new", new), Text("old", old), **options).lines:
        found.setdefault(line.kind, []).append(line.text.strip())
    return found


def test_a_line_that_only_moved_is_neither_gone_nor_new():
    found = kinds(NEW, OLD)
    assert found["moved"] == ["store(i, y)"]
    assert found["gone"] == ["y = x[i] * 2"]
    assert found["new"] == ["y = x[i] * 3", "if i > 0:"]


def test_imports_and_docstrings_are_no_changes():
    only_words = (
        OLD.replace("A module", "Words")
        .replace("Doubles", "More")
        .replace("import jax", "import numpy")
    )
    shown = diff.between(Text("new", only_words), Text("old", OLD))
    assert (shown.count("gone"), shown.count("new")) == (0, 0)
    assert shown.summary == "no line changes"


def test_text_that_is_no_docstring_is_code():
    assert kinds(OLD.replace("finish()", 'finish("""now""")'), OLD)["new"] == ['finish("""now""")']


def test_lines_that_are_alike_show_what_differs():
    [gone] = [x for x in diff.between(Text("n", NEW), Text("o", OLD)).lines if x.kind == "gone"]
    assert [gone.text[start:end] for start, end in gone.marks] == ["2"]


def test_lines_that_have_nothing_in_common_have_no_marks():
    shown = diff.between(Text("n", OLD.replace("finish()", "quit_all = 77")), Text("o", OLD))
    assert [line.marks for line in shown.lines if line.kind in ("gone", "new")] == [(), ()]


def test_what_lies_far_from_a_change_is_folded():
    long = "def f():\n" + "".join(f"    step_{i}()\n" for i in range(30))
    shown = diff.between(Text("n", long.replace("step_20()", "other()")), Text("o", long))
    assert [str(x) for x in shown.lines if x.kind == "fold"] == [
        "  ... 19 lines as before, up to f", "  ... 7 lines as before",
    ]  # fmt: skip


def test_a_function_can_be_compared_alone():
    old, new = matmul_ladder.step(11), matmul_ladder.step(12)
    shown = diff.between(new, old, only=["copy_tile"])
    assert shown.count("new") == 2
    assert diff.between(new, old, only=["compute_tile"]).summary == "no line changes"
    with pytest.raises(ValueError, match="'no_such'"):
        diff.between(new, old, only=["no_such"])


def test_a_function_that_only_one_of_them_has_is_new_or_gone():
    shown = diff.between(matmul_ladder.step(9), matmul_ladder.step(8), only=["copy_tile"])
    assert {line.kind for line in shown.lines} == {"new"}
    back = diff.between(matmul_ladder.step(8), matmul_ladder.step(9), only=["copy_tile"])
    assert {line.kind for line in back.lines} == {"gone"}


def test_the_new_version_can_be_put_together_from_the_whole_diff():
    for step in matmul_ladder.STEPS[1:]:
        old = matmul_ladder.step(step.follows)
        shown = diff.between(step, old, context=10_000)
        assert [x.text for x in shown.lines if x.kind != "gone"] == diff.code_of(step.source)


def test_both_ladders_can_be_shown():
    steps = [attention_ladder.step(i) for i in (0, 1)]
    assert diff.between(steps[1], steps[0]).count("new") > 0


def test_text_and_html_are_the_same_each_time_and_say_the_same():
    step = matmul_ladder.step(1)
    one, two = (diff.between(step, matmul_ladder.step(0)) for _ in range(2))
    assert one._repr_mimebundle_() == two._repr_mimebundle_()
    bundle = one._repr_mimebundle_()
    rows = re.findall(r"<li.*?</li>", bundle["text/html"], re.DOTALL)
    assert len(rows) == len(bundle["text/plain"].splitlines()) - 1  # which begins with a head


def test_html_has_signs_beside_colours_and_escapes_code():
    page = diff.between(Text("n", OLD.replace("x[i] * 2", "x[i] < 2")), Text("o", OLD)).html()
    assert 'class="new"><code>+ ' in page
    assert 'class="gone"><code>- ' in page
    assert "x[i] < " not in page
