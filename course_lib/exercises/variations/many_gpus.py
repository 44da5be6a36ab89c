"""Variants of the exercises of chapter 13: other devices to talk to, and another ring."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]

_FACTORS = (3, 4, 5, 6, 7)
_BEFORE = "jax.lax.rem(me + devices - 1, devices)"
_ORDINALS = {2: "second", 3: "third"}


def _total(*, stride: int, shift: int) -> Varied:
    which = f"b = 0, {stride}, {2 * stride}, ..."
    return Varied(
        statement=(
            f"Return the sum of (b + {shift}) * exp(x[b]) over every {_ORDINALS[stride]} b: {which}"
            f" Each of these blocks puts (b + {shift}) * exp(x[b]) into parts_gmem[b] and signals; "
            "the others do neither. The last block, which may be one of either, waits until all "
            "parts are there, adds them, and writes y_gmem. At the end the semaphore is at 0 again."
        ),
        reference=functools.partial(_total_reference, stride=stride, shift=shift),
        edits=(
            (
                "Return the sum of `exp(x[b])` over the blocks. Each puts its part into "
                "`parts_gmem`, and the last one adds them up, when they\nare there.",
                f"Return the sum of `(b + {shift}) * exp(x[b])` over every {_ORDINALS[stride]} "
                f"block, `{which}`. Each of these puts its part into `parts_gmem`\nand signals; "
                "the others do neither. The last block of the grid, which may be one of either, "
                "adds the parts up, when all are there.",
            ),
        ),
    )


def _total_reference(x: Array, *, stride: int, shift: int) -> Array:
    b = np.arange(0, x.shape[0], stride)
    wide: Array = (b + shift) @ np.exp(x[b].astype(np.float64))
    return wide.astype(x.dtype)


def _pass_left(*, places: int, factor: int) -> Varied:
    return Varied(
        statement=(
            f"Each device writes {factor} * x into y_gmem of the device {places} places before it, "
            "counted in a circle (with few devices that may be itself), and ends when its own "
            "y_gmem is complete. For any number of devices from 2 on."
        ),
        reference=functools.partial(_pass_left_reference, places=places, factor=factor),
        edits=(
            (
                "### Exercise 2: to the device before",
                f"### Exercise 2: to the device {places} places before",
            ),
            (
                "Each device writes `2 * x` into the output of the device *before* it. For any "
                "number of devices.",
                f"Each device writes `{factor} * x` into the output of the device *{places} places "
                "before* it, counted in a circle: the one before\ndevice 0 is the last. With few "
                f"devices that goes round more than once, and may end at the device itself. For "
                "any number\nof devices from 2 on.",
            ),
        ),
    )


def _pass_left_reference(x: Array, *, devices: int, places: int, factor: int) -> Array:
    return np.roll(x * np.asarray(factor, x.dtype), -places * (x.shape[0] // devices), axis=0)


def _neighbours(*, places: int, factor: int) -> Varied:
    return Varied(
        statement=(
            f"Return x of the device {places} places before plus {factor} times x of the device "
            "after, in a circle. Each device sends its x, as it is, to the two that need it: "
            f"inbox_gmem[0] is for what comes from {places} places before, inbox_gmem[1] for what "
            "comes from after."
        ),
        reference=functools.partial(_neighbours_reference, places=places, factor=factor),
        edits=(
            (
                "Return `x` of the device before plus `x` of the device after. Everybody has an "
                "inbox with two places.",
                f"Return `x` of the device {places} places before plus {factor} times `x` of the "
                "device after, counted in a circle. Everybody sends `x`,\nas it is, to the two "
                "that need it. Everybody has an inbox with two places: `inbox_gmem[0]` for what "
                f"comes from {places} places before,\n`inbox_gmem[1]` for what comes from after. "
                "For any number of devices from 2 on.",
            ),
        ),
        rtol=1e-5,
        atol=2e-5,
    )


def _neighbours_reference(x: Array, *, devices: int, places: int, factor: int) -> Array:
    rows = x.shape[0] // devices
    wide = x.astype(np.float64)
    before, after = np.roll(wide, places * rows, axis=0), np.roll(wide, -rows, axis=0)
    return (before + factor * after).astype(x.dtype)


def _gather(*, factor: int) -> Varied:
    return Varied(
        statement=(
            "Every device ends up with the shards of all, multiplied on their way: y_gmem[d] is "
            f"the x of device d times {factor} for each step that it took. Each device talks to "
            "the one before it only, and in each step hands on the shard that it got in the step "
            f"before, {factor} times what it has itself. Its own x stays as it is. done has a "
            "semaphore for each step."
        ),
        reference=functools.partial(_gather_reference, factor=factor),
        edits=(
            (
                "### Exercise 5: a ring all-gather\n\n`done` has",
                "### Exercise 5: a ring all-gather\n\nThis ring runs the other way: each device "
                "talks to the one *before* it only. And what is handed on is multiplied: a device "
                f"sends\n{factor} times what it has itself. So `y_gmem[d]` ends up as the `x` of "
                f"device `d` times {factor} for each step that it took; a device's own `x`\nstays "
                "as it is. `done` has",
            ),
            ("after = jax.lax.rem(me + 1, devices)", f"before = {_BEFORE}"),
        ),
    )


def _gather_reference(x: Array, *, devices: int, factor: int) -> Array:
    shards = x.astype(np.float64).reshape(devices, -1, x.shape[1])
    d = np.arange(devices)
    steps = (d[None] - d[:, None]) % devices  # from device `column` back to device `row`
    everything = float(factor) ** steps[:, :, None, None] * shards[None]
    return everything.reshape(-1, x.shape[1]).astype(x.dtype)


def _fetch(*, places: int, factor: int) -> Varied:
    return Varied(
        statement=(
            f"Each device computes {factor} * x into product_gmem. Then it reads product_gmem of "
            f"the device {places} places after it, counted in a circle (with few devices that may "
            "be itself), and writes that to y_gmem. Nobody reads too early, and nobody ends while "
            "somebody still reads from it. For any number of devices from 2 on."
        ),
        reference=functools.partial(_fetch_reference, places=places, factor=factor),
        edits=(
            (
                "Mend it: both signals. About 6 lines.",
                f"Mend it, with other numbers: each device computes `{factor} * x` into "
                f"`product_gmem`, and reads that of the device {places} places after it,\ncounted "
                "in a circle (with few devices that may be itself). Send both signals: from whom "
                "do you read, and who reads from you? For any\nnumber of devices from 2 on. About "
                "8 lines.",
            ),
            ("twice_gmem, there, read", "product_gmem, there, read"),
            (
                "        after = jax.lax.rem(me + 1, devices)\n"
                "        before = jax.lax.rem(me + devices - 1, devices)\n",
                "",
            ),
        ),
    )


def _fetch_reference(x: Array, *, devices: int, places: int, factor: int) -> Array:
    return np.roll(x * np.asarray(factor, x.dtype), -places * (x.shape[0] // devices), axis=0)


VARIANTS = {
    "total": Variants({"stride": (2, 3), "shift": (2, 3, 4, 5)}, _total),
    "pass_left": Variants({"places": (2, 3, 5), "factor": _FACTORS}, _pass_left),
    "neighbours": Variants({"places": (2, 3), "factor": _FACTORS}, _neighbours),
    "gather": Variants({"factor": (2, 3, 4, 5, 6)}, _gather),
    "fetch": Variants({"places": (2, 3), "factor": _FACTORS}, _fetch),
}
