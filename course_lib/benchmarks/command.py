"""`course bench` and `course tune`: what the command line asks of the benchmarks."""

from __future__ import annotations

import argparse

from course_lib.benchmarks import card, records
from course_lib.diagnostics import CourseError


def bench_command(options: argparse.Namespace) -> int:
    """Measures a suite, prints its table and writes its record."""
    if options.suite == "simulator":
        from course_lib.benchmarks import simulator

        sizes = [*map(int, options.sizes)] if options.sizes else [512, 1024]
        simulator.report(sizes, repeats=options.rounds or 5)
        return 0
    card.need_gpu()
    if options.suite == "collective":
        from course_lib.benchmarks import collective

        rows = [*map(int, options.sizes)] or collective.ROWS
        found = collective.run_suite(rows, rounds=options.rounds or 4, anyway=options.anyway)
        if not options.no_record:
            print(f"\nRecorded in {records.write(found)}")
        return 0 if found.rows else 1
    from course_lib.benchmarks import suites

    together = suites.TOGETHER.get(options.suite, (options.suite,))
    if len(together) > 1 and options.sizes:
        raise CourseError(
            f"--sizes goes with one suite, and {options.suite} is several: take one of "
            f"{', '.join(together)}."
        )
    return max(_measure(suite, options) for suite in together)


def _measure(suite: str, options: argparse.Namespace) -> int:
    """Measures one suite; 1 if nothing could be measured, else 0."""
    from course_lib.benchmarks import bench, suites
    from course_lib.benchmarks.table import roof, table

    unit, make = suites.SUITES[suite]
    record = bench.run_suite(
        suite, unit, make(options.sizes), rounds=options.rounds or 5, anyway=options.anyway
    )
    print(f"\n{table(record)}")
    if not record.rows:
        return 1
    # The roof of GB/s is the device memory's, and the stream of clusters comes out of L2.
    ceilings = None if suite == "clusters-stream" else card.roofline()
    if ceilings is not None:
        print(f"\n{roof(record, ceilings)}")
    if not options.no_record:
        print(f"\nRecorded in {records.write(record)}")
    return 0


def tune_command(options: argparse.Namespace) -> int:
    """Sweeps configurations for some sizes and keeps the best of each."""
    card.need_gpu()
    from course_lib.benchmarks import tune

    tune.tune(options.sizes, limit=options.limit, anyway=options.anyway)
    return 0
