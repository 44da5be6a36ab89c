"""The options of `course release` and `course grade`; nothing is imported to list them."""

from __future__ import annotations

import argparse
from pathlib import Path


def _positive(text: str) -> int:
    """A whole number from 1 up; argparse says the sentence of what is not."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return value


def add_release(parser: argparse.ArgumentParser) -> None:
    """The options of `course release`."""
    parser.add_argument("chapters", nargs="+", help="numbers or titles, as 03 05")
    parser.add_argument("--to", required=True, type=Path, help="the hand-out's folder, a new one")
    parser.add_argument("--seed", type=int, help="draw a variant of each exercise from this number")
    parser.add_argument("--deadline", help="as 2026-05-04T23:59, in your own time zone")
    parser.add_argument("--rubric", type=Path, help="a rubric.toml to begin with")


def add_grade(parser: argparse.ArgumentParser) -> None:
    """The options of `course grade`."""
    parser.add_argument("submissions", type=Path, help="the folder or zip file of what came back")
    parser.add_argument("--out", required=True, type=Path, help="the reports' folder")
    parser.add_argument(
        "--release", type=Path, help="the folder that `course release` wrote beside the hand-out"
    )
    parser.add_argument("--chapters", help="only these, as 03,05; needed without --release")
    parser.add_argument("--rubric", type=Path, help="without --release: points and penalties")
    parser.add_argument("--student", action="append", default=[], help="grade this one anew")
    parser.add_argument(
        "--exercise", action="append", default=[], help="grade this exercise of everybody anew"
    )
    parser.add_argument(
        "--jobs", type=_positive, help="students at a time (one for each processor)"
    )
    parser.add_argument(
        "--dask", default="", metavar="ADDRESS", help="use the cluster at tcp://..."
    )
    parser.add_argument(
        "--time-limit",
        type=_positive,
        default=600,
        metavar="S",
        help="stop a notebook's run after that",
    )
    parser.add_argument("--no-run", action="store_true", help="marks only: no notebook is run")
    parser.add_argument(
        "--gpu", action="store_true", help="what is right also runs on the card; no mark changes"
    )
    parser.add_argument("--anonymous", action="store_true", help="reports without names")
    parser.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run students' code unprotected"
    )
