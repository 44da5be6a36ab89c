"""`course simulate file.py:kernel`: the simulator on an engineer's own code.

    course simulate matmul.py:matmul "f16[512,512]" "f16[512,512]"
    course simulate matmul.py:main --schedule adversarial --sarif

The arguments are types; the data is normal, fresh each time. A function without
arguments brings its own. The exit status is 1 if there is an error finding.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.diagnostics import CourseError, Finding, Severity
from course_lib.simulator.report import Report
from course_lib.simulator.rules import RULES
from course_lib.user_code import load_function, parse_array


def draw(text: str) -> np.ndarray:
    """An array of a type like `f16[512,512]`, with normal data (integers: the whole range)."""
    shape, dtype = parse_array(text)
    rng = np.random.default_rng()
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    return rng.standard_normal(shape).astype(dtype)


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as a SARIF 2.1.0 log."""
    used = sorted({f.rule for f in findings})
    rules = [
        {"id": r, "shortDescription": {"text": RULES[r].title}, "help": {"text": RULES[r].fix}}
        for r in used
        if r in RULES
    ]
    results = []
    for f in findings:
        result: dict[str, Any] = {
            "ruleId": f.rule,
            "level": "error" if f.severity is Severity.ERROR else "note",
            "message": {"text": str(f)},
        }
        if f.location is not None:
            region = {"startLine": f.location.line}
            where = {"artifactLocation": {"uri": f.location.file}, "region": region}
            result["locations"] = [{"physicalLocation": where}]
        results.append(result)
    driver = {"name": "course simulate", "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("target", help="file.py:function")
    parser.add_argument("types", nargs="*", help='argument types, like "f16[512,512]"')
    parser.add_argument("--arch", default="sm_90a", choices=["sm_90a", "sm_100a"])
    parser.add_argument(
        "--schedule", default="in_order", help="in_order, adversarial, or a number (a seed)"
    )
    parser.add_argument("--max-steps", type=int, default=20_000_000)
    parser.add_argument("--timeline", metavar="FILE", help="write a trace for Perfetto")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="findings as JSON")
    form.add_argument("--sarif", action="store_true", help="findings as SARIF")


def run(options: argparse.Namespace, simulate: Callable[..., Report] | None = None) -> int:
    """Simulates and prints; the exit status.

    Args:
      options: of `add_arguments`.
      simulate: what simulates instead of `course_lib.simulator.simulate`, with its arguments.
    """
    from course_lib.simulator import api

    simulate = simulate or api.simulate
    schedule = options.schedule
    schedule = int(schedule) if re.fullmatch(r"-?\d+", schedule) else schedule
    report = simulate(
        load_function(options.target),
        *(draw(t) for t in options.types),
        arch=options.arch,
        schedule=schedule,
        max_steps=options.max_steps,
        timeline=options.timeline is not None,
    )
    if options.timeline and report.timeline is not None:
        report.timeline.save(options.timeline)
    print(_text(report, options))
    return 1 if report.errors else 0


def _text(report: Report, options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps([f.to_dict() for f in report.findings], indent=2)
    if options.sarif:
        return json.dumps(sarif(report.findings), indent=2)
    return repr(report)


def main(argv: Sequence[str] | None = None) -> int:
    """The command on its own: `python -m course_lib.simulator.command`."""
    parser = argparse.ArgumentParser(prog="course simulate", description=__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except CourseError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
