"""Validation: whatever a file is, a sentence says so, and what can be read of it is read."""

from __future__ import annotations

import json

import pytest

from course_lib.grading import archives
from course_lib.grading.validation import read

CODE = {"cell_type": "code", "id": "a", "metadata": {}, "source": "x = 1", "outputs": []}


def notebook(*cells: object, **more: object) -> bytes:
    data = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | more
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (b"", "empty", "empty"),
        (b"  \n", "empty", "empty"),
        (b"\xff\xd8\xff\xe0 jpeg", "not-text", "not text"),
        (b"PK\x03\x04\x14\xff\xff", "not-json", "zip file"),
        (b"%PDF-1.7", "not-json", "not JSON"),
        (b'{"cells": [{"cell_type": "co', "not-json", "JSON"),
        (b"[1, 2]", "not-a-notebook", "not a notebook"),
        (b'{"a": 1}', "not-a-notebook", "not a notebook"),
        (notebook(nbformat=5), "nbformat", "format 5"),
        (notebook(cells=7), "not-a-notebook", "no list of cells"),
        (b"[" * 100_000, "not-json", "nested too deeply"),
        (b'{"nbformat": 4, "cells": ' + b"[" * 5_000, "not-json", ""),
        (notebook(*[CODE] * 1_001), "too-many-cells", "1001 cells"),
    ],
)
def test_what_is_no_notebook_is_said(data: bytes, kind: str, says: str) -> None:
    found, [problem] = read(data)
    assert found is None
    assert problem.kind == kind
    assert says in problem.sentence


def test_a_file_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.grading.validation.MAX_NOTEBOOK_BYTES", 100)
    found, [problem] = read(b" " * 101)
    assert found is None
    assert problem.kind == "too-large"
    assert archives.MAX_NOTEBOOK_BYTES < 200 << 20


@pytest.mark.parametrize(
    "data",
    [
        notebook(CODE),
        b"\xef\xbb\xbf" + notebook(CODE),
        notebook(CODE).decode().encode("utf-16"),
        notebook({**CODE, "source": ["x ", "= 1"]}),
        notebook({**CODE, "metadata": None, "outputs": "none"}),
        notebook({**CODE, "id": None, "metadata": {"id": "a"}}),
        notebook(CODE, metadata=[]),
    ],
)
def test_what_other_programs_write_is_read(data: bytes) -> None:
    found, problems = read(data)
    assert found is not None
    assert problems == ()
    assert (found.cells[0].source, found.cells[0].id) == ("x = 1", "a")


def test_a_notebook_of_format_3_is_read() -> None:
    cell = {"cell_type": "code", "input": ["x = 1"], "language": "python", "outputs": []}
    cell |= {"metadata": {}, "collapsed": False, "prompt_number": 1}
    sheet = {"cells": [cell], "metadata": {}}
    data = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [sheet]}
    found, _ = read(json.dumps(data).encode())
    assert found is not None
    assert found.cells[0].source == "x = 1"


def test_a_large_notebook_of_format_3_is_not_converted() -> None:
    """Converting takes hundreds of bytes for each brace."""
    cell = {"cell_type": "code", "input": ["x = 1"], "language": "python", "outputs": []}

    def old(count: int) -> bytes:
        sheet = {"cells": [cell], "metadata": {"x": [{}] * count}}
        return json.dumps({"nbformat": 3, "worksheets": [sheet], "metadata": {}}).encode()

    found, problems = read(old(700_000))
    assert found is None
    assert "save it anew" in problems[0].sentence
    found, problems = read(old(1_000))
    assert found is not None
    assert problems == ()


def test_broken_cells_are_said_and_the_others_read() -> None:
    found, problems = read(notebook(7, {"cell_type": "heading"}, {**CODE, "source": 3}, CODE))
    assert found is not None
    assert [c.source for c in found.cells] == ["", "x = 1"]
    assert [p.kind for p in problems] == ["no-cell", "no-cell", "no-source", "duplicate-id"]


def test_halves_of_characters_do_not_get_through() -> None:
    found, _ = read(notebook({**CODE, "source": "s = '\ud800 \0'"}))
    assert found is not None
    found.cells[0].source.encode("utf-8")
    assert "\0" not in found.cells[0].source


def test_as_many_cells_and_as_much_code_as_allowed_and_no_more() -> None:
    found, problems = read(notebook(*[{**CODE, "id": f"c{n}"} for n in range(1_000)]))
    assert found is not None
    assert (len(found.cells), problems) == (1_000, ())
    long = {**CODE, "source": "x" * 100_000}
    found, problems = read(notebook({**CODE, "source": "y"}, {**long, "id": "b"}))
    assert found is not None
    assert (len(found.cells[1].source), problems) == (100_000, ())
    found, problems = read(notebook(CODE, {**long, "id": "b", "source": "x" * 100_001}))
    assert found is not None
    assert [c.source for c in found.cells] == ["x = 1", ""]
    assert "100,001 characters" in problems[0].sentence
    found, problems = read(notebook(*[long] * 11))
    assert found is None
    assert problems[0].kind == "too-much-code"


def test_of_metadata_and_outputs_stays_what_is_looked_at() -> None:
    """Nothing that is nested, long, or cannot be written gets any further."""
    deep: object = "x"
    for _ in range(400):
        deep = [deep]
    tags = ["exercise", "nbval-\ud800", "nbval-skip", 7, "nbval-" + "x" * 10_000, *["t"] * 1_000]
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["right\n", "\ud800" * 3]},
        {"output_type": "display_data", "data": {"text/plain": "<Figure>", "image/png": "A" * 99}},
        {"output_type": "stream", "text": "long" * 100_000},
        {"output_type": "execute_result", "data": deep, "metadata": deep},
        "none",
    ]  # fmt: skip
    cell = {**CODE, "metadata": {"tags": tags, "exercise": "a.b", "deep": deep}, "outputs": outputs}
    found, problems = read(notebook(cell))
    assert found is not None
    assert problems == ()
    [clean] = found.cells
    assert set(clean.metadata) == {"tags", "exercise"}
    assert clean.metadata.tags[:3] == ["exercise", "nbval-?", "nbval-skip"]
    assert max(map(len, clean.metadata.tags)) <= 100
    assert [o.text[:8] for o in clean.outputs] == ["right\n??", "<Figure>", "longlong"]
    assert len(json.dumps(found).encode()) < 40_000


def test_of_many_problems_the_first_are_said() -> None:
    _, problems = read(notebook(*["no cell"] * 500))
    assert len(problems) == 21
    assert problems[-1].sentence == "And 480 more like these."
    _, problems = read(notebook(*["no cell"] * 20))
    assert len(problems) == 20
