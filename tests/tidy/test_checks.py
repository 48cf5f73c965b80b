"""One list of checks: the Makefile, the script that runs them and the pages about them agree, to the numbers."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.at_length import FACTOR, times
from tests.drawing import LISTED, VARIABLE
from tests.sim.floors import SEEDS as COVERED
from tests.tidy.tree import ROOT


@pytest.fixture
def script() -> dict[str, Any]:
    """What ``.ci/check.py`` defines."""
    return runpy.run_path(str(ROOT / ".ci/check.py"), run_name="check")


def names_of_the_makefile(variables: str) -> list[str]:
    text = (ROOT / "Makefile").read_text()
    lists = re.findall(rf"^{variables} := (.*)$", text, re.MULTILINE)
    return [name for names in lists for name in names.split()]


def text_of(name: str) -> str:
    """The text of a page, without its line ends."""
    return " ".join((ROOT / name).read_text().split())


def count_of(seeds: str) -> int:
    first, last = map(int, seeds.split(".."))
    return last - first + 1


def test_the_makefile_knows_every_group_once_in_the_order_of_the_script_and_every_part(script: dict[str, Any]) -> None:
    assert names_of_the_makefile(r"GROUPS_\w+") == list(script["GROUPS"])
    assert names_of_the_makefile("PARTS") == list(script["PARTS"])


def test_contributing_explains_every_group_and_part(script: dict[str, Any]) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = "".join(line for line in text.splitlines() if line.startswith("| `"))
    assert [name for name in (*script["GROUPS"], *script["PARTS"]) if f"`{name}`" not in table] == []


def test_every_folder_of_tests_belongs_to_a_group(script: dict[str, Any]) -> None:
    run = {word for groups in ("GROUPS", "SOAK") for command in script[groups].values() for word in command}
    folders = [p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name[0] != "_"]
    assert [name for name in folders if f"tests/{name}" not in run] == []


def test_the_parts_of_a_group_are_all_of_it(script: dict[str, Any]) -> None:
    parts = {word for command in script["PARTS"].values() for word in command if word.startswith("tests/")}
    assert parts == {word for word in script["GROUPS"]["modules"] if word.startswith("tests/")}


def test_what_one_group_of_the_simulator_leaves_out_another_runs(script: dict[str, Any]) -> None:
    for floors, mutants in (("floors", "mutants"), ("soak-floors", "soak-mutants")):
        groups = script["GROUPS"] | script["SOAK"]
        left_out = {word.removeprefix("--ignore=") for word in groups[mutants] if word.startswith("--ignore=")}
        assert left_out == {word for word in groups[floors] if word.startswith("tests/")}
        assert all((ROOT / path).exists() for path in left_out)


def test_what_a_check_leaves_out_as_too_long_soak_runs(script: dict[str, Any]) -> None:
    """By a command without markers, or with these two. The first "-m" of a command is that of the interpreter."""
    left_out = {
        word
        for command in script["GROUPS"].values()
        if "not long" in command
        for word in command
        if word.startswith("tests/")
    }
    run = {
        word
        for command in script["SOAK"].values()
        if "long or drawn" in command or command.count("-m") == 1
        for word in command
        if word.startswith("tests/")
    }
    assert left_out and left_out <= run


def test_soak_runs_every_test_of_which_a_check_runs_a_share(script: dict[str, Any]) -> None:
    files = {line.partition("::")[0] for line in LISTED}
    whole = [
        word
        for command in script["SOAK"].values()
        if "long or drawn" in command or command.count("-m") == 1
        for word in command
        if word.startswith("tests/")
    ]
    assert [file for file in files if not any(file == word or file.startswith(f"{word}/") for word in whole)] == []


def test_a_group_draws_among_others_and_runs_everything_by_itself(
    script: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    script["GROUPS"]["lint"] = (sys.executable, "-c", f"import os; print('draw', os.environ.get({VARIABLE!r}))")
    assert script["DRAW"] == VARIABLE
    assert script["main"](["lint"]) == 0
    assert "draw None" in capfd.readouterr().out
    script["GROUPS"]["tidy"] = script["GROUPS"]["lint"]
    assert script["main"](["tidy", "lint"]) == 0
    assert capfd.readouterr().out.count(f"draw {script['draw_of_this_change']()}") == 2


def test_every_group_has_its_place_beside_others_or_on_both_cores(script: dict[str, Any]) -> None:
    (waiting, single), afterwards = script["lanes_of"]([*script["GROUPS"]])
    assert sorted([*waiting, *single, *afterwards]) == sorted(script["GROUPS"])
    assert waiting == ["e2e"]
    assert [group for group in single if "-n" in script["GROUPS"][group]] == [], "these need one process"
    alone = [group for group in afterwards if "-n" not in script["GROUPS"][group]]
    assert alone == ["spark"], "these use both cores: spark with a JVM and its workers, the others with two processes"


def test_continuous_integration_runs_the_command_that_contributing_names() -> None:
    assert "make check" in (ROOT / ".ci/run").read_text()
    assert "make check" in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_pages_say_the_numbers_of_the_script(script: dict[str, Any], page: str) -> None:
    budget_s, soak = script["BUDGET_S"], count_of(script["SEEDS_SOAK"])
    text = text_of(page)
    assert re.findall(r"(\d+) minutes", text) == [f"{budget_s // 60}"]
    assert f"{budget_s // 60} minutes on two quiet cores" in text
    counts = (*script["SEEDS_COUNTS"].values(), soak)
    assert set(re.findall(r"(\d+) seeds", text)) == {f"{count}" for count in counts}
    assert set(re.findall(r"of (\d+) budgeted", text)) <= {f"{budget_s}"}


def test_the_pages_name_the_seeds_of_the_floors_and_groups_that_there_are(script: dict[str, Any]) -> None:
    assert f"the seeds {COVERED[0]} to {COVERED[-1]}" in text_of("CONTRIBUTING.md")
    shown = re.findall(r"^(\w+) +[\d.]+ +[\d.]+  ok$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert shown and set(shown) <= set(script["GROUPS"])
    assert f"{count_of(script['SEEDS_SOAK'])} seeds" in (ROOT / "Makefile").read_text()


def test_each_change_runs_seeds_of_its_own_and_soak_runs_a_thousand_of_them(script: dict[str, Any]) -> None:
    """Each soak ran the seeds 101 to 1100, so the code was fitted to them: no run was new."""
    assert script["SEEDS_COUNTS"] == {"sim": 18, "members": 6, "leases": 3, "lookups": 3, "copies": 2, "masters": 8}
    assert sum(script["SEEDS_COUNTS"].values()) == 40
    first = script["GROUPS"]["sim"][-1].split("..")[0]
    assert int(first) >= 1_000 > max(COVERED)
    for group, count in script["SEEDS_COUNTS"].items():
        seeds = script["GROUPS"][group][-1]
        assert seeds == script["seeds_of_this_change"](count)
        assert count_of(seeds) == count and seeds.split("..")[0] == first
        found = {name: words[-1] for name, words in script["SOAK"].items() if name.startswith(f"soak-{group}-")}
        parts = [*found.values()]
        assert parts == script["parts_of"](script["SEEDS_SOAK"])
        assert list(found) == [f"soak-{group}-{number}of{len(parts)}" for number in range(1, len(parts) + 1)]
    assert script["SEEDS_SOAK"] == script["seeds_of_this_change"](count_of(script["SEEDS_SOAK"]))
    assert sum(map(count_of, parts)) == count_of(script["SEEDS_SOAK"]) >= 1_000
    bounds = [int(bound) for part in parts for bound in part.split("..")]
    assert [bounds[0], bounds[-1]] == [int(bound) for bound in script["SEEDS_SOAK"].split("..")]
    assert bounds == sorted({*bounds}), "no seed is run twice"


def test_a_check_announces_the_seeds_that_its_groups_run(
    script: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    groups = script["GROUPS"]
    seeded = {group: words[-1] for group, words in groups.items() if "--seeds" in words}
    script["announce"]([*groups])
    line = capfd.readouterr().out.splitlines()[-1]
    assert line == "seeds of this commit: " + ", ".join(f"{group} {seeds}" for group, seeds in seeded.items())
    assert list(seeded) == list(script["SEEDS_COUNTS"])


def test_soak_searches_further_where_a_check_searches(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for group in ("soak-floors", "soak-mutants", "soak-fuzz", "soak-hostile"):
        assert script["SOAK"][group][:2] == ("env", "STELAE_SOAK=1")
    monkeypatch.setattr("tests.at_length.AT_LENGTH", False)
    assert times(3) == 3
    monkeypatch.setattr("tests.at_length.AT_LENGTH", True)
    assert times(3) == 3 * FACTOR


def test_groups_keep_what_python_compiles(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert script["environment"]() == {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def test_every_group_runs_to_its_end_in_one_piece_whatever_becomes_of_the_others(
    script: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    groups: dict[str, tuple[str, ...]] = script["GROUPS"]
    for group in groups:
        lines = f"print('{group} 1'); print('{group} 2'); raise SystemExit({group in ('tidy', 'modules')})"
        groups[group] = (sys.executable, "-c", lines)
    assert script["main"](["--check"]) == 1
    output = capfd.readouterr().out
    assert [group for group in groups if f"\n{group} 1\n{group} 2\n" not in output] == []
    announced, *_ = output.partition("\n==")
    assert set(groups) <= set(announced.split())
    before, _, last = output.rpartition("cpu\n")
    table, *failed = last.split("\n\n")
    rows = [line.split() for line in table.splitlines()]
    assert [row[0] for row in rows] == [*groups, "total"]
    assert [row[0] for row in rows if row[-1] == "FAILED"] == ["tidy", "modules"]
    assert failed == [
        f"FAILED: {group}\n  {group} 1\n  {group} 2" + end for group, end in (("tidy", ""), ("modules", "\n"))
    ]
    left = before.partition("left to make soak:\n")[2].split("\n\n")[0]
    assert [line.split(":")[0].strip() for line in left.splitlines()] == list(script["SOAK"])
    named = "1 failed\nFAILED tests/a.py::test_b - assert\n== 1 failed, 3 passed =="
    assert script["failures_in"](named) == ["FAILED tests/a.py::test_b - assert"]
    groups.update(dict.fromkeys(groups, (sys.executable, "-c", "")))
    assert script["main"](list(groups)) == 0


def test_an_interrupted_soak_goes_on_with_what_has_not_passed_on_the_same_commit(
    script: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    variables = script["run_soak"].__globals__
    variables["PASSED"], commits = tmp_path, ["a"]
    variables["clean_commit"] = lambda: commits[0]
    good, bad = ((sys.executable, "-c", f"print('ran'); raise SystemExit({code})") for code in (0, 1))
    script["SOAK"].clear()
    script["SOAK"].update({"soak-good": good, "soak-bad": bad})

    def runs() -> tuple[int, int]:
        code = script["main"](["--soak"])
        output = capfd.readouterr().out
        assert output.startswith(f"seeds of this commit: {script['SEEDS_SOAK']}\n")
        return code, output.count("ran\n")

    assert runs() == (1, 2)
    script["SOAK"]["soak-bad"] = good
    assert runs() == (0, 1) and runs() == (0, 0)
    commits[0] = "b"
    assert runs() == (0, 2)
    commits[0] = ""
    assert runs() == (0, 2) and runs() == (0, 2), "with changed files nothing is known"


def test_a_group_that_runs_alone_takes_arguments_and_prints_as_it_goes(
    script: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    script["PARTS"]["unit"] = (sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(3)")
    assert script["main"](["unit", "--", "-k", "clock"]) == 1
    assert "\n['-k', 'clock']\n" in capfd.readouterr().out
    assert script["main"](["unit", "tidy", "--", "-k"]) == 2
    assert script["main"](["unti"]) == 2
