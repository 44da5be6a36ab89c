"""`course bench` and `course tune`: what the command line asks of the benchmarks."""

from __future__ import annotations

import argparse

from course_lib.benchmarks import card, records


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
    from course_lib.benchmarks import bench, suites
    from course_lib.benchmarks.table import table

    unit, make = suites.SUITES[options.suite]
    record = bench.run_suite(
        options.suite, unit, make(options.sizes), rounds=options.rounds or 5, anyway=options.anyway
    )
    print(f"\n{table(record)}")
    if not record.rows:
        return 1
    if not options.no_record:
        print(f"\nRecorded in {records.write(record)}")
    return 0


def tune_command(options: argparse.Namespace) -> int:
    """Sweeps configurations for some sizes and keeps the best of each."""
    card.need_gpu()
    from course_lib.benchmarks import tune

    tune.tune(options.sizes, limit=options.limit, anyway=options.anyway)
    return 0
