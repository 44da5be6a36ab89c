"""Dependencies point one way, the lower rooms are light, and so is the front door."""

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_lib.setup_env import ROOT
from tests.packaging.project import PYPROJECT

LIBRARY = ROOT / "course_lib"
FRONT = "front door"

# From the bottom up. A room imports rooms of the layers below its own, wherever the import stands.
LAYERS = (
    {"diagnostics", "setup_env", "wheels"},
    {"layouts", "tracing", "user_code", "workers"},
    {"compiler", "figures", "kernels", "simulator"},
    {"cpu model"},
    {"runtime"},
    {"mojo"},
    {"benchmarks", "exercises", "explorer"},
    {"authoring"},
    {"grading"},
    {"notebook", "chapter_check", "lab"},
    {FRONT},
    {"cli"},
    {"__main__"},
)
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
SAME_ROOM = {"model": "cpu model"}


def room_of(module: str) -> str:
    """The room of a dotted module name."""
    parts = module.split(".")
    name = parts[1] if len(parts) > 1 else FRONT
    return SAME_ROOM.get(name, name)


def imports_of(code: str) -> Iterator[str]:
    """The course's modules that a module imports, those inside functions included.

    `import course_lib` alone, as to find its folder, loads nothing and does not count.
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("course_lib."))
        elif isinstance(node, ast.ImportFrom) and node.module == "course_lib":
            yield from (f"course_lib.{a.name}" for a in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("course_lib."):
            yield str(node.module)


def upward(module: str, code: str) -> list[str]:
    """The imports of a module that do not point downwards, in words."""
    mine = room_of(module)
    return [
        f"{module} ({mine}) imports {other} ({room_of(other)})"
        for other in imports_of(code)
        if room_of(other) != mine and RANK[room_of(other)] >= RANK[mine]
    ]


def modules() -> dict[str, Path]:
    """Every module of the library, by its dotted name."""
    return {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in sorted(LIBRARY.rglob("*.py"))
    }


def test_every_room_has_a_layer() -> None:
    assert {room_of(m) for m in modules()} - RANK.keys() == set()


def test_dependencies_point_one_way() -> None:
    assert [u for m, path in modules().items() for u in upward(m, path.read_text())] == []


@pytest.mark.parametrize(
    ("module", "code", "wrong"),
    [
        ("course_lib.layouts.grid", "from course_lib.diagnostics import CourseError", False),
        ("course_lib.layouts.grid", "from course_lib.simulator import ir", True),
        ("course_lib.simulator.ir", "def f():\n    from course_lib import runtime", True),
        ("course_lib.kernels.a", "import course_lib.compiler.targets", True),  # its own layer
        ("course_lib.kernels.a", "import course_lib.kernels.b", False),
        ("course_lib.compiler.a", "import course_lib", False),
    ],
)
def test_what_counts_as_pointing_upward(module: str, code: str, wrong: bool) -> None:
    assert bool(upward(module, code)) is wrong


def _loaded_after(code: str) -> set[str]:
    """The top-level packages that a fresh Python has loaded after `code`."""
    program = f"import sys\n{code}\nprint(*{{m.split('.')[0] for m in sys.modules}})"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(said.stdout.split())


HEAVY = {"jax", "jaxlib", "IPython", "ipywidgets", "anywidget", "matplotlib"}


@pytest.mark.parametrize("room", ["diagnostics", "layouts", "simulator.machine"])
def test_the_lower_rooms_import_neither_jax_nor_a_widget(room: str) -> None:
    names = [m for m in modules() if m.startswith(f"course_lib.{room}")]
    assert names, f"there is no {room}"
    assert _loaded_after("\n".join(f"import {m}" for m in names)) & HEAVY == set()


def test_views_come_without_matplotlib_and_jax() -> None:
    """A notebook's first cell shows one, within two seconds."""
    shown = "from course_lib import explore\nexplore.smem(64, 64)._repr_mimebundle_()"
    assert _loaded_after(shown) & {"matplotlib", "jax", "jaxlib"} == set()


@pytest.mark.parametrize("module", ["course_lib", "course_lib.cli", "course_lib.lab"])
def test_the_front_door_and_the_command_line_are_light(module: str) -> None:
    loaded = _loaded_after(f"import {module}")
    assert loaded & (HEAVY | {"numpy", "nbformat", "jupyter_client"}) == set()


def test_the_set_up_needs_the_standard_library_only() -> None:
    """It runs before anything is installed, under a Python that knows nothing of the course."""
    tree = ast.parse((LIBRARY / "setup_env.py").read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
        if name
    }
    assert imported - sys.stdlib_module_names - {"__future__"} == set()


def _third_party() -> set[str]:
    """The distributions that the library's modules import, wherever the import stands."""
    roots = (
        {
            name.split(".")[0]
            for path in modules().values()
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0)
            for name in (
                [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            )
            if name
        }
        - sys.stdlib_module_names
        - {"course_lib"}
    )
    owners = importlib.metadata.packages_distributions()
    return {canonicalize_name(owners[r][0]) if r in owners else r for r in roots}


def test_what_the_library_imports_is_declared() -> None:
    """A package that only happens to be there, for another's sake, may go with any update."""
    project = PYPROJECT["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["grading"]]
    declared = {canonicalize_name(Requirement(r).name) for r in listed}
    assert _third_party() - declared - {"jaxlib"} == set()  # jaxlib is jax's other half
