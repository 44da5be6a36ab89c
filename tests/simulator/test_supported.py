"""The list of what is supported is that of this JAX: a new primitive cannot slip in."""

from __future__ import annotations

import subprocess
import sys

from course_lib.simulator import RULES, frontend
from course_lib.simulator.machine.machine import MAKERS
from course_lib.simulator.machine.shapes import VALUES


def test_every_primitive_of_pallas_is_known() -> None:
    known = frontend.known_primitives()
    unknown = frontend.pallas_primitives() - set(known) - set(VALUES)
    assert not unknown, f"say in adapters.py what becomes of {sorted(unknown)}"


def test_what_is_refused_is_listed() -> None:
    refused = {n for n, runs in frontend.known_primitives().items() if not runs}
    assert refused == {
        "inline_mgpu",  # except for the fences of JAX's own helpers
        "multimem_load_reduce",
        "multimem_store",
        "pallas_call",  # deprecated for Mosaic GPU: one sentence says what to use
        "wait_gmem_to_smem",  # cp.async, before Hopper
        "wgmma",
    }


def test_the_machine_has_a_step_for_each_op() -> None:
    for name in ("kernel", "shard_map", "unsupported"):
        assert name not in MAKERS
    assert not set(MAKERS) & set(VALUES)


def test_rules_are_in_words_and_have_sources() -> None:
    for rule in RULES.values():
        assert rule.id == rule.id.lower().replace("_", "-")
        assert rule.title
        assert rule.source
        if rule.id not in ("exception",):
            assert rule.fix, rule.id


def test_importing_the_package_is_light() -> None:
    """JAX and numpy are not loaded before a simulation."""
    code = (
        "import sys, course_lib.simulator; "
        "assert not {'jax', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_machine_imports_no_jax() -> None:
    code = "import sys, course_lib.simulator.machine.machine; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_document_compares_every_pair_with_interpret_mode() -> None:
    from tests.simulator.against_interpret_mode import DOC, known_rows
    from tests.simulator.test_litmus import PAIRS

    rows = [label for label in known_rows(DOC.read_text()) if label not in ("mistake", "---")]
    assert rows == [pair.label for pair in PAIRS], (
        "run python -m tests.simulator.against_interpret_mode --new"
    )


def test_the_document_lists_every_rule() -> None:
    from tests.simulator.against_interpret_mode import DOC, rules_table

    assert rules_table() in DOC.read_text(), (
        "run python -m tests.simulator.against_interpret_mode --rules-only"
    )
