"""Each step of copies and deletions that the code names as a crash point is one at which the tests kill."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.soak.kill_steps import COPY_STEPS, DELETE_STEPS, FIRST_COPY_STEPS, LATER_COPY_STEPS
from tests.tidy.tree import parsed, python_files
from tests.unit.lifecycle import test_copy_crashes, test_deletion


@functools.cache
def crash_points() -> Counter[str]:
    """Return how often each crash point, a literal, is given to ``CrashPoints.hit``."""
    calls = (node for path in python_files("kernel") for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
    hits = (call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "hit")
    return Counter(str(point.value) for point in hits if isinstance(point, ast.Constant))


@pytest.mark.parametrize(
    ("prefix", "killed_at"),
    [
        ("copy.", COPY_STEPS),
        ("copy.", test_copy_crashes.POINTS),
        ("abandon.", sorted({*FIRST_COPY_STEPS, *LATER_COPY_STEPS})),
        ("delete.", DELETE_STEPS),
        ("delete.", test_deletion.POINTS),
    ],
    ids=[
        "copies of real processes",
        "copies",
        "abandoned copies of real processes",
        "deletions of real processes",
        "deletions",
    ],
)
def test_every_step_has_a_kill_and_every_kill_has_a_step(prefix: str, killed_at: Sequence[str]) -> None:
    points = {point: count for point, count in crash_points().items() if point.startswith(prefix)}
    assert sorted(points) == sorted(point for point in killed_at if point.startswith(prefix))
    assert {*points.values()} == {1}, "the name of a crash point says where it is"
