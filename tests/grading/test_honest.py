"""Honest answers that look unusual keep full marks; with one slip in each, they earn nothing.

All of them are marked as `test_cheats` marks its cheats: traced in the sandbox, read strictly,
run on hidden data. They share one notebook, so their helpers have names of their own.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest

from course_lib.grading.marking import ask, mark_asked
from course_lib.grading.model import ExerciseMark, SourceCell
from course_lib.grading.tracing import Asked
from tests.grading.answers import RUBRIC, SEED, box, solved

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow]


@dataclasses.dataclass(frozen=True)
class Honest:
    """An answer.

    Attributes:
      exercise: what it answers.
      answer: the exercise's cell.
      slip: what to replace in any of its cells, and by what, for it to be wrong.
      above, below: cells that the student added, right above and below.
    """

    exercise: str
    answer: str
    slip: tuple[str, str]
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


_REVERSE = "start_here.reverse_rows"
_IOTA = "start_here.fill_iota"
_SLIP = ("rows - 1 - row", "row")

_PLAIN_REVERSE = """
def reverse_rows(x):
    rows = x.shape[0]

    @functools.partial(plgpu.kernel, out_type=x, grid=(rows,), grid_names=("row",))
    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[rows - 1 - row] = x_gmem[row]

    return kernel(x)
"""

ANSWERS: dict[str, Honest] = {
    "the course's own": Honest(_REVERSE, _PLAIN_REVERSE, _SLIP),
    "other names for everything": Honest(
        _REVERSE,
        """
def reverse_rows(matrix: jax.Array) -> jax.Array:
    '''Upside down.'''
    height, _ = matrix.shape

    @functools.partial(plgpu.kernel, out_type=matrix, grid=(height,), grid_names=("zeile",))
    def turn(source, destination):
        this = jax.lax.axis_index("zeile")
        other = height - 1 - this  # its mirror image
        destination[other] = source[this]

    result = turn(matrix)
    return result
""",
        ("height - 1 - this", "this"),
    ),
    "helpers in cells above": Honest(
        _REVERSE,
        """
def reverse_rows(x):
    return _on_each_row(x, _mirrored)
""",
        _SLIP,
        above=(
            "def _mirrored(row, rows):\n    return rows - 1 - row\n",
            "import jax.experimental.pallas.mosaic_gpu as gpu\nNAME = 'row'\n",
            """
def _on_each_row(x, target):
    def body(x_gmem, y_gmem):
        row = jax.lax.axis_index(NAME)
        y_gmem[target(row, x.shape[0])] = x_gmem[row]

    return gpu.kernel(body, out_type=x, grid=x.shape[:1], grid_names=(NAME,))(x)
""",
        ),
    ),
    "helpers in the other order, one of them below": Honest(
        _REVERSE,
        """
def reverse_rows(x):
    return _each_row(x)
""",
        _SLIP,
        above=(
            """
def _each_row(x):
    def body(x_gmem, y_gmem):
        row = jax.lax.axis_index(AXIS)
        y_gmem[_mirror(row, x.shape[0])] = x_gmem[row]

    return plgpu.kernel(body, out_type=x, grid=x.shape[:1], grid_names=(AXIS,))(x)
""",
            "AXIS = 'row'\n",
        ),
        below=("def _mirror(row, rows):\n    return rows - 1 - row\n",),
    ),
    "jax.jit around": Honest(
        _REVERSE, _PLAIN_REVERSE + "\nreverse_rows = jax.jit(reverse_rows)\n", _SLIP
    ),
    "functools.partial and a lambda": Honest(
        _REVERSE,
        """
from jax import lax

def _turned(x, *, axis):
    rows = x.shape[0]
    target = lambda row: rows - 1 - row

    def body(x_gmem, y_gmem):
        y_gmem[target(lax.axis_index(axis))] = x_gmem[lax.axis_index(axis)]

    return plgpu.kernel(body, out_type=x, grid=(rows,), grid_names=(axis,))(x)

reverse_rows = functools.partial(_turned, axis="row")
""",
        _SLIP,
    ),
    "Windows line ends": Honest(_REVERSE, _PLAIN_REVERSE.replace("\n", "\r\n"), _SLIP),
    "jax.jit with static numbers, Windows line ends": Honest(
        _IOTA,
        """
@functools.partial(jax.jit, static_argnames=("blocks",))
def fill_iota(*, blocks):
    def body(y_gmem):
        start = LANES * jax.lax.axis_index("block")
        part = y_gmem.at[pl.ds(start, LANES)]
        part[...] = jax.lax.iota(jnp.int32, LANES) + start

    out = jax.ShapeDtypeStruct((LANES * blocks,), jnp.int32)
    return plgpu.kernel(body, out_type=out, grid=(blocks,), grid_names=("block",))()
""".replace("\n", "\r\n"),
        ("+ start", "- start"),
        above=("LANES = 128\r\n",),
    ),
    "written anew in a cell below": Honest(
        _IOTA,
        "def fill_iota(*, blocks):\n    raise NotImplementedError('not done yet')\n",
        ("start + jnp", "jnp"),
        below=(
            "print('a second try')\n",
            """
def fill_iota(*, blocks):
    shape = jax.ShapeDtypeStruct((blocks * 128,), jnp.int32)

    @functools.partial(plgpu.kernel, out_type=shape, grid=(blocks,), grid_names=("block",))
    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = start + jnp.arange(128)

    return kernel()
""",
        ),
    ),
}
_HELPERS = ("_mirrored", "_on_each_row", "_each_row", "_mirror", "NAME", "AXIS", "LANES")


def with_slip(honest: Honest) -> Honest:
    """The answer with its slip, and with names of its own for its helpers."""

    def edited(text: str) -> str:
        for helper in _HELPERS:
            text = text.replace(helper, f"{helper}_2")
        return text.replace(*honest.slip)

    return dataclasses.replace(
        honest,
        answer=edited(honest.answer),
        above=tuple(map(edited, honest.above)),
        below=tuple(map(edited, honest.below)),
    )


def cells_of(honest: Honest, own: str) -> list[SourceCell]:
    """Its cells, the exercise called `own`, and the check that a chapter has below."""
    sources = (*honest.above, honest.answer, *honest.below)
    cells = [SourceCell(f"{own}-{n}", s, own=True) for n, s in enumerate(sources)]
    home = len(honest.above)
    cells[home] = SourceCell(f"{own}-answer", honest.answer, ("exercise",), own)
    return [*cells, SourceCell(f"{own}-check", "check(...)", ("check",))]


@functools.cache
def marks() -> dict[tuple[str, bool], ExerciseMark]:
    """The marks of all answers, right (True) and with their slips, out of one sandbox."""
    merged = solved("start_here")
    cells, keys = list(merged.cells), []
    asked: list[Asked] = []
    for name, honest in ANSWERS.items():
        for right in (True, False):
            own = f"{honest.exercise}#{len(asked)}"
            cells += cells_of(honest if right else with_slip(honest), own)
            plain = ask(honest.exercise, "", RUBRIC, seed=SEED)
            exercise = dataclasses.replace(plain.exercise, id=own)
            asked.append(dataclasses.replace(plain, exercise=exercise))
            keys.append((name, right))
    merged = dataclasses.replace(merged, cells=tuple(cells))
    return dict(zip(keys, mark_asked(merged, asked, RUBRIC, sandbox=box()), strict=True))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_honest_answer_keeps_full_marks(name: str) -> None:
    mark = marks()[name, True]
    assert (mark.verdict, mark.points) == ("right", RUBRIC.default_points), mark
    assert mark.passed == mark.cases > 0
    assert not mark.flags


@pytest.mark.parametrize("name", ANSWERS)
def test_the_same_answer_with_a_slip_earns_nothing(name: str) -> None:
    assert with_slip(ANSWERS[name]) != ANSWERS[name]
    mark = marks()[name, False]
    assert (mark.verdict, mark.points) == ("wrong", 0), mark
