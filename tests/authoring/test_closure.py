"""A chapter depends on the library's files that its code can reach, and on no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.authoring.closure import digest, reached_files
from course_lib.authoring.source import Cell, Chapter

DOOR = """
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.explorer import waves

_HOMES = {"run": "course_lib.runtime", "waves": "explorer"}


def __getattr__(name):
    return getattr(importlib.import_module(_HOMES[name]), name)
"""

LIBRARY = {
    "__init__.py": DOOR,
    "runtime.py": "def run():\n    from . import model\n    return model\n",
    "model.py": 'COMMAND = ["python", "-m", "course_lib.workers.child"]\n',
    "workers/__init__.py": "",
    "workers/child.py": "import numpy\n",
    "explorer/__init__.py": "from course_lib.explorer.views import draw\n\nwaves = draw\n",
    "explorer/views.py": "draw = print\n",
    "explorer/layouts.mjs": "export const a = 1;\n",
    "explorer/records/h200.json": "{}\n",
    "kernels/__init__.py": "",
    "kernels/tiny.py": "from .. import layouts\n",
    "kernels/other.py": "",
    "layouts.py": "",
    "exercises/__init__.py": "",
    "exercises/tiny.py": "from course_lib.kernels import tiny\n",
    "exercises/other.py": "",
    "unused.py": "",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in LIBRARY.items():
        path = tmp_path / "course_lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "course_lib"


def chapter(*cells: str) -> Chapter:
    code = [Cell(f"c{n}", "code", text, n) for n, text in enumerate(cells)]
    return Chapter(Path("solutions/00_tiny.md"), "\n".join(cells), tuple(code))


def reached(library: Path, *cells: str) -> set[str]:
    files = reached_files(chapter(*cells), library)
    return {f.relative_to(library).as_posix() for f in files}


def test_nothing_of_the_library_is_reached_by_other_imports(library: Path) -> None:
    assert reached(library, "import numpy\nfrom jax import numpy as jnp") == set()


def test_of_the_front_door_only_the_names_asked_for_count(library: Path) -> None:
    run = {"__init__.py", "runtime.py", "model.py", "workers/__init__.py", "workers/child.py"}
    views = {"explorer/__init__.py", "explorer/views.py"}
    data = {"explorer/layouts.mjs", "explorer/records/h200.json"}
    assert reached(library, "from course_lib import run") == run
    assert reached(library, "from course_lib import waves") == {"__init__.py", *views, *data}
    assert reached(library, "from course_lib import run, waves") == run | views | data


def test_the_whole_front_door_counts_where_the_names_are_not_known(library: Path) -> None:
    for text in ("import course_lib", "from course_lib import *", "from course_lib import magic"):
        assert {"runtime.py", "workers/child.py"} <= reached(library, text)


def test_relative_imports_and_submodules_are_followed(library: Path) -> None:
    assert reached(library, "from course_lib.kernels import tiny") == {
        "__init__.py", "kernels/__init__.py", "kernels/tiny.py", "layouts.py",
    }  # fmt: skip
    assert reached(library, "import course_lib.kernels.tiny as t") == reached(
        library, "from course_lib.kernels.tiny import kernel"
    )


def test_imports_inside_functions_and_below_magics_are_followed(library: Path) -> None:
    inside = "def f():\n    from course_lib.kernels import other\n    return other"
    assert "kernels/other.py" in reached(library, inside)
    assert "kernels/other.py" in reached(library, f"%%time\n{inside}")


def test_the_exercises_that_are_named_count(library: Path) -> None:
    files = reached(library, 'check("tiny.double", double)')
    assert files >= {"exercises/tiny.py", "kernels/tiny.py"}
    assert "exercises/other.py" not in files


def test_the_digest_follows_code_and_reached_files_and_nothing_else(library: Path) -> None:
    text = "from course_lib import run"
    before = digest(chapter(text), library)
    (library / "unused.py").write_text("x = 1\n")
    (library / "__pycache__").mkdir()
    (library / "__pycache__" / "model.cpython-312.pyc").write_bytes(b"x")
    assert digest(chapter(text), library) == before
    assert digest(chapter(text, "x = 1"), library) != before
    (library / "workers" / "child.py").write_text("import jax\n")
    assert digest(chapter(text), library) != before


def test_the_digest_follows_new_and_changed_data_files(library: Path) -> None:
    text = "from course_lib import waves"
    digests = [digest(chapter(text), library)]
    for name in ("layouts.mjs", "records/h200.json", "records/b200.json"):
        (library / "explorer" / name).write_text("other\n")
        digests.append(digest(chapter(text), library))
    assert len(set(digests)) == 4


def test_a_library_file_that_is_not_python_yet_is_no_error(library: Path) -> None:
    (library / "model.py").write_text("def (")
    assert "model.py" in reached(library, "from course_lib import run")


def test_the_front_door_of_this_course_is_followed() -> None:
    library = Path(__file__).parents[2] / "course_lib"
    files = reached(library, "from course_lib import run")
    assert {"runtime.py", "model.py", "notebook.py", "authoring/cellids.py"} <= files
    assert not any(f.startswith("exercises/") or f == "authoring/notebooks.py" for f in files)
    assert "exercises/registry.py" in reached(library, "from course_lib import check")
