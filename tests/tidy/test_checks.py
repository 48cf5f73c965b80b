"""One list of checks: the Makefile, the script that runs them and the page about them agree."""

from __future__ import annotations

import re
import runpy
import sys

import pytest

from tests.sim.test_coverage import SEEDS as COVERED
from tests.tidy.tree import ROOT


def groups_of_the_script() -> list[str]:
    return list(runpy.run_path(str(ROOT / ".ci/check.py"), run_name="check")["GROUPS"])


def groups_of_the_makefile() -> list[str]:
    text = (ROOT / "Makefile").read_text()
    lists = re.findall(r"^GROUPS_\w+ := (.*)$", text, re.MULTILINE)
    return [group for names in lists for group in names.split()]


def test_make_check_runs_every_group_once_in_the_order_of_the_script() -> None:
    assert groups_of_the_makefile() == groups_of_the_script()


def test_contributing_explains_every_group() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = "".join(line for line in text.splitlines() if line.startswith("| `"))
    assert [group for group in groups_of_the_script() if f"`{group}`" not in table] == []


def test_every_folder_of_tests_belongs_to_a_group() -> None:
    commands = (ROOT / ".ci/check.py").read_text()
    folders = [p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name[0] != "_"]
    assert [name for name in folders if f'"tests/{name}"' not in commands] == []


def test_continuous_integration_runs_the_command_that_contributing_names() -> None:
    assert "make check" in (ROOT / ".ci/run").read_text()
    assert "make check" in (ROOT / "CONTRIBUTING.md").read_text()


def test_each_change_runs_seeds_of_its_own_and_soak_runs_a_thousand() -> None:
    script = runpy.run_path(str(ROOT / ".ci/check.py"), run_name="check")
    first, last = map(int, script["GROUPS"]["sim"][-1].split(".."))
    assert last - first + 1 == script["SEEDS_COUNT"] == 40
    assert first >= 1_000 > max(COVERED)
    assert script["seeds_of_this_change"]() == script["GROUPS"]["sim"][-1]
    first, last = map(int, script["SOAK"]["soak-sim"][-1].split(".."))
    assert last - first + 1 >= 1_000


def test_contributing_says_what_is_left_to_soak() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert "make soak" in text


def test_every_group_runs_to_its_end_in_one_piece_whatever_becomes_of_the_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = runpy.run_path(str(ROOT / ".ci/check.py"), run_name="check")
    groups: dict[str, tuple[str, ...]] = script["GROUPS"]
    for group in groups:
        lines = f"print('{group} 1'); print('{group} 2'); raise SystemExit({group in ('tidy', 'unit')})"
        groups[group] = (sys.executable, "-c", lines)
    assert script["main"](list(groups)) == 1
    output = capfd.readouterr().out
    assert [group for group in groups if f"\n{group} 1\n{group} 2\n" not in output] == []
    table = [line.split() for line in output.rpartition("seconds\n")[2].splitlines()]
    assert table.pop()[:4] == ["left", "to", "make", "soak:"]
    assert [row[0] for row in table[:-1]] == list(groups)
    assert [row[0] for row in table if row[-1] == "FAILED"] == ["tidy", "unit"]
    groups.update(dict.fromkeys(groups, (sys.executable, "-c", "")))
    assert script["main"](list(groups)) == 0
