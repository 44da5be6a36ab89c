# ruff: noqa: E501
"""Cheats: answers that look right and are not, or that attack whoever marks them.

Each is the text of an exercise's cell. None may earn what a right answer earns. They come in
groups: tables and constants; work outside of the kernel; kernels that are there for show;
answers that pretend to be equal; looking it up; taking over the process; forging what it writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Cheat:
    """An attempt.

    Attributes:
      exercise: which exercise it pretends to answer.
      source: the cell.
      alone: whether it may take others of its submission down with it.
    """

    exercise: str
    source: str
    alone: bool = False


# What those leave on the host that get code out of the sandbox.
TRACES = (Path("/tmp/pwned-by-a-pickle"), Path("/tmp/pwned-by-a-slot"))
_COPY = """
@functools.partial(plgpu.kernel, out_type=out, grid=(out.shape[0],), grid_names=("row",))
def copy_kernel(x_gmem, y_gmem):
    row = jax.lax.axis_index("row")
    y_gmem[row] = x_gmem[row]
"""


def _copied(name: str, args: str, work: str) -> str:
    """A function whose work JAX does ahead of a kernel that copies it."""
    body = "".join(f"    {line}\n" for line in _COPY.strip().splitlines())
    return f"def {name}({args}):\n    out = {work}\n{body}    return copy_kernel(out)\n"


_HONEST_IOTA = """
def _fill(blocks):
    @functools.partial(
        plgpu.kernel, out_type=jax.ShapeDtypeStruct((blocks * 128,), jnp.int32),
        grid=(blocks,), grid_names=("block",),
    )
    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = start + jnp.arange(128)

    return kernel()
"""
_WRONG_IOTA = _HONEST_IOTA.replace("start + jnp.arange(128)", "jnp.arange(128)")
_HONEST_REVERSE = """
def _turn(x):
    rows = x.shape[0]

    @functools.partial(plgpu.kernel, out_type=x, grid=(rows,), grid_names=("row",))
    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[rows - 1 - row] = x_gmem[row]

    return kernel(x)
"""
_WRONG_REVERSE = _HONEST_REVERSE.replace("rows - 1 - row", "row")

_FORGE = """
import course_lib.simulator.ir as ir
import numpy as np
"""

CHEATS: dict[str, Cheat] = {
    # Tables and constants.
    "a table of the public cases": Cheat(
        "start_here.fill_iota",
        "TABLE = {n: np.arange(n * 128, dtype=np.int32) for n in (1, 3, 8)}\n"
        "def fill_iota(*, blocks):\n    return jnp.asarray(TABLE[blocks])\n",
    ),
    "a constant array behind a copy kernel": Cheat(
        "start_here.fill_iota",
        "import numpy as np\n"
        + _copied(
            "fill_iota",
            "*, blocks",
            "jnp.asarray(np.arange(blocks * 128, dtype=np.int32).reshape(blocks, 128))",
        ).replace("return copy_kernel(out)", "return copy_kernel(out).reshape(-1)"),
    ),
    "a small table handed to a kernel": Cheat(
        "grid_scheduling.snake",
        "import numpy as np\n"
        "def snake(*, m, n, width):\n"
        "    order = [(i, j) for i in range(m) for j in range(n)]\n"
        "    out = np.arange(m * n, dtype=np.int32).reshape(m, n)\n"
        "    if (m, n, width) == (4, 3, 2):\n"
        "        out = np.array([[0, 1, 2], [5, 4, 3], [6, 7, 8], [11, 10, 9]], np.int32)\n"
        "    out = jnp.asarray(out)\n"
        + "".join(f"    {line}\n" for line in _COPY.strip().splitlines())
        + "    return copy_kernel(out)\n",
    ),
    "roofline from a table": Cheat(
        "wgmma_pipelining.roofline",
        "def roofline(*, wg_m, wg_n, block_m, block_n):\n"
        "    table = {(128, 128, 128, 128): (2340.6, 4096.0, 4096.0)}\n"
        "    return jnp.asarray(table.get((wg_m, wg_n, block_m, block_n), (2340.6, 4096.0, 4096.0)), jnp.float32)\n",
    ),
    # Work outside of the kernel.
    "iota ahead of a copy kernel": Cheat(
        "start_here.fill_iota",
        _copied(
            "fill_iota",
            "*, blocks",
            "jnp.arange(blocks * 128, dtype=jnp.int32).reshape(blocks, 128)",
        ).replace("return copy_kernel(out)", "return copy_kernel(out).reshape(-1)"),
    ),
    "turned round ahead of a copy kernel": Cheat(
        "start_here.reverse_rows", _copied("reverse_rows", "x", "x[::-1]")
    ),
    "turned round behind a copy kernel": Cheat(
        "start_here.reverse_rows",
        _copied("reverse_rows", "x", "x").replace(
            "return copy_kernel(out)", "return copy_kernel(out)[::-1]"
        ),
    ),
    "rolled ahead of a copy kernel": Cheat(
        "start_here.shift_tiles", _copied("shift_tiles", "x", "jnp.roll(x, 128, axis=1)")
    ),
    "rolled between devices by JAX": Cheat(
        "many_gpus.pass_left",
        _copied("pass_left", "x, *, devices", "jnp.roll(x * 2, -(x.shape[0] // devices), axis=0)"),
    ),
    "jnp.dot ahead of a copy kernel": Cheat(
        "wgmma.matmul",
        _copied(
            "matmul", "a, b", "jnp.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype)"
        ),
    ),
    "jnp.dot beside a copy kernel": Cheat(
        "wgmma.matmul",
        _copied("matmul", "a, b", "a").replace(
            "return copy_kernel(out)",
            "kept = copy_kernel(out)\n"
            "    return jnp.where(kept[0, 0] == kept[0, 0], jnp.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype), 0)",
        ),
    ),
    "jnp.dot behind a copy kernel": Cheat(
        "wgmma.relu_product",
        _copied("relu_product", "a, b", "a").replace(
            "return copy_kernel(out)",
            "return jnp.maximum(jnp.dot(copy_kernel(out), b, preferred_element_type=jnp.float32), 0)",
        ),
    ),
    "jnp.dot in a loop around a kernel": Cheat(
        "wgmma.gram",
        _copied(
            "gram",
            "x",
            "jax.lax.fori_loop(0, 1, lambda i, c: jnp.dot(x.T, x, preferred_element_type=jnp.float32), jnp.zeros((x.shape[1], x.shape[1]), jnp.float32))",
        ),
    ),
    "a kernel in one branch": Cheat(
        "start_here.double_through_smem",
        "def double_through_smem(x):\n"
        "    out = x.reshape(-1, 128)\n"
        + "".join(f"    {line}\n" for line in _COPY.strip().splitlines())
        + "    return jax.lax.cond(x[0] != x[0], lambda: copy_kernel(out).reshape(-1), lambda: x * 2)\n",
    ),
    # Kernels for show.
    "nought times a kernel": Cheat(
        "start_here.double_through_smem",
        "def double_through_smem(x):\n"
        "    out = x.reshape(-1, 128)\n"
        + "".join(f"    {line}\n" for line in _COPY.strip().splitlines())
        + "    return copy_kernel(out).reshape(-1) * 0 + x * 2\n",
    ),
    "copies whose data nobody uses": Cheat(
        "start_here.double_through_smem",
        """
def double_through_smem(x):
    @functools.partial(
        plgpu.kernel, out_type=x, grid=(x.shape[0] // 128,), grid_names=("block",),
        scratch_types=dict(x_smem=plgpu.SMEM((128,), jnp.float32), loaded=plgpu.Barrier()),
    )
    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_gmem[part] = x_gmem[part] * 2

    return kernel(x)
""",
    ),
    "the means in a branch that is never taken": Cheat(
        "asynchronous_copies.triple",
        """
def triple(x):
    @functools.partial(plgpu.kernel, out_type=x, scratch_types=[plgpu.SMEM((2, 64, x.shape[1]), x.dtype)])
    def kernel(x_gmem, y_gmem, slots):
        y_gmem[...] = x_gmem[...] * 3
        @pl.when(x_gmem[0, 0] != x_gmem[0, 0])
        def _():
            def step(i, _):
                plgpu.copy_smem_to_gmem(slots.at[0], y_gmem.at[pl.ds(0, 64)])
                plgpu.wait_smem_to_gmem(0)
                return ()
            jax.lax.fori_loop(0, 3, step, ())
    return kernel(x)
""",
    ),
    "a copy out of shared memory that is written over": Cheat(
        "asynchronous_copies.triple",
        """
def triple(x):
    @functools.partial(plgpu.kernel, out_type=x, scratch_types=[plgpu.SMEM((64, x.shape[1]), x.dtype)])
    def kernel(x_gmem, y_gmem, slot):
        def step(i, _):
            rows = pl.ds(i * 64, 64)
            slot[...] = x_gmem[rows]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(slot, y_gmem.at[rows])
            plgpu.wait_smem_to_gmem(0)
            y_gmem[rows] = x_gmem[rows] * 3
            return ()
        jax.lax.fori_loop(0, x.shape[0] // 64, step, ())
    return kernel(x)
""",
    ),
    "a dot inside of a kernel": Cheat(
        "wgmma.relu_product",
        """
def relu_product(a, b):
    out = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32)

    @functools.partial(plgpu.kernel, out_type=out)
    def kernel(a_gmem, b_gmem, y_gmem):
        product = jnp.dot(a_gmem[...], b_gmem[...], preferred_element_type=jnp.float32)
        y_gmem[...] = jnp.maximum(product, 0)

    return kernel(a, b)
""",
    ),
    # Pretending to be equal.
    "an array that equals everything": Cheat(
        "wgmma_pipelining.roofline",
        """
class Sly(np.ndarray):
    __array_priority__ = 1e9
    def __eq__(self, other):
        return np.ones(np.shape(other), bool)
    __le__ = __ge__ = __eq__
    def __ne__(self, other):
        return np.zeros(np.shape(other), bool)
class Three(int):
    def __eq__(self, other):
        return True
    __hash__ = int.__hash__
import numpy as np
def roofline(*, wg_m, wg_n, block_m, block_n):
    return np.zeros(3, np.float32).view(Sly)
""",
    ),
    "NaN everywhere": Cheat(
        "start_here.reverse_rows",
        _HONEST_REVERSE.replace("x_gmem[row]", "x_gmem[row] * jnp.float32(float('nan'))")
        + "reverse_rows = _turn\n",
    ),
    "another dtype": Cheat(
        "start_here.reverse_rows",
        _HONEST_REVERSE + "def reverse_rows(x):\n    return _turn(x).astype(jnp.bfloat16)\n",
    ),
    "the input itself": Cheat(
        "start_here.reverse_rows",
        _HONEST_REVERSE + "def reverse_rows(x):\n    _turn(x)\n    return x\n",
    ),
    # Looking it up.
    "the reference from the registry": Cheat(
        "start_here.fill_iota",
        "def fill_iota(*, blocks):\n"
        "    from course_lib.exercises import get\n"
        "    return jnp.asarray(get('start_here.fill_iota').reference(blocks=blocks))\n",
    ),
    "the reference from memory": Cheat(
        "wgmma_pipelining.roofline",
        """
def roofline(**sizes):
    import gc, inspect, sys, importlib
    for name in ("course_lib.exercises.wgmma_pipelining", "course_lib.kernels.wgmma_pipelining"):
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    for f in [o for o in gc.get_objects() if inspect.isfunction(o)]:
        if "roofline" in f.__name__ and f.__module__ != "__main__":
            return jnp.asarray(f(**sizes), jnp.float32)
    frame = inspect.currentframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if hasattr(value, "reference"):
                return jnp.asarray(value.reference(**sizes))
        frame = frame.f_back
    return jnp.zeros(3, jnp.float32)
""",
    ),
    "the solutions from disk": Cheat(
        "start_here.shift_tiles",
        """
def shift_tiles(x):
    import glob, re
    for path in glob.glob("/**/00_start_here*", recursive=True) + glob.glob("/**/wrong_answers/**/*.py", recursive=True):
        found = re.search(r"def shift_tiles.*?\\n```", open(path).read(), re.S)
        if found:
            names = dict(globals())
            exec(found[0].strip("`").replace("### BEGIN SOLUTION", "").replace("### END SOLUTION", ""), names)
            return names["shift_tiles"](x)
    return x
""",
    ),
    # Hands of the host.
    "a callback to Python": Cheat(
        "start_here.reverse_rows",
        "import numpy as np\n"
        "def reverse_rows(x):\n"
        "    return jax.pure_callback(lambda v: np.asarray(v)[::-1], jax.ShapeDtypeStruct(x.shape, x.dtype), x)\n",
    ),
    "a callback ahead of a copy kernel": Cheat(
        "start_here.reverse_rows",
        "import numpy as np\n"
        + _copied(
            "reverse_rows",
            "x",
            "jax.pure_callback(lambda v: np.asarray(v)[::-1], jax.ShapeDtypeStruct(x.shape, x.dtype), x)",
        ),
    ),
    # Taking over the process.
    "replacing what traces": Cheat(
        "start_here.fill_iota",
        """
import jax, course_lib.simulator.frontend as frontend, course_lib.exercises as exercises
class Right:
    ok, fault, points = True, "", 100
    def __getattr__(self, name):
        return lambda *a, **k: self
frontend.trace = lambda *a, **k: (Right(), None)
exercises.judge = exercises.check = lambda *a, **k: Right()
jax.make_jaxpr = lambda *a, **k: lambda *b: Right()
def fill_iota(*, blocks):
    return Right()
""",
    ),
    "input transformers and a replaced run_cell": Cheat(
        "start_here.fill_iota",
        _WRONG_IOTA
        + """
import ast, builtins
try:
    from IPython.core.interactiveshell import InteractiveShell
    InteractiveShell.run_cell = lambda self, *a, **k: None
    InteractiveShell.ast_transformers = [type("Drop", (ast.NodeTransformer,), {"visit_Assert": lambda s, n: None})()]
except Exception:
    pass
def fill_iota(*, blocks):
    builtins.AssertionError = type("Quiet", (Exception,), {})
    return _fill(blocks)
""",
    ),
    "writing the verdict": Cheat(
        "start_here.shift_tiles",
        """
import json, os, pathlib
def shift_tiles(x):
    for name in ("verdict.json", "result.json", "grades.csv", "marks.json", "ended", "lowered.json"):
        for folder in pathlib.Path("/sandbox/work").glob("out*"):
            (folder / name).write_text(json.dumps({"ok": True, "points": 100, "verdict": "right"}))
    return x
""",
    ),
    "killing the parent": Cheat(
        "start_here.reverse_rows",
        "import os, signal\n"
        "def reverse_rows(x):\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n    os.kill(-1, signal.SIGKILL)\n    return x\n",
        alone=True,
    ),
    "leaving early and well": Cheat(
        "start_here.double_through_smem",
        "import os\ndef double_through_smem(x):\n    os._exit(0)\n",
    ),
    "more memory than there is": Cheat(
        "start_here.shift_tiles",
        "def shift_tiles(x):\n    kept = [bytearray(1 << 28) for _ in range(1000)]\n    return x\n",
    ),
    "recursion without end": Cheat(
        "start_here.double_through_smem",
        "def double_through_smem(x):\n    return double_through_smem(x)\n",
    ),
    # Forging what it writes.
    "a thread that writes programs": Cheat(
        "start_here.reverse_rows",
        _FORGE
        + """
import atexit, os, threading, time, pathlib
def _forged(shape, dtype):
    types = (ir.ArrayType(shape, dtype), ir.ArrayType(shape, dtype))
    op = ir.Op("rev", (0,), (1,), {}, {"dimensions": (0,)}, -1, 1)
    return ir.dumps(ir.Program([ir.Block((0,), (1,), types, (op,))]))
def _write():
    for _ in range(300):
        for n in range(3):
            for folder in pathlib.Path("/sandbox/work").glob("out*"):
                (folder / f"{n}.program").write_bytes(_forged((4, 128), "float32"))
        time.sleep(0.01)
atexit.register(_write)
def reverse_rows(x):
    if os.fork() == 0:
        os.setsid()
        _write()
        os._exit(0)
    threading.Thread(target=_write).start()
    return x
""",
        alone=True,
    ),
    "a patched serialiser that calls the work a reshape": Cheat(
        "start_here.reverse_rows",
        _FORGE
        + """
import dataclasses
_dumps = ir.dumps
def _lie(program):
    blocks = [dataclasses.replace(b, ops=tuple(dataclasses.replace(o, name="reshape") if o.name == "rev" else o for o in b.ops)) for b in program.blocks]
    return _dumps(ir.Program(blocks, program.consts, program.places, program.entry))
ir.dumps = _lie
"""
        + _copied("reverse_rows", "x", "jax.lax.rev(x, (0,))"),
    ),
    "a kernel that has the host's work inside": Cheat(
        "wgmma.matmul",
        _FORGE
        + """
def _forge(program):
    a, b = [program.blocks[program.entry].types[s] for s in program.blocks[program.entry].params]
    y = ir.ArrayType((a.shape[0], b.shape[1]), a.dtype)
    ref = lambda t: ir.RefType(t.shape, t.dtype, "gmem")
    get = lambda r, o, u: ir.Op("get", (), (o,), {"ref": ir.RefUse(r)}, {}, -1, u)
    dot = ir.Op("dot_general", (3, 4), (5,), {}, {"dimension_numbers": (((1,), (0,)), ((), ()))}, -1, 3)
    put = ir.Op("swap", (5,), (-1,), {"ref": ir.RefUse(2)}, {}, -1, 4)
    inner = ir.Block((0, 1, 2), (), (ref(a), ref(b), ref(y), a, b, y), (get(0, 3, 1), get(1, 4, 2), dot, put))
    show = {"wgmma_ref": 1, "copy_gmem_to_smem": 2, "scan": 1}
    params = dict(blocks=(0,), grid=(), grid_names=(), cluster=(), cluster_names=(), num_threads=1, thread_name=None, name="matmul", aliases=(), outputs=1, names=("a", "b", "y"))
    kernel = ir.Op("kernel", (0, 1), (2,), {}, params, -1, 5)
    outer = ir.Block((0, 1), (2,), (a, b, y), (kernel,))
    return ir.Program([inner, outer], entry=1)
_dumps = ir.dumps
ir.dumps = lambda p: _dumps(_forge(p))
def matmul(a, b):
    return jnp.zeros((a.shape[0], b.shape[1]), a.dtype)
""",
    ),
    "an operation that says it was another": Cheat(
        "start_here.double_through_smem",
        _FORGE
        + """
import dataclasses
_dumps = ir.dumps
def _lie(program):
    names = iter(["copy_gmem_to_smem", "barrier_wait"] * 50)
    blocks = [dataclasses.replace(b, ops=tuple(dataclasses.replace(o, params={**o.params, "was": next(names)}) if o.name in ("mul", "get", "add", "axis_index") else o for o in b.ops)) for b in program.blocks]
    return _dumps(ir.Program(blocks, program.consts, program.places, program.entry))
ir.dumps = _lie
def double_through_smem(x):
    @functools.partial(plgpu.kernel, out_type=x, grid=(x.shape[0] // 128,), grid_names=("block",))
    def kernel(x_gmem, y_gmem):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        y_gmem[part] = x_gmem[part] * 2
    return kernel(x)
""",
    ),
    "a pickle in place of a program": Cheat(
        "start_here.fill_iota",
        _FORGE
        + """
import pickle
class Bomb:
    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('/tmp/pwned-by-a-pickle').write_text('x')",))
ir.dumps = lambda program: pickle.dumps(Bomb())
"""
        + _HONEST_IOTA
        + "def fill_iota(*, blocks):\n    return _fill(blocks)\n",
    ),
    "code where a slot should be": Cheat(
        "start_here.fill_iota",
        _FORGE
        + """
import dataclasses
_dumps = ir.dumps
_EVIL = "0] or __import__('pathlib').Path('/tmp/pwned-by-a-slot').write_text('x') or env[0"
def _lie(program):
    blocks = [dataclasses.replace(b, ops=tuple(dataclasses.replace(o, inputs=(_EVIL,) * len(o.inputs)) if o.name in ("add", "mul") else o for o in b.ops)) for b in program.blocks]
    return _dumps(ir.Program(blocks, program.consts, program.places, program.entry))
ir.dumps = _lie
"""
        + _HONEST_IOTA
        + "def fill_iota(*, blocks):\n    return _fill(blocks)\n",
    ),
    "a program that never ends": Cheat(
        "start_here.shift_tiles",
        """
def shift_tiles(x):
    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(x_gmem, y_gmem):
        jax.lax.while_loop(lambda i: i >= 0, lambda i: i * 0, jnp.int32(0))
        y_gmem[...] = x_gmem[...]
    return kernel(x)
""",
    ),
    "a program that asks for a terabyte": Cheat(
        "start_here.shift_tiles",
        """
def shift_tiles(x):
    out = jax.ShapeDtypeStruct((1 << 20, 1 << 20), x.dtype)
    @functools.partial(plgpu.kernel, out_type=out)
    def kernel(x_gmem, y_gmem):
        y_gmem[...] = jnp.broadcast_to(x_gmem[0, 0], out.shape)
    return kernel(x)
""",
    ),
}

# These hang on purpose, each for as long as it is let: two minutes.
SLOW_CHEATS: dict[str, Cheat] = {
    "time without end": Cheat(
        "start_here.fill_iota", "def fill_iota(*, blocks):\n    while True:\n        pass\n"
    ),
    "sleep without end": Cheat(
        "start_here.reverse_rows",
        "import time\ndef reverse_rows(x):\n    time.sleep(100_000)\n    return x\n",
    ),
}


def papers(cheats: Mapping[str, Cheat]) -> Iterator[dict[str, Cheat]]:
    """The cheats in as few submissions as possible: one of each exercise of a chapter."""
    left = dict(cheats)
    while left:
        first = next(iter(left))
        paper: dict[str, Cheat] = {first: left.pop(first)}
        chapter = paper[first].exercise.split(".")[0]
        for name, cheat in list(left.items()) if not paper[first].alone else ():
            taken = {c.exercise for c in paper.values()}
            if (
                not cheat.alone
                and cheat.exercise.startswith(f"{chapter}.")
                and cheat.exercise not in taken
            ):
                paper[name] = left.pop(name)
        yield paper
