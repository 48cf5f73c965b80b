"""One list of checks: the Makefile, the script that runs them and the page about them agree."""

from __future__ import annotations

import re
import runpy

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
