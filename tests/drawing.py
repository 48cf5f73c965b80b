"""Tests of seconds or minutes, of which a check of one change runs a share, drawn from its commit.

They try many points, seeds or planted bugs, or wait for real processes. ``drawn_tests.txt`` lists them: test functions,
of which each set of parameters is drawn by itself, and files whose tests share their work and are drawn as one. Every
eight commits in a row run each of them about once, and `make soak` runs them all. Without a draw in the environment,
as when pytest is started by hand, nothing is left out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ONE_OF: Final = 8
"""Of the drawn tests, one in this number runs in a check."""

VARIABLE: Final = "STELAE_DRAW"
"""The environment variable with the number that chooses."""

LISTED: Final = frozenset((Path(__file__).parent / "drawn_tests.txt").read_text().split())
"""Files and functions."""


def draw_of_this_run() -> int | None:
    """Return the number that chooses; ``None``: every test runs."""
    value = os.environ.get(VARIABLE, "")
    return int(value) if value else None


def unit_of(node_id: str) -> str | None:
    """Return what is drawn together with a test, itself included; ``None``: the test always runs."""
    file = node_id.partition("::")[0]
    if file in LISTED:
        return file
    return node_id if node_id.partition("[")[0] in LISTED else None


def left_out(node_ids: Sequence[str], draw: int) -> set[str]:
    """Return the tests that a run leaves out.

    The units are counted in the order in which they were collected, so that each run has its share of every kind. Of
    fewer units than ``ONE_OF``, one runs. So no run leaves out all."""
    numbers: dict[str, int] = {}
    for node_id in node_ids:
        if (unit := unit_of(node_id)) is not None:
            numbers.setdefault(unit, len(numbers))
    share = min(ONE_OF, len(numbers))
    chosen = {unit for unit, number in numbers.items() if number % share == draw % share}
    return {node_id for node_id in node_ids if (unit := unit_of(node_id)) is not None and unit not in chosen}
