"""What is stored of an output, and which outputs are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from course_lib.authoring.canonical import WIDGET_VIEW, clean_outputs
from course_lib.authoring.execution import output_problems


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def problems(output: dict[str, Any], *tags: str) -> list[str]:
    cell = nbformat.from_dict({"metadata": {"tags": list(tags)}, "outputs": [output]})
    return list(output_problems(cell, root=Path("/somewhere/course")))


def test_adjacent_pieces_of_a_stream_are_joined() -> None:
    pieces = [
        stream("a"),
        stream("b\n"),
        stream("c", "stderr"),
        stream("d"),
        shown({}),
        stream("e"),
    ]
    texts = [(o.get("name"), o.get("text")) for o in clean_outputs(pieces)]
    assert texts == [
        ("stdout", "ab\n"), ("stderr", "c"), ("stdout", "d"), (None, None), ("stdout", "e"),
    ]  # fmt: skip


def test_a_widget_leaves_its_picture_and_its_text() -> None:
    (output,) = clean_outputs(
        [shown({WIDGET_VIEW: {"model_id": "1"}, "text/plain": "Waves(4)", "image/png": "AA=="})]
    )
    assert output.data == {"text/plain": "Waves(4)", "image/png": "AA=="}


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (stream("careful\n", "stderr"), "writes to stderr (careful)"),
        (stream("/somewhere/course/solutions/x.md"), "a path of this machine"),
        (stream("in /tmp/x.py"), "a path of this machine"),
        (stream("File ipykernel_12/34.py"), "a path of this machine"),
        (shown({"text/plain": "<object at 0x7f2a1c0d>"}), "an address in memory"),
        (shown({"image/png": "AA==", "text/plain": "<Figure>"}), "a picture without alt text"),
        (shown({"image/png": "AA=="}, {"image/png": {"alt": " "}}), "a picture without alt text"),
        (shown({"image/svg+xml": "<svg/>"}), "a picture without alt text"),
    ],
)
def test_refuses_what_another_run_or_reader_would_not_see(
    output: dict[str, Any], says: str
) -> None:
    (problem,) = problems(output)
    assert says in problem


@pytest.mark.parametrize(
    "output",
    [
        stream("careful\n"),
        stream("cell fill, line 3: solutions/x.md"),
        shown({"text/plain": "Tile(at 0x40)"}),
        shown({"image/png": "AA=="}, {"image/png": {"alt": "four warps"}}),
        shown({"image/png": "AA==", "text/html": '<img alt="four warps">'}),
        shown({"image/svg+xml": "<svg><title>four warps</title></svg>"}),
    ],
)
def test_takes_what_everybody_sees(output: dict[str, Any]) -> None:
    assert problems(output) == []


def test_an_output_that_is_not_compared_may_differ_but_names_no_path() -> None:
    tag = "nbval-ignore-output"
    assert problems(stream("careful\n", "stderr"), tag) == []
    assert problems(shown({"text/plain": "<object at 0x7f2a1c0d>"}), tag) == []
    assert len(problems(stream("/tmp/x"), tag)) == 1
