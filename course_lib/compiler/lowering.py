"""What JAX refuses to lower for a GPU: layouts that contradict each other, and the like.

The model of the GPU computes with plain arrays, so a kernel can be right there and
yet have no CUDA form. Lowering finds out in a fraction of a second, without the
toolchain: Mosaic's part of it is in jaxlib.

Runs in a worker of its own, as MLIR may end its process.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import jax

from course_lib import tracing
from course_lib.compiler import child, requests, targets
from course_lib.diagnostics import Access, Finding, Severity, clinic
from course_lib.diagnostics.clinic import Advice
from course_lib.diagnostics.locations import Location, locate

LAYOUT, LOWERING = "layout", "lowering"
# The clinic's entries that are about how arrays lie in registers, SMEM and TMEM.
_LAYOUT_ENTRIES = frozenset(
    {
        "layout-no-solution", "layout-not-found", "layout-shape", "layout-strides",
        "warpgroup-multiple", "gmem-sectors", "smem-no-tiling",
        "tiling-does-not-divide", "slice-across-tiles", "swizzle-unknown", "swizzle-none-fits",
        "swizzle-width", "mma-untiled", "tmem-rows", "tmem-packed", "transforms-order",
        "copy-not-contiguous", "copy-transposed", "transposed-store",
    }
)  # fmt: skip
# What the model of the GPU calls the same mistakes.
_MODEL_RULES = {
    "smem-capacity": "over-capacity",
    "tmem-capacity": "over-capacity",
    "slice-across-tiles": "unaligned-offset",
    **dict.fromkeys(
        (
            "mma-rows", "mma-columns", "mma-inner-sizes", "mma-mixed-dtypes", "mma-dtype",
            "mma-accumulator", "mma-accumulator-shape",
        ),
        "illegal-mma",
    ),
    "tmem-dtype": "illegal-mma",
    "tmem-indexed": "tmem-indexed",
    "scope-not-collective": "not-collective",
    "tmem-not-collective": "not-collective",
    "tcgen05-collective-mixed": "not-collective",
}  # fmt: skip
_WHY_AT_ALL = "Mosaic GPU cannot turn this kernel into code for {arch}."
_MAX_ORIGINAL = 200
_MAX_PLACES = 3
_ENTRIES = 128
_MOSAIC = re.compile(r"mosaic[_/\\]gpu")


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What came of lowering the kernels of a function.

    Attributes:
      finding: why they cannot be lowered; None if they can, or if there are none.
      remark: a sentence if it could not be looked at, else "".
    """

    finding: Finding | None = None
    remark: str = ""


_answers: dict[tuple[str, str], Lowered] = {}


def lower(function: Callable[..., Any], args: tuple[Any, ...], arch: str | None) -> Lowered:
    """Lowers the kernels of `function(*args)` for CUDA; the same kernel is lowered once.

    Args:
      function: a function of arrays that may call kernels.
      args: its arguments; only shapes and dtypes matter.
      arch: "sm_90a" or "sm_100a"; None for the one that its kernels need.
    """
    try:
        # A new function each time: JAX would answer from its cache for one it has seen.
        traced = jax.jit(lambda *a: function(*a)).trace(*args)
    except Exception:  # the simulation meets it, too, and explains it
        return Lowered()
    known = tracing.analyse(traced.jaxpr)
    if not known.kernels:
        return Lowered()
    arch = arch or tracing.arch_for(known)
    request = requests.of_program(traced.jaxpr)
    key = (arch, request.program)
    if known_answer := _answers.get(key):
        return known_answer
    answer = _lower(traced, request, arch)
    if not request.hides_code:
        _answers[key] = answer
        while len(_answers) > _ENTRIES:
            del _answers[next(iter(_answers))]
    return answer


def _lower(traced: Any, request: requests.Request, arch: str) -> Lowered:
    from course_lib.compiler import jax_internals

    # A kernel that arrives pickled may name none of its operations' module, which registers them.
    importlib.import_module("jax.experimental.pallas.mosaic_gpu")
    target = targets.get(arch)
    said = child.Stderr()
    try:
        with (
            jax_internals.lowering_for(target.capability),
            jax_internals.smem_limit(target.smem_bytes),
            jax_internals.watch_lowering(),
        ):
            traced.lower(lowering_platforms=("cuda",))
    except Exception as error:
        failure = child.describe(error, said.since())
        if not any(_MOSAIC.search(file) for file, *_ in failure["frames"]):
            return Lowered(remark=not_looked_at(f"{type(error).__name__}: {error}"))
        return _refused(failure, request, arch)
    return Lowered()


def not_looked_at(why: str) -> str:
    """The sentence of a report where nothing can be said; `why` is an error's message."""
    reason = clinic.shorten(why).splitlines()[0].rstrip(".")
    return f"Whether the kernel can be lowered for a GPU was not looked at. {reason}."


def _refused(failure: Mapping[str, Any], request: requests.Request, arch: str) -> Lowered:
    places = request.places_of(failure)
    advice = clinic.consult(
        failure["message"],
        type_name=failure["type"],
        frames=[tuple(f) for f in failure["frames"]],
        places=places,
    )
    if advice is None:
        return Lowered(_unknown(failure, places, arch))
    if advice.entry == "smem-capacity":
        means = f"{advice.means} It asks for: {request.smem_in_words()}."
        advice = dataclasses.replace(advice, means=means)
    return Lowered(_finding(advice, arch))


def _finding(advice: Advice, arch: str) -> Finding:
    rule = LAYOUT if advice.entry in _LAYOUT_ENTRIES else LOWERING
    named = [p for p in advice.places if p.words][:_MAX_PLACES]
    why = _WHY_AT_ALL.format(arch=arch)
    if not advice.entry.startswith("layout-no"):  # what it says of layouts differs between versions
        why += f" In its words: {_in_its_words(advice.original)}"
    return Finding(
        _MODEL_RULES.get(advice.entry, rule),
        Severity.ERROR,
        advice.means,
        tuple(Access(p.words, where=p.where) for p in named),
        why=why,
        fix=advice.change[:1].upper() + advice.change[1:],
        where=advice.where,
    )


def _unknown(
    failure: Mapping[str, Any], places: list[tuple[str, int, str, str]], arch: str
) -> Finding:
    """A refusal that the clinic has no words for."""
    where: Location | None = clinic.innermost_reader_frame([tuple(f) for f in failure["frames"]])
    if where is None and places:
        where = locate(*places[0][:2])
    original = _in_its_words(f"{failure['type']}: {failure['message']}")
    return Finding(
        LAYOUT if "layout" in original.lower() else LOWERING,
        Severity.ERROR,
        f"The kernel cannot be lowered for {arch}. {original}.",
        why=_WHY_AT_ALL.format(arch=arch),
        fix="compile_for(kernel, ...) shows the whole message.",
        where=where,
    )


def _in_its_words(message: str) -> str:
    """The first sentence of a message, or of what it calls its details."""
    text = clinic.shorten(message.rpartition("Error details:")[2]).splitlines()[0].strip()
    return textwrap.shorten(text.partition(". ")[0], _MAX_ORIGINAL, placeholder=" ...")
