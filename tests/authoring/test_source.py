"""A chapter's source is read as it stands, and everything wrong with it has a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.authoring.source import Course, find_sources, read_chapter
from course_lib.diagnostics import CourseError
from tests.authoring import tiny
from tests.authoring.tiny import check_cell, code, exercise, md, read, whole


def refused(root: Path, *cells: str) -> str:
    """The message with which a source is refused."""
    with pytest.raises(CourseError) as caught:
        read(root, *cells)
    return str(caught.value)


def given(text: str) -> str:
    return code("cell", text)


def test_reads_ids_tags_exercises_and_text(tmp_path: Path) -> None:
    chapter = read(tmp_path, *whole())
    assert [c.id for c in chapter.cells] == [
        "title", "setup", "task", "double", "check-double", "recap",
    ]  # fmt: skip
    assert chapter.name == "00_tiny"
    assert chapter.title == "tiny"
    double = chapter.cells[3]
    assert (double.kind, double.tags, double.exercise) == ("code", ("exercise",), "tiny.double")
    assert double.text == tiny.DOUBLE


def test_knows_the_line_of_every_cell(tmp_path: Path) -> None:
    chapter = read(tmp_path, *whole())
    lines = chapter.source.splitlines()
    for cell in chapter.cells:
        assert lines[cell.line - 1] == cell.text.splitlines()[0]


@pytest.mark.parametrize("options", ["---\nid: cell\ntags: [given]\n---\n", ":id: cell\n"])
def test_knows_the_line_with_each_way_to_write_options(tmp_path: Path, options: str) -> None:
    cell = f"```{{code-cell}} ipython3\n{options}x = 1\n```\n"
    (read_cell,) = read(tmp_path, cell).cells
    assert read_cell.id == "cell"
    assert (tmp_path / "solutions/00_tiny.md").read_text().splitlines()[
        read_cell.line - 1
    ] == "x = 1"


def test_reports_every_problem_with_file_and_line(tmp_path: Path) -> None:
    message = refused(tmp_path, md("a b", "text"), code("", "x = 1"))
    assert message.splitlines() == [
        'solutions/00_tiny.md, line 7: bad cell id "a b": an id has 1 to 64 letters, digits, "-" '
        'or "_"',
        "solutions/00_tiny.md, line 12: this code cell has no id: add `:id: name`",
    ]


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        ([code("", "x = 1")], [code("x", "x = 1")], "this code cell has no id: add `:id: name`"),
        (["+++\n\ntext\n"], [md("x", "text")], 'no id: add `+++ {"id": "name"}`'),
        ([code("é", "x = 1")], [code("e-1_E", "x = 1")], 'bad cell id "é"'),
        ([md("x" * 65, "text")], [md("x" * 64, "text")], "1 to 64 letters"),
        (
            [md("x", "text"), code("x", "x = 1")],
            [md("x", "text"), code("y", "x = 1")],
            '"x" is taken by line 7',
        ),
        ([code("007", "x = 1")], [code('"007"', "x = 1")], 'write it in quotes, `:id: "..."`'),
        (
            [code("x", "x = 1"), code("y", "x = 1")],
            [code("x", "x = 1"), code("y", "x = 2")],
            'the cells "x" and "y" have the same code',
        ),
        (
            [code("x", "x = 1", tags=["givne"])],
            [code("x", "x = 1", tags=["given", "break-it", "nbval-ignore-output"])],
            'unknown tag "givne"; the tags are "given"',
        ),
        (
            [code("x", "x = 1", tags=["raises-exception"])],
            [code("x", "x = 1", tags=[])],
            'unknown tag "raises-exception"',
        ),
        (
            [md("x", "text").replace('"x"', '"x", "tags": ["given"]')],
            [md("x", "text")],
            'unknown option "tags"; a cell has "id"',
        ),
        ([code("x", "")], [code("x", "x")], 'the code cell "x" is empty'),
        (
            [given("x = 1\n" * 41)],
            [given("x = 1\n" * 40)],
            "has 41 lines, at most 40 are read easily",
        ),
        ([given("# NBVAL_SKIP\nx = 1")], [given("# nbval skips\nx = 1")], "hides an output"),
        (["```{raw-cell}\nx\n```\n"], [md("x", "```text\nx\n```")], "raw cells are not used"),
        (
            [md("x", "```{note}\nHear, hear.\n```")],
            [md("x", "````text\n```{note}\n```\n````")],
            'shows the directive "{note}" as code',
        ),
    ],
)  # fmt: skip
def test_each_rule_refuses_the_wrong_and_takes_the_right(
    tmp_path: Path, wrong: list[str], right: list[str], says: str
) -> None:
    assert says in refused(tmp_path, *wrong)
    read(tmp_path, *right)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("![](p.svg)", "line 7: this image has no alt text"),
        ("text\n\n![ ](p.svg)", "line 9: this image has no alt text"),
        ('<img src="p.svg">', "has no alt text"),
        ('<img src="p.svg" alt=" ">', "has no alt text"),
        ("![a block](missing.svg)", 'no image "missing.svg"'),
        ("![a block](https://example.org/p.svg)", "the course works offline"),
        ('<img alt="a" src="http://example.org/p.svg">', "the course works offline"),
    ],
)
def test_refuses_images_that_not_everybody_can_see(tmp_path: Path, wrong: str, says: str) -> None:
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions/p.svg").write_text("<svg/>")
    assert says in refused(tmp_path, md("x", wrong))


@pytest.mark.parametrize(
    "right",
    [
        "![four warps](p.svg)",
        '<img src="p.svg" alt="four warps">',
        "`![](p.svg)` and ``<img>`` are markup",
        "```markdown\n![](p.svg)\n```",
        "~~~\n![](p.svg)\n```\n<img>\n~~~",
    ],
)
def test_takes_images_with_a_description_and_markup_that_is_shown(
    tmp_path: Path, right: str
) -> None:
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions/p.svg").write_text("<svg/>")
    read(tmp_path, md("x", right))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def double(x):\n    return x", "has no solution region"),
        ("def double(x):\n    ### BEGIN SOLUTION\n    return x", 'without an "### END SOLUTION"'),
        ("def double(x):\n    return x\n    ### END SOLUTION", 'without a "### BEGIN SOLUTION"'),
        (
            "def double(x):\n    ### BEGIN SOLUTION\n    y = x\n    ### BEGIN SOLUTION\n"
            "    return y\n    ### END SOLUTION",
            "inside the region of line 2",
        ),
        (
            "### BEGIN SOLUTION\ndef double(x):\n    return 2 * x\n### END SOLUTION",
            "not inside a function",
        ),
        (
            "def double(x):\n    return 2 * y\n\n\n### BEGIN SOLUTION\ny = 3\n### END SOLUTION",
            "not inside a function",
        ),
        (
            "def double(x):\n    ## begin solution\n    return x\n    ### END SOLUTION",
            'should read "### BEGIN SOLUTION"',
        ),
        (
            "def double(x):\n    ### BEGIN SOLUTION\n    # nothing\n    ### END SOLUTION",
            "holds no code",
        ),
        (
            "def double(x):\n  ### BEGIN SOLUTION\n    return x\n  ### END SOLUTION\n    return x",
            "not Python any more",
        ),
    ],
)
def test_refuses_solution_regions_that_leave_no_stub(tmp_path: Path, text: str, says: str) -> None:
    cells = [code("setup", tiny.CHECK), exercise(text), check_cell()]
    assert says in refused(tmp_path, *cells)


@pytest.mark.parametrize(
    "text",
    [
        tiny.DOUBLE,
        "def double(x):\n    def body(ref):\n        ### BEGIN SOLUTION\n        ref[...] = x\n"
        "        ### END SOLUTION\n    return body",
        "def double(x):\n    ### BEGIN SOLUTION\n    y = x\n    ### END SOLUTION\n"
        "    ### BEGIN SOLUTION\n    return y\n    ### END SOLUTION",
    ],
)
def test_takes_solution_regions_inside_functions(tmp_path: Path, text: str) -> None:
    read(tmp_path, code("setup", tiny.CHECK), exercise(text), check_cell())


def test_names_the_line_of_the_marker(tmp_path: Path) -> None:
    wrong = exercise("import math\n\n\n### BEGIN SOLUTION\ndouble = abs\n### END SOLUTION")
    path = tiny.write(tmp_path, code("setup", tiny.CHECK), wrong, check_cell())
    lines = path.read_text().splitlines()
    with pytest.raises(CourseError, match="not inside a function") as caught:
        read_chapter(path)
    (line,) = {int(m.split("line ")[1].split(":")[0]) for m in str(caught.value).splitlines()}
    assert lines[line - 1] == "### BEGIN SOLUTION"


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (code("double", tiny.DOUBLE, tags=["exercise"]), "add `:exercise: tiny.name`"),
        (
            code("double", tiny.DOUBLE, tags=["exercise"], exercise="other.double"),
            'bad exercise id "other.double": here it is "tiny.name"',
        ),
        (
            code("double", tiny.DOUBLE, tags=["exercise"], exercise="tiny.triple"),
            'a function called "triple", which this cell does not define',
        ),
        (code("double", tiny.DOUBLE), 'a solution region but not the tag "exercise"'),
        (
            code("double", "def double(x):\n    return x", exercise="tiny.double"),
            '`:exercise:` without the tag "exercise"',
        ),
        (
            code("double", tiny.DOUBLE, tags=["exercise", "given"], exercise="tiny.double"),
            'a cell is only one of "given", "exercise"',
        ),
    ],
)
def test_refuses_exercise_cells_that_are_not_labelled(tmp_path: Path, cell: str, says: str) -> None:
    assert says in refused(tmp_path, code("setup", tiny.CHECK), cell, check_cell())


def test_refuses_an_exercise_that_is_not_registered(tmp_path: Path) -> None:
    path = tiny.write(tmp_path, *whole())
    with pytest.raises(CourseError, match=r'"tiny\.double" is not registered in course_lib/exer'):
        read_chapter(path, registry={}.__getitem__)
    read_chapter(path, registry={"tiny.double": "double"}.__getitem__)


def test_refuses_an_exercise_in_two_cells(tmp_path: Path) -> None:
    twin = code("again", tiny.DOUBLE + "\n\n\nz = 1", tags=["exercise"], exercise="tiny.double")
    assert 'more than one cell holds the exercise "tiny.double"' in refused(
        tmp_path, *whole(), twin
    )


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([exercise()], 'no cell below this one calls check("tiny.double", ...)'),
        ([exercise(), code("c", 'check("tiny.double", double)')], 'give it the tag "check"'),
        ([exercise(), check_cell(), code("c", "x", tags=["check"])], "but no check("),
        ([check_cell(), exercise()], 'no cell above this one holds the exercise "tiny.double"'),
    ],
)
def test_wants_a_check_below_every_exercise(tmp_path: Path, cells: list[str], says: str) -> None:
    assert says in refused(tmp_path, *cells)


@pytest.mark.parametrize("header", ["", "---\njupytext: {}\n---\n", "---\njupytext: myst\n---\n"])
def test_refuses_a_file_without_the_header(tmp_path: Path, header: str) -> None:
    path = tiny.write(tmp_path, *whole(), header=header)
    with pytest.raises(CourseError, match="line 1: the file starts with a header"):
        read_chapter(path)


@pytest.mark.parametrize(
    "text", ['+++ {"id": x}\n\ntext\n', "```{code-cell}\n:id: [\nx\n```\n", "+++ 3\n\ntext\n"]
)
def test_refuses_options_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    assert "solutions/00_tiny.md" in refused(tmp_path, text)


def test_refuses_a_name_without_a_number(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"called NN_title\.md"):
        read_chapter(tiny.write(tmp_path, *whole(), name="tiny"))


def test_finds_chapters_by_number_title_or_file(tmp_path: Path) -> None:
    first, second = (tiny.write(tmp_path, name=n) for n in ("00_tiny", "01_small"))
    tiny.write(tmp_path, name="README")
    course = Course(root=tmp_path)
    assert find_sources(course) == [first, second]
    for name in ("1", "01", "small", "01_small", "solutions/01_small.md", "01_small.ipynb"):
        assert find_sources(course, [name]) == [second]
    assert find_sources(course, ["01", "00"]) == [first, second]
    with pytest.raises(CourseError, match=r'no chapter "02"\. The chapters are: 00_tiny, 01_small'):
        find_sources(course, ["02"])
