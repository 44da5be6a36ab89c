"""The picture of the memory spaces: every number has a source, and the chapter has them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from course_lib.figures import memory, png

CHAPTER = Path(__file__).resolve().parents[2] / "solutions" / "01_memory_spaces.md"


def _numbers() -> Iterator[memory.Number]:
    for space in memory.SPACES:
        for pair in (space.size, space.bandwidth, space.latency):
            yield from (n for n in pair if n is not None)


def test_draws_the_same_picture_twice() -> None:
    assert isinstance(memory.memory_spaces(), Figure)
    assert png(memory.memory_spaces()) == png(memory.memory_spaces())


def test_every_number_has_a_source_or_is_called_unknown() -> None:
    for number in _numbers():
        if number.text == "unknown":
            continue
        assert number.source, number
        named = [s for s in memory.SOURCES if s in number.source]
        assert named, f"{number} names no source of SOURCES"


def test_every_source_is_used() -> None:
    used = " ".join(n.source for n in _numbers())
    assert [s for s in memory.SOURCES if s not in used] == []


@pytest.mark.parametrize("space", memory.SPACES, ids=lambda s: s.name)
def test_the_alternative_text_names_every_space_and_its_size(space: memory.Space) -> None:
    assert space.name in memory.ALT
    assert all(n.text.split(" per")[0] in memory.ALT for n in space.size if n is not None)


def test_the_chapter_links_every_source_and_repeats_every_number() -> None:
    text = CHAPTER.read_text(encoding="utf-8")
    assert [url for url in memory.SOURCES.values() if url not in text] == []
    assert sorted({n.text for n in _numbers() if n.text not in text}) == []
