"""The pictures of chapter 21 show what a tree and a layout of lanes really do."""

import numpy as np
import pytest

from course_lib.figures import mojo_tiles, png


@pytest.mark.parametrize(("threads", "warp"), [(16, 4), (8, 2), (32, 8)])
def test_the_tree_s_picture_holds_the_sums_of_a_tree(threads, warp):
    figure = mojo_tiles.tree_of_sums(threads=threads, warp=warp)
    slots, active, totals = np.ones(threads, int), threads, [warp]
    while active > 1:
        active //= 2
        slots[:active] += slots[active : 2 * active]
        totals.append(int(slots[:warp].sum()))
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert [t for t in texts if t.endswith(", right")] == [f"{threads}, right"]
    assert threads in totals
    assert f"at the end the sum is {totals[-1]}." in figure.get_label()


def test_the_fragment_s_picture_deals_each_vector_to_one_lane():
    figure = mojo_tiles.fragments(marked=5)
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert all(texts.count(f"lane {lane}") == 4 for lane in range(32))
    assert "row 1, columns 4 to 7" in figure.get_label()
    assert png(figure) == png(mojo_tiles.fragments(marked=5))
