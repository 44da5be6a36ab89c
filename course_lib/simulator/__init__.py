"""The GPU in the notebook: runs Mosaic GPU kernels on a model of the GPU and explains mistakes.

    report = simulate(f, *args)     # value, findings, timeline, resources
    program = trace_kernels(f, *args)
    report = replay(program, inputs)

`frontend` turns a jaxpr into `ir`, plain data; `machine` runs it with numpy. The
rules it knows are in `rules.RULES`; docs/simulator.md explains the model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.simulator.apart import replay_apart
    from course_lib.simulator.api import replay, simulate, trace_kernels
    from course_lib.simulator.frontend import devices
    from course_lib.simulator.inline import simulated_by
    from course_lib.simulator.report import Report, Resources
    from course_lib.simulator.rules import RULES, Rule

_HOMES = {
    "simulate": "api",
    "replay": "api",
    "replay_apart": "apart",
    "trace_kernels": "api",
    "devices": "frontend",
    "simulated_by": "inline",
    "Report": "report",
    "Resources": "report",
    "RULES": "rules",
    "Rule": "rules",
}

__all__ = [
    "RULES",
    "Report",
    "Resources",
    "Rule",
    "devices",
    "replay",
    "replay_apart",
    "simulate",
    "simulated_by",
    "trace_kernels",
]


def __getattr__(name: str) -> Any:
    """Loads a name at its first use: importing this package costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value
