"""A finding is short, plain and the same at every run; an error is a sentence in a notebook."""

import json

from course_lib.diagnostics import (
    Access,
    CourseError,
    Finding,
    KernelError,
    Severity,
    locate,
    own_frame,
    register_cell,
)


def _finding(**kwargs):
    return Finding("data-race", Severity.ERROR, "Two threads write the same SMEM.", **kwargs)


def test_text_names_rule_severity_and_lines():
    place = locate("/somewhere/kernel.py", 12)
    text = str(_finding(accesses=(Access("writes a_smem[0:64]", "thread 1", place),), fix="Wait."))
    assert text.splitlines()[0] == "error [data-race] Two threads write the same SMEM."
    assert "thread 1 writes a_smem[0:64] (kernel.py:12)" in text
    assert "Fix: Wait." in text


def test_text_never_exceeds_twelve_lines():
    long = " ".join(["word"] * 400)
    assert len(str(_finding(why=long, fix=long)).splitlines()) == 12
    assert len(str(_finding(why="Short.", fix="Short.")).splitlines()) == 3


def test_the_location_is_the_last_access_unless_one_is_given():
    first, last, other = (locate("k.py", n) for n in (1, 2, 3))
    accesses = (Access("a", where=first), Access("b", where=last))
    assert _finding(accesses=accesses).location == last
    assert _finding(accesses=accesses, where=other).location == other
    assert _finding().location is None


def test_it_becomes_plain_json():
    data = _finding(accesses=(Access("writes", "thread 0", locate("k.py", 4)),)).to_dict()
    assert json.loads(json.dumps(data))["accesses"][0]["where"]["text"] == "k.py:4"


def test_a_cell_is_called_by_its_name_and_a_file_by_its_own():
    register_cell("/tmp/ipykernel_1/123.py", "first-copy")
    assert str(locate("/tmp/ipykernel_1/123.py", 3)) == "cell first-copy, line 3"
    assert str(locate("/tmp/ipykernel_1/456.py", 3)) == "456.py:3"


def test_own_frame_is_the_readers_line_and_not_the_librarys():
    import numpy as np

    try:
        np.zeros(3).reshape(2, 2)
    except ValueError as error:
        place = own_frame(error)
    assert place is not None
    assert place.file == __file__
    try:
        json.loads("{")
    except ValueError as error:
        place = own_frame(error.__traceback__.tb_next)
    assert place is None


def test_an_error_shows_its_sentence_and_no_traceback_in_a_notebook():
    error = KernelError("The copy was not awaited.", [_finding()])
    assert error._render_traceback_() == ["KernelError: The copy was not awaited."]
    assert error.findings[0].rule == "data-race"
    assert isinstance(error, CourseError)
