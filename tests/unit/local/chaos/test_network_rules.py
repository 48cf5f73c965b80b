"""The fault seam's verdicts."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from stelae.local.chaos import rules_file
from stelae.local.chaos.network_rules import FaultRule, Faults, NetworkFaults
from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId
from stelae.wire.faults import Direction

A, B = NodeId("a" * 32), NodeId("b" * 32)


def seam() -> Faults:
    return Faults(random.Random(7))


def test_without_rules_everything_passes_once_and_at_once() -> None:
    faults = seam()
    assert not faults.rules
    assert faults.judge(A, Direction.OUTBOUND) == (0,)


def test_a_partition_may_be_one_way_and_heals() -> None:
    faults = seam()
    faults.partition(A, inbound=False)
    assert faults.judge(A, Direction.OUTBOUND) == ()
    assert faults.judge(A, Direction.INBOUND) == (0,)
    assert faults.judge(B, Direction.OUTBOUND) == (0,)
    faults.heal(A)
    assert faults.judge(A, Direction.OUTBOUND) == (0,)
    assert not faults.rules


def test_a_peers_own_rule_stands_before_the_rule_for_all() -> None:
    faults = seam()
    faults.partition(None)
    faults.rules[(A, Direction.OUTBOUND)] = FaultRule()
    assert faults.judge(A, Direction.OUTBOUND) == (0,)
    assert faults.judge(B, Direction.OUTBOUND) == ()
    faults.rules.clear()
    assert faults.judge(B, Direction.OUTBOUND) == (0,)


def test_chances_are_what_they_say_and_repeat_from_the_same_seed() -> None:
    rule = FaultRule(drop=0.3, duplicate=0.2, reorder=0.1, reorder_ms=50, delay_ms_max=9)
    verdicts = []
    for _ in range(2):
        faults = seam()
        faults.rules[(A, Direction.INBOUND)] = rule
        verdicts.append([faults.judge(A, Direction.INBOUND) for _ in range(4000)])
    assert verdicts[0] == verdicts[1]
    lost = [one for one in verdicts[0] if not one]
    twice = [one for one in verdicts[0] if len(one) == 2]
    held = [one for one in verdicts[0] if one and one[0] >= 50]
    plain = [one[0] for one in verdicts[0] if one and one[0] < 50]
    assert 0.27 < len(lost) / 4000 < 0.33
    assert 0.11 < len(twice) / 4000 < 0.17
    assert 0.05 < len(held) / 4000 < 0.09
    assert set(plain) == set(range(10))


# -- by a file -------------------------------------------------------------------------------------


@pytest.fixture
def rules_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rules_file, "LOOK_S", 0.0)
    return tmp_path / "network.json"


def write(path: Path, *rules: dict[str, object]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(rules))
    os.replace(new, path)


def test_a_file_cuts_a_peer_off_and_heals_while_messages_pass(rules_path: Path) -> None:
    faults = NetworkFaults(str(rules_path), random.Random(1))
    assert not faults.active
    write(rules_path, {"peer": A, "directions": ["INBOUND"], "drop": 1.0})
    assert faults.active
    assert faults.judge(A, Direction.INBOUND) == ()
    assert faults.judge(A, Direction.OUTBOUND) == (0,)
    assert faults.judge(B, Direction.INBOUND) == (0,)
    write(rules_path)
    assert not faults.active
    write(rules_path, {"drop": 1.0})
    assert faults.active
    assert faults.judge(B, Direction.OUTBOUND) == ()
    rules_path.unlink()
    assert not faults.active


def test_a_rule_of_a_file_delays_and_repeats(rules_path: Path) -> None:
    write(rules_path, {"duplicate": 1.0, "delay_ms_min": 5, "delay_ms_max": 5})
    faults = NetworkFaults(str(rules_path), random.Random(1))
    assert faults.active
    assert faults.judge(A, Direction.INBOUND) == (5, 5)


@pytest.mark.parametrize(
    "rule",
    [{"drop": 1.5}, {"delay_ms_min": 9, "delay_ms_max": 3}, {"directions": ["SIDEWAYS"]}, {"dorp": 1.0}, {"peer": 7}],
)
def test_a_rule_that_is_none_is_told_with_the_file(rules_path: Path, rule: dict[str, object]) -> None:
    write(rules_path, rule)
    with pytest.raises(ConfigError, match="rule") as told:
        assert NetworkFaults(str(rules_path), random.Random(1)).active
    assert told.value.where == str(rules_path)
