"""Makes the tables of docs/simulator.md: the rules, and what JAX's interpret mode says.

    python -m tests.simulator.against_interpret_mode [--rules-only]

Each litmus pair's kernels run in JAX's interpret mode with race detection, in a
process that is killed after a while: a deadlock never returns there.
"""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
from pathlib import Path

from course_lib.simulator import RULES
from course_lib.simulator.errors import class_name

DOC = Path(__file__).parents[2] / "docs" / "simulator.md"
LIMIT_S = 60

_SERVE = """
import contextlib, io, sys
import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
from tests.simulator.test_litmus import PAIRS

HINTS = ("race", "RACE", "in flight", "complete", "pending", "out of bounds", "OOB")
print("ready", flush=True)
for line in sys.stdin:
    index, which = line.split()
    kernel, args = getattr(PAIRS[int(index)], which), PAIRS[int(index)].draw()
    out = io.StringIO()
    params = plgpu.InterpretGPUParams(detect_races=True)
    try:
        with plgpu.force_gpu_interpret_mode(params), contextlib.redirect_stdout(out):
            jax.block_until_ready(kernel(*args))
    except Exception as error:
        caught = any(h in f"{type(error).__name__}: {error}" for h in HINTS)
        print("caught, stopped" if caught else "fails", flush=True)
        break  # interpret mode is not to be used again after an exception
    print("caught" if "RACE" in out.getvalue() else "silent", flush=True)
"""


class Interpreter:
    """A process with interpret mode in it; another one takes its place when it is lost."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()  # imports take their time; the limit is for the kernel
        return child

    def ask(self, index: int, which: str) -> str:
        """What interpret mode does with a kernel: "caught", "silent", "fails" or "hangs"."""
        if self._child is None or self._child.poll() is not None:
            self._child = self._start()
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{index} {which}\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], LIMIT_S)
        answer = child.stdout.readline().strip() if ready else "hangs"
        if answer not in ("caught", "silent"):
            child.kill()
            child.wait()
            self._child = None
        return answer.split(",")[0] or "fails"


def rules_table() -> str:
    """The rules as a Markdown table."""
    rows = ["| rule | exception | severity | what | source |", "|---|---|---|---|---|"]
    rows += [
        f"| `{r.id}` | `{class_name(r.id)}` | {r.severity.value} | {r.title} | {r.source} |"
        for r in RULES.values()
    ]
    return "\n".join(rows)


def comparison_table(known: dict[str, str]) -> str:
    """Each litmus pair in interpret mode, as a Markdown table; `known` rows are taken over."""
    from tests.simulator.test_litmus import PAIRS

    interpreter = Interpreter()
    rows = ["| mistake | interpret mode, wrong kernel | right twin |", "|---|---|---|"]
    for i, pair in enumerate(PAIRS):
        if pair.label in known:
            rows.append(known[pair.label])
            continue
        twin = {"silent": "runs", "caught": "false report"}
        right = interpreter.ask(i, "right")
        wrong = interpreter.ask(i, "wrong") if right != "fails" else "cannot run it"
        rows.append(f"| {pair.label} | {wrong} | {twin.get(right, right)} |")
        print(rows[-1], flush=True)
    return "\n".join(rows)


def known_rows(text: str) -> dict[str, str]:
    """The rows that the document has, by the label of their pair."""
    table = text.partition("<!-- comparison -->")[2].partition("<!-- end comparison -->")[0]
    return {r.split("|")[1].strip(): r for r in table.splitlines() if r.count("|") == 4}


def put(text: str, name: str, table: str) -> str:
    """The document with a table between its markers."""
    start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    head, rest = text.split(start)
    tail = rest.split(end)[1]
    return f"{head}{start}\n\n{table}\n\n{end}{tail}"


def main() -> None:
    """Writes the tables into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules-only", action="store_true")
    parser.add_argument("--new", action="store_true", help="only ask about pairs without a row")
    options = parser.parse_args()
    known = known_rows(DOC.read_text()) if options.new else {}
    comparison = None if options.rules_only else comparison_table(known)
    text = put(DOC.read_text(), "rules", rules_table())
    if comparison is not None:
        text = put(text, "comparison", comparison)
    DOC.write_text(text)


if __name__ == "__main__":
    main()
