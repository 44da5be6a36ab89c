"""What a check answers, in a few lines of plain words."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Sequence

from course_lib.diagnostics import Finding, clinic
from course_lib.exercises.registry import Exercise
from course_lib.tracing import BARRIER_OF_ALL, SLOTS_IN_TURN

MAX_LINES = 10
_WIDTH = 88
_INDENT = "  "
_LONGEST_SENTENCE = 260  # three lines
_ORIGINAL = 150  # of a message that was put into other words: two lines

_PLACE = "- "  # begins where something happened
_ORIGINALLY = "In JAX's words: "

# fault -> how the first line of a verdict says it
FAULTS = {
    "not-done": "not done yet",
    "signature": "the function takes other arguments than the exercise gives it",
    "exception": "an error in your code",
    "unsupported": "something that cannot run here",
    "deadlock": "a deadlock",
    "timeout": "not finished in time",
    "crash": "the process that ran it died",
    "out-of-bounds": "an access out of bounds",
    "too-much-smem": "more memory than a block can have",
    "race": "a race",
    "barrier": "a barrier used wrongly",
    "layout": "layouts that do not fit",
    "lowering": "no GPU code can be made of it",
    "means": "not done by the means asked for",
    "outputs": "not the arrays asked for",
    "shape": "a wrong shape",
    "dtype": "a wrong dtype",
    "nan": "NaN, or memory that nothing has written",
    "value": "wrong values",
}

# A finding's rule -> the fault it is; a rule that is not listed is a fault of its own name.
_RULE_FAULTS = {
    **dict.fromkeys(
        (
            "accumulator-read-early",
            "cancel-result-early",
            "cluster-memory-ended",
            "cluster-smem-reuse",
            "data-race",
            "missing-commit-smem",
            "missing-orders-tensor-core",
            "mma-operand-not-arrived",
            "mma-operand-overwritten",
            "read-before-arrival",
            "store-not-waited",
            "store-source-overwritten",
            "tmem-load-not-waited",
            "tmem-mma-not-waited",
            "tmem-store-not-committed",
            "uncommitted-copy",
            "unfinished-copy",
            "wait-from-another-thread",
        ),
        "race",
    ),
    "barrier-arrivals-pending": "barrier",
    "barrier-overrun": "barrier",
    "barrier-skipped-phase": "barrier",
    "barrier-unwaited": "barrier",
    "leader-tracked-wait": "deadlock",
    "over-capacity": "too-much-smem",
    "step-limit": "timeout",
    "uninitialized-read": "nan",
}
# Which of several findings is reported: what stopped the kernel, before what it did until then.
_FIRST = ("exception", "unsupported", "deadlock", "timeout", "crash", "out-of-bounds")
# Reported if there is nothing else: who reads too early reads what nobody has written, too.
_LAST = ("nan",)

# Equations that move or relabel data: named only where nothing else does the work.
_LITTLE_WORK = frozenset({"broadcast_in_dim", "convert_element_type", "reshape", "squeeze"})
_IN_WORDS = {
    "scan": "a loop (`pl.loop`, `jax.lax.fori_loop`)",
    "while": "a loop whose number of steps is known only when it runs (`plgpu.nd_loop`)",
    "get": "a load from a ref (`ref[...]`)",
    "swap": "a store to a ref (`ref[...] = value`)",
    "wgmma_ref": "`plgpu.wgmma`",
    BARRIER_OF_ALL: "a ClusterBarrier over all blocks of the cluster (axes in a tuple of their "
    "own)",
    SLOTS_IN_TURN: "the slots in turn (`answers.at[slot]`, with a slot that changes)",
    "layout_cast": "a layout (`plgpu.load(ref, layout=...)`, `plgpu.layout_cast`)",
    "iota": "`iota` (`jnp.arange`)",
    "reduce_sum": "`reduce_sum` (`jnp.sum`)",
    "dot_general": "`dot_general` (`@`, `jnp.dot`)",
    "add": "`add` (`+`)",
    "sub": "`sub` (`-`)",
    "mul": "`mul` (`*`)",
}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judgement of one function.

    Attributes:
      exercise: the exercise's id.
      fault: one of `FAULTS` or a finding's rule; "" when nothing is wrong.
      lines: the sentences after the first line; of a right answer, what is remarked on it.
      seed: what the data were drawn from; `check(id, fn, seed=...)` draws them again.
      case: the case that went wrong, in words, "" where none in particular did.
      passed: how many cases were right.
      where: "the GPU" for a fault seen only there, else "".
      findings: what was found on the case that went wrong; of a right answer, the notes.
      rule: the rule of the finding that the verdict reports, "" where it reports none.
      drawn: whether the case that went wrong has data at all, or only plain numbers.
      checked: of a right Mojo program, what was looked at; it depends on the machine.
    """

    exercise: str
    fault: str = ""
    lines: tuple[str, ...] = ()
    seed: int = 0
    case: str = ""
    passed: int = 0
    where: str = ""
    findings: tuple[Finding, ...] = ()
    rule: str = ""
    drawn: bool = True
    checked: str = ""

    @property
    def ok(self) -> bool:
        """Whether the function is right."""
        return not self.fault

    def __str__(self) -> str:
        """One line when right and nothing is remarked, else at most `MAX_LINES`."""
        if self.ok and self.checked:
            return f"{self.exercise}: correct [checked: {self.checked}]."
        if self.ok:
            noted = ", with a note" if self.lines else ""
            right = f"{self.exercise}: correct on {_count(self.passed, 'shape')}{noted}."
            return "\n".join([right, *(line for text in self.lines for line in _wrap(text))])
        if self.fault == "not-done":
            return f"{self.exercise}: not done yet: fill in the cell above and run it again."
        last = self._last_line()
        room = MAX_LINES - len(_wrap(last))
        body = _fitted((self._first_line(), *self.lines), room)
        return "\n".join([body[0].strip(), *body[1:], *_wrap(last)])

    def _first_line(self) -> str:
        what = FAULTS.get(self.fault) or _title(self.fault)
        where = f" on {self.where}" if self.where else ""
        case = f", with {self.case}" if self.case else ""
        before = f" ({_count(self.passed, 'shape')} right before)" if self.passed else ""
        return f"{self.exercise}: {what}{where}{case}{before}."

    def _last_line(self) -> str:
        """What to do next. A fault of the data's shape comes back without the seed."""
        of_the_data = self.fault == "value" and self.drawn
        again = f" Same data again: check(..., seed={self.seed})." if of_the_data else ""
        return f'Stuck? hint("{self.exercise}").{again}'


def _title(rule: str) -> str:
    """A rule's own title, for a fault that is none of `FAULTS`."""
    from course_lib.simulator.rules import RULES

    return RULES[rule].title if rule in RULES else rule.replace("-", " ")


def fault_of(finding: Finding) -> str:
    """The fault that a finding is."""
    return _RULE_FAULTS.get(finding.rule, finding.rule)


def most_important(findings: Sequence[Finding]) -> Finding:
    """The one finding to report: what stopped the kernel, else the first."""
    order = {fault: i for i, fault in enumerate(_FIRST)}
    order |= {fault: len(_FIRST) + 1 for fault in _LAST}
    return min(findings, key=lambda f: order.get(fault_of(f), len(_FIRST)))


def describe_finding(finding: Finding) -> tuple[str, ...]:
    """A finding in a few sentences: what, where, and what to do."""
    what = _shortened(finding.what)
    if finding.where is not None and not finding.accesses:
        sentence = what if what.endswith("...") else what.rstrip(". ")
        what = f"{sentence} ({finding.where})."
    accesses = [f"{_PLACE}{a}" for a in finding.accesses[:2]]
    return (what, *accesses, *([finding.fix] if finding.fix else []))


def describe_advice(finding: Finding, advised: Finding) -> tuple[str, ...]:
    """A finding in the clinic's words; the original message stays readable under them."""
    lines = describe_finding(advised)
    if advised.what == finding.what:
        return lines
    return (*lines, f"{_ORIGINALLY}{textwrap.shorten(clinic.shorten(finding.what), _ORIGINAL)}")


def describe_unwritten(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The notes that a kernel left a part of its output unwritten: why the result is wrong."""
    return tuple(f.what for f in findings if f.rule == "unwritten-output")[:1]


def describe_no_kernel(outside: Counter[str]) -> tuple[str, ...]:
    """For a function without a kernel: says so, and what does the work instead."""
    work = _names(outside)
    instead = f"the work is done by {work}" if work else "nothing is computed at all"
    return (f"There is no GPU kernel in it: {instead}. Do it inside a `plgpu.kernel`.",)


def describe_not_from_kernel(outside: Counter[str]) -> tuple[str, ...]:
    """For a function that has a kernel but returns something else."""
    work = _names(outside)
    after = f" Outside of the kernel: {work}." if work else ""
    return (
        f"What is returned is not what a kernel wrote.{after} Let the kernel compute the result "
        "and return it as it is.",
    )


def describe_means(exercise: Exercise, inside: Counter[str]) -> tuple[str, ...]:
    """What the kernels lack or should not have: a sentence each, none if nothing."""
    lines = []
    for name, least in exercise.requires.items():
        if inside[name] < least:
            lines.append(_too_few(in_words(name), inside[name], least))
    lines += [
        f"The kernel uses {in_words(name)}, which is not allowed here."
        for name in exercise.forbids
        if inside[name]
    ]
    return tuple(lines)


def in_words(primitive: str) -> str:
    """A primitive as the learner writes it: "`plgpu.copy_gmem_to_smem`"."""
    if primitive in _IN_WORDS:
        return _IN_WORDS[primitive]
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import mosaic_gpu as plgpu

    for prefix, module in (("plgpu", plgpu), ("pl", pl), ("jax.lax", jax.lax), ("jnp", jax.numpy)):
        if hasattr(module, primitive):
            return f"`{prefix}.{primitive}`"
    return f"`{primitive}`"


def _names(outside: Counter[str]) -> str:
    names = [name for name, _ in outside.most_common()]
    work = [name for name in names if name not in _LITTLE_WORK] or names
    return ", ".join(_IN_WORDS.get(name, f"`{name}`") for name in work[:3])


def _shortened(text: str) -> str:
    """The text, or its beginning where it is one of JAX's long explanations."""
    return textwrap.shorten(text, _LONGEST_SENTENCE, placeholder=" ...")


def _too_few(name: str, found: int, least: int) -> str:
    uses = f"The kernel uses {name} {_times(found)}" if found else f"The kernel never uses {name}"
    asked = "which is asked for" if least == 1 else f"it should at least {_times(least)}"
    return f"{uses}, {asked}."


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _fitted(texts: Sequence[str], room: int) -> list[str]:
    """The texts in lines, `room` at most. What says where goes before what says what to do.

    First the original message, then the places from the last on make way for one "..."; if
    that does not do, the end is cut off instead.
    """
    kept = [_wrap(text) for text in texts]
    dropped: list[int] = []
    for i in _spare(texts):
        if sum(map(len, kept)) + bool(dropped) <= room:
            break
        kept[i] = []
        dropped.append(i)
    if dropped:
        kept[min(dropped)] = [f"{_INDENT}..."]
    lines = [line for text in kept for line in text]
    if len(lines) <= room:
        return lines
    return [*[line for text in texts for line in _wrap(text)][: room - 1], f"{_INDENT}..."]


def _spare(texts: Sequence[str]) -> list[int]:
    """Which texts a long verdict does without, the first to go first."""
    places = [i for i, text in enumerate(texts) if text.startswith(_PLACE)]
    return [i for i, text in enumerate(texts) if text.startswith(_ORIGINALLY)] + places[::-1]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=2 * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
