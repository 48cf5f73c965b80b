"""Tests of which a check runs a share: each that is listed exists, and each runs in one of the draws."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from tests.drawing import LISTED, ONE_OF, VARIABLE, left_out, unit_of
from tests.tidy.tree import ROOT

LIST = ROOT / "tests" / "drawn_tests.txt"


def functions_of(file: str) -> set[str]:
    """The tests of a file as pytest names them, without parameters."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_each_listed_test_exists_once_in_order() -> None:
    lines = LIST.read_text().splitlines()
    assert lines == sorted(set(lines))
    missing = [line for line in lines if not (ROOT / line.partition("::")[0]).is_file()]
    assert missing == []
    # Tests of a class come from the conformance suites, whose names the classes inherit.
    plain = [line.split("::") for line in lines if line.count("::") == 1]
    assert [f"{file}::{name}" for file, name in plain if name not in functions_of(file)] == []


def test_no_test_is_listed_beside_its_file() -> None:
    assert [line for line in LISTED if "::" in line and line.partition("::")[0] in LISTED] == []


def test_each_test_runs_in_one_of_the_draws_and_tests_that_are_not_listed_in_all() -> None:
    listed = sorted(LISTED)
    names = [f"{line}[{number}]" if "::" in line else f"{line}::test_{number}" for line in listed for number in (1, 2)]
    names += ["tests/unit/test_other.py::test_that_always_runs"]
    kept = [set(names) - left_out(names, draw) for draw in range(7, 7 + ONE_OF)]
    assert set.union(*kept) == set(names)
    assert set.intersection(*kept) == {"tests/unit/test_other.py::test_that_always_runs"}
    assert max(map(len, kept)) - min(map(len, kept)) <= 4


@pytest.mark.parametrize("count", [1, 2, 5, ONE_OF - 1, ONE_OF, ONE_OF + 1, 3 * ONE_OF])
def test_no_draw_leaves_out_all_of_a_few_tests(count: int) -> None:
    """At three of eight draws, the group with five of them ran no simulator."""
    names = [f"{line}::test" for line in sorted(LISTED) if "::" not in line][:count]
    assert len(names) == min(count, len([line for line in LISTED if "::" not in line]))
    kept = [set(names) - left_out(names, draw) for draw in range(3, 3 + ONE_OF)]
    assert all(kept) and set.union(*kept) == set(names)


def test_the_tests_of_a_listed_file_are_drawn_as_one() -> None:
    assert unit_of("tests/sim/test_coverage.py::test_a[1]") == unit_of("tests/sim/test_coverage.py::test_b")


def collected(*more: str, **environment: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/unit/host/test_hostile_peers.py", *more]
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    shown = subprocess.run(command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, check=True).stdout
    return {line for line in shown.splitlines() if "::" in line}


def test_pytest_leaves_out_what_is_not_drawn_and_finds_the_mark() -> None:
    everything, drawn = collected(), collected("-m", "drawn")
    assert drawn and drawn < everything
    first, second = (collected(**{VARIABLE: str(draw)}) for draw in (0, 1))
    assert everything > first >= everything - drawn
    assert everything > second >= everything - drawn
    assert first & second == everything - drawn
    assert (first | second) & drawn
