"""The ladder of matmuls on the model and on an H200: makes a table of docs/simulator.md.

    python -m tests.simulator.against_h200              # all sizes; a few minutes
    python -m tests.simulator.against_h200 --print 4096x4096x4096

The measured times are those of the records in benchmarks/records: of the newest one, and the mean
with older ones that ran a step in the same configuration.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence

import jax

from course_lib.benchmarks import records
from course_lib.kernels import matmul_ladder
from course_lib.simulator import simulate
from tests.simulator.against_interpret_mode import DOC, put

CARD = "NVIDIA H200"
ALIKE = 1.03  # steps whose measured times are closer than this have no order


def measured() -> dict[str, dict[str, tuple[float, Mapping[str, object]]]]:
    """By size and step: microseconds on the card, and the configuration."""
    found = [r for r in records.all_records("matmul") if r.device == CARD]
    out: dict[str, dict[str, tuple[float, Mapping[str, object]]]] = {}
    for row in found[0].rows:
        if row.name.startswith("matmul"):
            same = [
                other.median_us
                for record in found
                for other in record.rows
                if (other.case, other.name, other.config) == (row.case, row.name, row.config)
            ]
            out.setdefault(row.case, {})[row.name] = (statistics.mean(same), row.config)
    return out


def predicted(case: str, name: str, config: Mapping[str, object]) -> float:
    """Microseconds of one step by the model; `case` is like "4096x8192x4096 bfloat16"."""
    size, dtype = case.split()
    m, n, k = map(int, size.split("x"))
    step = matmul_ladder.step(int(name.removeprefix("matmul")))

    def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
        return step.matmul(a, b, config=step.module.Config(**config))

    a, b = jax.ShapeDtypeStruct((m, k), dtype), jax.ShapeDtypeStruct((k, n), dtype)
    [found] = simulate(matmul, a, b, values=False).performance
    return found.time_us


def out_of_order(card: Mapping[str, float], model: Mapping[str, float]) -> list[tuple[str, str]]:
    """The pairs of steps that the model puts in another order than the card."""
    return [
        (a, b)
        for a, b in itertools.combinations(card, 2)
        if max(card[a], card[b]) > ALIKE * min(card[a], card[b])
        and (card[a] < card[b]) != (model[a] < model[b])
    ]


def table(cases: Sequence[str]) -> str:
    """Both columns for each size, in Markdown."""
    card = measured()
    model = {c: {n: predicted(c, n, config) for n, (_, config) in card[c].items()} for c in cases}
    rows = ["| step |" + "".join(f" {c}: H200 | model | |" for c in cases)]
    rows.append("|---|" + "---:|" * 3 * len(cases))
    for step in matmul_ladder.STEPS:
        cells = []
        for c in cases:
            real, guess = card[c][step.name][0], model[c][step.name]
            cells.append(f" {real:.0f} | {guess:.0f} | {guess / real - 1:+.0%} |")
        rows.append(f"| {step.number}, {step.idea} |" + "".join(cells))
    wrong = [
        f"{a} and {b} at {c}"
        for c in cases
        for a, b in out_of_order({n: t for n, (t, _) in card[c].items()}, model[c])
    ]
    return "\n".join([*rows, "", f"Out of order: {', '.join(wrong) or 'none'}."])


def main() -> None:
    """Prints the table, or writes it into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", nargs="*", metavar="SIZE", help="print these sizes only")
    options = parser.parse_args()
    cases = list(measured())
    if options.print is None:
        DOC.write_text(put(DOC.read_text(), "ladder", table(cases)))
    else:
        wanted = [c for c in cases if not options.print or c.split()[0] in options.print]
        print(table(wanted))


if __name__ == "__main__":
    main()
