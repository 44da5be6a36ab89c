"""The picture of chapter 22 says what the two softmax kernels do."""

import pytest

from course_lib.figures import png, two_languages


@pytest.mark.parametrize("cols", [1024, 256])
def test_the_picture_counts_the_numbers_of_a_lane(cols):
    figure = two_languages.who_holds_a_row(cols=cols)
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert texts.count("lane 0") == 2
    assert any(t.endswith(f"{cols // 32} in all") for t in texts)
    assert any(t.endswith(f"{cols // 128} in all") for t in texts)
    assert f"lane 0 has {cols // 128} numbers in all" in figure.get_label()
    assert png(figure) == png(two_languages.who_holds_a_row(cols=cols))
