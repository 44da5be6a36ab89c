"""Honest answers that look unusual: other names, helpers elsewhere, other styles of JAX."""

from __future__ import annotations

import dataclasses


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
