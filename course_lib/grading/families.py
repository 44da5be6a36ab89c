"""The hidden cases: for each exercise, what its sizes and numbers may be, and who moves the data.

`hidden_cases(exercise, seed=...)` adds to the cases that an exercise shows others of shapes
and static numbers that a learner's function has to be right for. Whoever has learnt the
public cases by heart has learnt nothing about these but their form.

`around` says what may stand around an exercise's kernel: "order", only what leaves every
element where it is in memory (reshape, casts); "layout", transposes, slices and padding as
well, because moving data is not what the exercise is about.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Exercise, Spec

ORDER = frozenset(
    {
        "call", "convert_element_type", "copy", "copy_p", "expand_dims", "optimization_barrier",
        "reshape", "squeeze", "stop_gradient", "broadcast_in_dim",
    }
)  # fmt: skip
LAYOUT = ORDER | {"broadcast_to", "concatenate", "pad", "slice", "split", "transpose"}
# What jnp makes of quantizing: of `kernels.quantized`, which the notebook gives.
_QUANTIZE = LAYOUT | {
    "abs", "add", "and", "bitcast_convert_type", "ceil", "div", "eq", "exp2", "frexp", "gt",
    "ldexp", "log2", "lt", "max", "mul", "ne", "or", "pow", "reduce_max", "select_n",
    "shift_right_arithmetic", "sub",
}  # fmt: skip


DRAWN = 2  # cases that nobody has seen
_TRIES = 60  # some families are small


class Draw:
    """Numbers for a case, from a seed."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(list(seed))

    def __call__(self, low: int, high: int, unit: int = 1) -> int:
        """`unit` times a number from `low` to `high`."""
        return unit * int(self._rng.integers(low, high, endpoint=True))

    def of(self, *choices: Any) -> Any:
        """One of several."""
        return choices[int(self._rng.integers(len(choices)))]

    def half(self) -> str:
        """A dtype of 16 bits."""
        return str(self.of("float16", "bfloat16"))

    def float(self) -> str:
        """A floating-point dtype."""
        return str(self.of("float32", "float16", "bfloat16"))


@dataclasses.dataclass(frozen=True)
class Family:
    """All cases of an exercise.

    Attributes:
      draw: one of them.
      around: the operations that may stand around its kernel.
    """

    draw: Callable[[Draw], Case]
    around: frozenset[str] = ORDER


def hidden_cases(exercise: Exercise, *, seed: int, plain: Exercise) -> tuple[Case, ...]:
    """The cases that an answer is marked on: those that the exercise shows, and drawn ones.

    Those shown were chosen to tell wrong answers apart; the others to tell whoever has learnt
    them by heart. The data of all are hidden.

    Args:
      exercise: what is marked, perhaps a variant.
      seed: the instructor's secret number.
      plain: the exercise as the course has it. A variant with cases of its own is not of the
        plain one's family: it is marked on its cases alone, with other data.
    """
    family = FAMILIES.get(exercise.id)
    if family is None or exercise.cases != plain.cases:
        return exercise.cases
    digest = int.from_bytes(hashlib.blake2b(exercise.id.encode(), digest_size=7).digest())
    found = {str(case): case for case in exercise.cases}
    for number in range(_TRIES):
        case = family.draw(Draw((abs(seed), digest, number)))
        found.setdefault(str(case), case)
        if len(found) == len(exercise.cases) + DRAWN:
            break
    return tuple(found.values())


def around(exercise_id: str) -> frozenset[str]:
    """The operations that may stand around the kernel of an exercise."""
    family = FAMILIES.get(exercise_id)
    return family.around if family else ORDER


def _same(count: int, shape: tuple[int, ...], dtype: str = "float32", **static: int) -> Case:
    return Case((Spec(shape, dtype),) * count, static)


def _case(*args: tuple[tuple[int, ...], str], **static: int) -> Case:
    return Case(tuple(Spec(shape, dtype) for shape, dtype in args), static)


def _sized(first: str, m: int, second: str, n: int) -> Case:
    """A matrix whose two sizes are static numbers, too."""
    return Case((Spec((m, n)),), {first: m, second: n})


def _blocks(lanes: int, blocks: int) -> Case:
    """A number for each lane of some blocks."""
    return _same(1, (blocks * lanes,), "int32", blocks=blocks)


def _scale_rows(r: Draw) -> Case:
    rows, cols = r(2, 70), r(2, 70)
    return _case(((rows, cols), "float32"), ((rows,), "float32"), rows=rows, cols=cols)


def _product(m: int, k: int, n: int, dtype: str, **static: int) -> Case:
    return _case(((m, k), dtype), ((k, n), dtype), **static)


def _devices(r: Draw) -> Case:
    devices = r(2, 5)
    return _same(1, (devices * r(1, 4, 8), 128), devices=devices)


def _divisor(r: Draw, n: int) -> int:
    return int(r.of(*(d for d in range(1, n + 1) if n % d == 0)))


def _rows_of_32_bytes(r: Draw, dtype: str, unit: int) -> Case:
    return _same(1, (r(1, 8, 8), r(1, 8, unit)), dtype)


def _tiled_product(r: Draw) -> Case:
    m, k = r(2, 6), r(2, 5)
    mt = _divisor(r, m)
    return _case(((m * 64, k), "float32"), ((k, r(2, 4, 64)), "float32"), mt=mt)


def _snake(r: Draw) -> Case:
    m = r(2, 8)
    return _case(m=m, n=r(2, 6), width=_divisor(r, m))


def _persistent(r: Draw) -> Case:
    k = r(2, 5)
    args = ((r(2, 4, 64), k), "float32"), ((k, r(2, 4, 64)), "float32")
    return _case(*args, num_sms=r(3, 8))


def _gather_rows(r: Draw) -> Case:
    return _case(
        ((r(256, 900), r.of(64, 128, 256)), "float32"), ((r(1, 3, 64),), "uint16")
    )  # indices are below 256


def _ring_copy(r: Draw) -> Case:
    stages = r(1, 4)
    return _same(1, (r(1, 8, 128), r.of(64, 128)), stages=stages, unread=r(0, stages - 1))


def _multiply_add(r: Draw) -> Case:
    m, k, n, dtype = r(1, 2, 64), r(1, 2, 64), r(1, 2, 64), r.half()
    return _case(((m, k), dtype), ((k, n), dtype), ((m, n), "float32"))


def _wide_product(r: Draw) -> Case:
    return _product(64, r(1, 2, 64), r(1, 8, 64), r.half())


def _split(r: Draw) -> Case:
    k = r(1, 2, 32)
    return _case(((r(1, 2, 64), k), "float32"), ((r(1, 2, 64), k), "float32"))


def _roofline(r: Draw) -> Case:
    wg_m, wg_n = r.of(64, 128), r.of(64, 128, 192, 256)
    return _case(wg_m=wg_m, wg_n=wg_n, block_m=wg_m * r(1, 4), block_n=wg_n * r(1, 3))


def _ring(r: Draw) -> Case:
    return _product(r(1, 2, 128), r(2, 4, 128), r(1, 2, 128), r.half(), slots=r(2, 4))


def _delay(r: Draw) -> Case:
    slots, unfinished = r.of((4, 1), (3, 1), (2, 1), (1, 0))
    m, n = r(1, 2, 128), r(1, 2, 128)
    return _product(m, r(2, 4, 128), n, r.half(), slots=slots, unfinished=unfinished)


def _epilogue(r: Draw) -> Case:
    tile = r.of(32, 64, 128)
    return _product(r(1, 2, 128), r(1, 2, 64), r(1, 2, 256), r.half(), epi_tile_n=tile)


def _ping_pong(r: Draw) -> Case:
    return _product(r(2, 4, 64), r(1, 4, 64), r(1, 3, 128), r.half(), slots=r(2, 4))


def _scale_own(r: Draw) -> Case:
    rows = r.of(16, 32)
    return _case(((rows, 128), "float32"), ((r.of(2, 4, 8), rows, 128), "float32"))


def _distances(r: Draw) -> Case:
    blocks = r.of(2, 4)
    args = ((blocks * r(1, 2), 32, 128), "float32"), ((r(4, 9), 32, 128), "float32")
    return _case(*args, blocks=blocks, slots=r(2, 4))


def _batched(r: Draw) -> Case:
    return _case(((r(1, 3), 128, 64), "float16"), ((64, r(1, 2, 64)), "float16"))


def _two_products(r: Draw) -> Case:
    k, n, p = (r(1, 2, 64) for _ in range(3))
    return _case(((128, k), "float16"), ((k, n), "float16"), ((n, p), "float16"))


def _eight_bit(r: Draw) -> Case:
    k = r(1, 3, 128)
    return _case(((128, k), "float32"), ((r(1, 2, 128), k), "float32"))


def _pair_products(r: Draw) -> Case:
    k = r(1, 2, 64)
    return _case(((256, k), "float16"), ((r(1, 5), k, r(1, 2, 64)), "float16"))


def _mx_product(r: Draw) -> Case:
    k = r.of(128, 256, 512)  # JAX cannot cut the scales of 128 rows in two where k is 384
    return _case(((256, k), "float32"), ((r(1, 2, 128), k), "float32"))


def _online(r: Draw) -> Case:
    d, n = r(1, 2, 64), r(1, 3, 128)
    return _case(((r(1, 2, 64), d), "float16"), *[((n, d), "float16")] * 2)


def _attention_pair(r: Draw) -> Case:
    heads, n, d = r(2, 3), r(2, 4, 128), 64
    return _case(((heads, 128, d), "float16"), *[((heads, n, d), "float16")] * 2)


def _causal(r: Draw) -> Case:
    n = r(1, 3, 128)
    return _case(((r(1, 4, 128), 64), "float16"), *[((n, 64), "float16")] * 2)


def _merge(r: Draw) -> Case:
    m, d = r(1, 2, 64), r(1, 2, 64)
    args = ((2, m, d), "float32"), ((2, m), "float32")
    return _case(*args, offset=r.of(0, 5, -5, 150, -150))


FAMILIES: dict[str, Family] = {
    "start_here.fill_iota": Family(lambda r: _case(blocks=r(1, 12))),
    "start_here.reverse_rows": Family(lambda r: _same(1, (r(1, 12), 128))),
    "start_here.shift_tiles": Family(lambda r: _same(1, (r(1, 4, 64), r(1, 4, 128)))),
    "start_here.double_through_smem": Family(lambda r: _same(1, (r(1, 7, 128),))),
    "memory_spaces.stage_through_smem": Family(
        lambda r: _same(1, (r(1, 5, 64), r.of(64, 128, 256)), r.float())
    ),
    "memory_spaces.add_in_one_buffer": Family(
        lambda r: _same(2, (r(1, 5, 48), r.of(64, 128)), r.of("float32", "float16"))
    ),
    "memory_spaces.shift_in_slices": Family(lambda r: _same(1, (r(1, 8, 16), r.of(64, 128, 256)))),
    "memory_spaces.sum_of_products": Family(lambda r: _same(2, (r.of(32, 64), r(1, 6, 128)))),
    "grid_scheduling.tiled_product": Family(_tiled_product),
    "grid_scheduling.snake": Family(_snake),
    "grid_scheduling.persistent_product": Family(_persistent),
    "transforms.tiled_by_hand": Family(lambda r: _same(1, (r(1, 4, 8), r(1, 3, 64)), r.float())),
    "transforms.addresses": Family(
        lambda r: _same(2, (r(1, 5, 128),), "uint32", swizzle=r.of(32, 64, 128))
    ),
    "transforms.chosen": Family(
        lambda r: _rows_of_32_bytes(r, *r.of(("float32", 8), ("float16", 16), ("int8", 32)))
    ),
    "transforms.swap_axes": Family(
        lambda r: _same(1, (r(1, 4, 8), r(1, 4), r.of(64, 128)), r.float())
    ),
    "transforms.transposed": Family(lambda r: _same(1, (r(1, 2, 64), r(1, 2, 64)), r.float())),
    "register_layouts.lane_numbers": Family(lambda r: _case(m=r(1, 3, 64), n=r(1, 5, 8))),
    "register_layouts.softmax_rows": Family(
        lambda r: _same(1, (r(1, 3, 64), r.of(64, 128, 256)), r.of("float32", "bfloat16"))
    ),
    "register_layouts.row_argmax": Family(
        lambda r: _same(1, (r(1, 4, 64), r.of(64, 128, 256)), r.of("float32", "bfloat16"))
    ),
    "register_layouts.rms_norm": Family(
        lambda r: (lambda n: _case(((r(1, 3, 64), n), "float32"), ((n,), "float32")))(
            r.of(64, 128, 256)
        )
    ),
    "register_layouts.rows_plus_columns": Family(lambda r: _same(1, (r(1, 5, 64),) * 2)),
    "asynchronous_copies.multiply_add": Family(lambda r: _same(3, (r(1, 3, 64), r.of(64, 128)))),
    "asynchronous_copies.triple": Family(lambda r: _same(1, (r(1, 5, 64), r.of(64, 128)))),
    "asynchronous_copies.sum_and_difference": Family(
        lambda r: _same(2, (r(1, 4, 64), r.of(64, 128)))
    ),
    "asynchronous_copies.difference": Family(lambda r: _same(1, (r(3, 150), r.of(64, 128)))),
    "asynchronous_copies.gather_rows": Family(_gather_rows),
    "asynchronous_copies.ring_copy": Family(_ring_copy),
    "barriers.hand_off": Family(lambda r: _same(1, (r(1, 5, 128),))),
    "barriers.exp_minus": Family(lambda r: _same(1, (2, r(1, 8, 128)))),
    "barriers.take_turns": Family(lambda r: _same(1, (r(1, 2, 128),), rounds=r(1, 6))),
    "barriers.queue": Family(lambda r: _same(1, (r(1, 3), r(2, 8), r(1, 2, 128)), slots=r(1, 3))),
    "barriers.ring": Family(lambda r: _same(1, (r(1, 2, 128),), laps=r(1, 4))),
    "barriers.two_compute_threads": Family(lambda r: _same(1, (r(3, 9, 64), 128))),
    "barriers.sum_of_products": Family(lambda r: _same(2, (r(1, 10, 64), 128))),
    "wgmma.multiply_add": Family(_multiply_add, LAYOUT),
    "wgmma.wide_product": Family(_wide_product, LAYOUT),
    "wgmma.gram": Family(lambda r: _same(1, (r(1, 3, 64), r(1, 4, 64)), r.half())),
    "wgmma.split_product": Family(_split, LAYOUT),
    "wgmma.relu_product": Family(
        lambda r: _product(r(1, 2, 64), r(1, 3, 64), r(1, 2, 64), r.half()), LAYOUT
    ),
    "wgmma.matmul": Family(
        lambda r: _product(r(1, 2, 128), r(1, 3, 64), r(1, 2, 128), r.half()), LAYOUT
    ),
    "wgmma_pipelining.roofline": Family(_roofline),
    "wgmma_pipelining.ring": Family(_ring, LAYOUT),
    "wgmma_pipelining.delay_release": Family(_delay, LAYOUT),
    "wgmma_pipelining.epilogue": Family(_epilogue, LAYOUT),
    "wgmma_pipelining.ping_pong": Family(_ping_pong, LAYOUT),
    "clusters.smooth": Family(lambda r: _same(1, (r(3, 8), r(1, 4, 8), 128))),
    "clusters.normalize": Family(lambda r: _same(1, (r(1, 3, 64), r.of(128, 256, 512)))),
    "clusters.scale_own": Family(_scale_own),
    "clusters.distances": Family(_distances),
    "clusters.shared_matmul": Family(
        lambda r: _product(r(1, 2, 128), r(3, 7, 64), r(1, 2, 128), "float16"), LAYOUT
    ),
    "tmem_and_tcgen05.sum_in_tmem": Family(lambda r: _same(1, (r(1, 4), 128, r.of(32, 64, 128)))),
    "tmem_and_tcgen05.one_commit": Family(
        lambda r: _product(128, r(1, 4, 64), r(1, 2, 64), "float16"), LAYOUT
    ),
    "tmem_and_tcgen05.batched": Family(_batched, LAYOUT),
    "tmem_and_tcgen05.two_products": Family(_two_products, LAYOUT),
    "tmem_and_tcgen05.eight_bit_product": Family(_eight_bit, _QUANTIZE),
    "collective_mma.pair_product": Family(
        lambda r: _product(256, r(1, 3, 64), r(1, 2, 64), "float16"), LAYOUT
    ),
    "collective_mma.pair_products": Family(_pair_products, LAYOUT),
    "collective_mma.mx_product": Family(_mx_product, _QUANTIZE),
    "collective_mma.take_over": Family(lambda r: _same(1, (r(1, 30), 128))),
    "collective_mma.tiles_by_cluster": Family(lambda r: _same(1, (r(1, 20), 2, 128))),
    "flash_attention.online": Family(_online, LAYOUT),
    "flash_attention.weights": Family(
        lambda r: _same(1, (64, r.of(64, 128, 256)), head_dim=r.of(64, 128))
    ),
    "flash_attention.ping_pong": Family(_attention_pair, LAYOUT),
    "flash_attention.causal": Family(_causal, LAYOUT),
    "flash_attention.merge": Family(_merge),
    "many_gpus.total": Family(lambda r: _same(1, (r(1, 8), r(1, 2, 128)))),
    "many_gpus.pass_left": Family(_devices),
    "many_gpus.neighbours": Family(_devices),
    "many_gpus.gather": Family(_devices),
    "many_gpus.fetch": Family(_devices),
    "debugging.normalised": Family(lambda r: _same(1, (r(1, 8, 16), r(1, 4, 128)))),
    "debugging.gelu": Family(lambda r: _same(1, (r(1, 12, 128),))),
    "debugging.pull_back": Family(lambda r: _same(2, (r(1, 8, 128),))),
    "two_languages.standardize_rows": Family(lambda r: _same(1, (r(1, 12), r(1, 6, 128)))),
    "mojo_launches.from_cuda": Family(lambda r: _same(2, (1000,), size=r(2, 999))),
    "mojo_launches.vector_add": Family(lambda r: (lambda n: _same(2, (n,), n=n))(r(2, 3000))),
    "mojo_launches.scale_rows": Family(_scale_rows),
    "mojo_tiles.block_sum": Family(lambda r: _blocks(512, r(2, 9))),
    "mojo_tiles.histogram": Family(lambda r: _blocks(256, r(2, 9))),
    "mojo_tiles.copy_part": Family(lambda r: _sized("m", r(1, 5, 16), "n", r(1, 5, 32))),
    "two_languages.standardize_lanes": Family(
        lambda r: _sized("rows", r(1, 6, 8), "cols", r(2, 24, 32))
    ),
}
