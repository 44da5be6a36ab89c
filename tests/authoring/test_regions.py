"""What the learner gets in the place of a solution."""

from __future__ import annotations

import pytest

from course_lib.authoring.regions import learners_text, regions
from tests.authoring import tiny


def test_a_region_becomes_a_comment_and_a_raise_at_its_indent() -> None:
    assert learners_text(tiny.DOUBLE) == (
        "def double(x):\n"
        "    # Your code here (about 2 lines).\n"
        '    raise NotImplementedError("not done yet")'
    )


def test_everything_outside_the_regions_stays() -> None:
    text = (
        "import math\n\n\ndef f(x):\n    def body(ref):\n        ### BEGIN SOLUTION\n"
        "        # why\n\n        ref[...] = math.pi\n        ### END SOLUTION\n"
        "    return body\n\n\ndef g(x):\n    ### BEGIN SOLUTION\n    a = (\n        x\n    )\n"
        "    return a\n    ### END SOLUTION\n    # after\n"
    )
    assert learners_text(text) == (
        "import math\n\n\ndef f(x):\n    def body(ref):\n"
        "        # Your code here (about 1 line).\n"
        '        raise NotImplementedError("not done yet")\n'
        "    return body\n\n\ndef g(x):\n"
        "    # Your code here (about 4 lines).\n"
        '    raise NotImplementedError("not done yet")\n'
        "    # after"
    )


def test_a_stub_raises_only_when_it_is_called() -> None:
    namespace: dict[str, object] = {}
    exec(learners_text(tiny.DOUBLE), namespace)
    double = namespace["double"]
    with pytest.raises(NotImplementedError, match="not done yet"):
        double(1)  # type: ignore[operator]


def test_a_cell_without_a_region_stays_as_it_is() -> None:
    assert learners_text("x = 1\n# solution: begin here") == "x = 1\n# solution: begin here"
    assert regions("x = 1") == []
