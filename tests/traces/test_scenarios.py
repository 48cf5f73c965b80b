"""Every scenario has its trace, every trace shows a scenario, and a trace opens with the scenario and its source."""

from __future__ import annotations

import re

import pytest

from tests.traces.interpreter import traces
from tests.traces.scenarios import CONFIG_CHANGE, CONSENSUS, DISSERTATION, SCENARIOS, Scenario

OPENINGS = {path.stem: path.read_text().partition("\ncluster ")[0] for path in traces()}
"""The opening comment of each trace."""


def _name(scenario: Scenario) -> str:
    return f"{scenario.source} {scenario.section}: {scenario.summary}"


def test_every_scenario_has_traces_and_every_trace_shows_a_scenario() -> None:
    listed = {name for scenario in SCENARIOS for name in scenario.traces}
    assert listed == set(OPENINGS)
    assert [_name(scenario) for scenario in SCENARIOS if not scenario.traces] == []


def test_no_scenario_is_listed_twice() -> None:
    names = [_name(scenario) for scenario in SCENARIOS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=_name)
def test_a_trace_opens_with_its_scenario_and_the_source(scenario: Scenario) -> None:
    for trace in scenario.traces:
        lines = OPENINGS[trace].splitlines()
        assert lines and all(line.startswith("# ") for line in lines), f"{trace} does not open with a comment"
        opening = " ".join(line.removeprefix("# ") for line in lines)
        assert scenario.source in opening, f"{trace} does not name its source"
        if scenario.source == DISSERTATION:
            assert re.search(rf"(?<![\d.]){re.escape(scenario.section)}(?![\d.]*\d)", opening), f"{trace}: no section"


def test_every_step_and_section_has_a_scenario() -> None:
    sections = {(scenario.source, scenario.section) for scenario in SCENARIOS}
    steps = [f"adding, step {step}" for step in range(1, 6)] + [f"removing, step {step}" for step in range(1, 4)]
    processes = ["One-by-one", "implementation details", *steps]
    processes += ["disruptive servers", "moving a tablet", "restoring availability"]
    processes += ["appendix, t=1 to t=5", "appendix, t=3", "appendix, t=4", "appendix, electable"]
    assert [name for name in processes if (CONFIG_CHANGE, name) not in sections] == []
    parts = ["The write ahead log", "Group commit", "Configs and roles"]
    parts += ["Assembling", "Rebooting", "RaftConfig states"]
    assert [name for name in parts if (CONSENSUS, name) not in sections] == []
    chapters = ["3.10", "4.1", "4.2.1", "4.2.2", "4.2.3", "6.4", "6.4.1"]
    assert [name for name in chapters if (DISSERTATION, name) not in sections] == []
