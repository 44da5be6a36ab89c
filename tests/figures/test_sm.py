"""The pictures of an SM: what their texts say is what they were drawn from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from course_lib.figures import sm, style


def _texts(fig) -> list[str]:
    return [t.get_text() for ax in fig.axes for t in ax.texts]


def test_blocks_that_do_not_fit_wait() -> None:
    fig = sm.blocks_on_sms(blocks=11, sms=4, per_sm=2)
    assert "SM 3 holds blocks 3, 7" in fig.get_label()
    assert fig.get_label().endswith("3 wait for a place.")
    assert "block 8" not in _texts(fig)


def test_all_blocks_run_where_there_is_room() -> None:
    label = sm.blocks_on_sms(blocks=2, sms=4).get_label()
    assert "SM 1 holds block 1; SM 2 holds no block" in label
    assert label.endswith("0 wait for a place.")


def test_who_wrote_names_the_parts_of_a_vector() -> None:
    numbers = np.repeat([0.0, 1.0, np.nan], 128)
    fig = sm.who_wrote(numbers)
    label = fig.get_label()
    assert "[0:128] by block 0; [128:256] by block 1; [256:384] never written" in label
    assert {"block 0", "block 1", "never written"} <= set(_texts(fig))


def test_who_wrote_names_the_tiles_of_a_matrix() -> None:
    numbers = np.kron(np.arange(6).reshape(2, 3), np.ones((64, 128)))
    label = sm.who_wrote(numbers, unit="thread").get_label()
    assert "[0:64, 256:384] by thread 2; [64:128, 0:128] by thread 3" in label


def test_one_block_is_one_region() -> None:
    assert sm.who_wrote(np.zeros((64, 128))).get_label().count("by block") == 1


def test_no_text_of_the_sm_leaves_the_picture() -> None:
    fig = sm.one_sm()
    fig.canvas.draw()
    for text in fig.axes[0].texts:
        extent = text.get_window_extent()
        assert 0 <= extent.x0 < extent.x1 <= fig.bbox.width, text.get_text()


@pytest.mark.parametrize("fig", [sm.one_sm(), sm.ping_pong(), sm.blocks_on_sms()])
def test_no_two_texts_overlap(fig) -> None:
    fig.canvas.draw()
    boxes = [(t.get_text(), t.get_window_extent()) for t in fig.axes[0].texts]
    for (a, box_a), (b, box_b) in itertools.combinations(boxes, 2):
        assert not box_a.overlaps(box_b), f"{a!r} overlaps {b!r}"


def test_dark_text_reads_on_every_colour() -> None:
    def lightness(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    ink = lightness(style.INK)
    assert all(lightness(c) - ink > 0.4 for c in style.CYCLE)
