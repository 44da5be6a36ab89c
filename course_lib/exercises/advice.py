"""JAX's own error messages, for a learner: what they mean in a kernel, and what to do.

The clinic knows most of them. Here are those that a first kernel meets while JAX runs
its body, and that nobody meets later. A message in other words stays as it is.
"""

from __future__ import annotations

import dataclasses
import re

from course_lib.diagnostics import Finding, clinic

_PLACE = "A ref is a place and has no values of its own: ref[...] reads what it holds."

# pattern in "TypeName: message" -> (what to say instead, "" to keep the message; what to do)
_ADVICE: tuple[tuple[str, str, str], ...] = (
    (
        r"^(?:TracerArrayConversionError|TracerBoolConversionError|ConcretizationTypeError"
        r"|TracerIntegerConversionError)",
        r"\g<0>: NumPy, `if`, `float()`, `int()` or a slice `a:b` got a value that is known only "
        "when the kernel runs",
        "Use jnp, jax.lax.select, pl.when and pl.ds(start, size) instead; store with "
        "ref[i] = value, without .at.",
    ),
    (
        r"^ValueError: Out of bound slice: start=(\d+), dim=(\d+).*",
        r"ValueError: a slice begins at \1, in \2 elements",
        "pl.ds(start, size): first where it begins, then how many elements. The size has to be "
        "known before the kernel runs.",
    ),
    (
        r"^TypeError: scan body function carry input and carry output must.*",
        "TypeError: a step of a loop returns another carry than the one it got",
        "Return the carry from every step, with its shape and dtype unchanged.",
    ),
    (
        r"^ValueError: safe_zip\(\) argument .*",
        "ValueError: the numbers of specs and of references differ",
        "A pipeline takes one BlockSpec in in_specs= and one reference in the call for each input.",
    ),
    (r"^AttributeError: 'AbstractRef' object has no attribute '_\w+'", "", _PLACE),
    (r"^TypeError: unsupported operand type\(s\) for .*'TransformedRef'", "", _PLACE),
    (r"^TransformedRefAvalError", "", _PLACE),
    (
        r"^TypeError: 'NoneType' object is not callable",
        "",
        "plgpu.nd_loop, pl.loop and pl.when run the function below them where it is defined, and "
        "leave None under its name: do not call it.",
    ),
    (
        r"^TypeError: object of type 'int' has no len\(\)",
        "",
        "Is it grid=? It takes a tuple, even of one number: grid=(n,), grid_names=('i',).",
    ),
    (
        r"^ValueError: Can only call `copy_\w+` on a `Ref`",
        "",
        "A copy takes places and not values: a whole ref, or ref.at[part] with .at.",
    ),
)


def advise(finding: Finding) -> Finding:
    """The finding with words that help, of what stopped a kernel; as it is where none are known."""
    for pattern, instead, fix in _ADVICE:
        match = re.match(pattern, finding.what, re.DOTALL)
        if match:
            what = match.expand(instead) if instead else finding.what
            return dataclasses.replace(finding, what=what, fix=fix)
    raised = re.match(r"(\w+): (.*)", finding.what, re.DOTALL)
    name, message = raised.groups() if raised else ("", finding.what)
    known = clinic.consult(message, type_name=name)
    if known is None:
        return finding
    what = f"{name}: {known.means}" if name else finding.what
    return dataclasses.replace(finding, what=what, fix=known.change[:1].upper() + known.change[1:])
