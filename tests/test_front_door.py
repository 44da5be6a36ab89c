"""`import course_lib` is light, and its names are there when they are asked for."""

import subprocess
import sys

import pytest

import course_lib


def test_importing_the_course_imports_neither_jax_nor_widgets():
    code = "import sys, course_lib; print([m for m in ('jax', 'numpy', 'anywidget', 'matplotlib')"
    code += " if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", course_lib.__all__)
def test_every_name_of_the_front_door_opens(name):
    assert getattr(course_lib, name) is not None
    assert name in dir(course_lib)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = course_lib.simulat
