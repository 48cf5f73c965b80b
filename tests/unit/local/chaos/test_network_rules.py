"""The fault seam's verdicts."""

from __future__ import annotations

import random

from stelae.local.chaos.network_rules import FaultRule, Faults
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
