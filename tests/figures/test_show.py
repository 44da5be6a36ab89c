"""`show`: a picture reaches the notebook as a PNG with its alternative text."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image

from course_lib import figures
from course_lib.figures import sm, style


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What was displayed: `(data, metadata)` of each picture."""
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def display(data: dict[str, Any], *, raw: bool, metadata: dict[str, Any]) -> None:
        assert raw
        seen.append((data, metadata))

    monkeypatch.setattr("IPython.display.display", display)
    return seen


def test_a_picture_says_what_it_shows(shown: list[Any]) -> None:
    figures.show(sm.one_sm())
    [(data, metadata)] = shown
    assert data["text/plain"] == metadata["image/png"]["alt"] == sm.one_sm().get_label()
    assert "four quadrants" in data["text/plain"]


def test_alt_replaces_the_label(shown: list[Any]) -> None:
    figures.show(sm.one_sm(), alt="an SM")
    assert shown[0][0]["text/plain"] == "an SM"


def test_a_picture_without_text_is_refused(shown: list[Any]) -> None:
    fig, _ = style.canvas(1.0)
    with pytest.raises(ValueError, match="what the picture shows"):
        figures.show(fig, alt="  ")
    assert shown == []


def test_a_picture_has_a_light_background_and_twice_the_pixels_of_its_width(
    shown: list[Any],
) -> None:
    figures.show(sm.ping_pong())
    data, metadata = shown[0]
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert metadata["needs_background"] == "light"
    assert image.width == 2 * metadata["image/png"]["width"] == 1520
    assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


def test_a_png_is_the_same_at_every_run_and_names_no_version() -> None:
    first, second = figures.png(sm.one_sm()), figures.png(sm.one_sm())
    assert first == second
    assert b"Software" not in first
