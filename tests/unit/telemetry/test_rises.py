"""Elections are counted where replicas are observed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.machine.metrics import NodeMetrics
from stelae.spi.consensus import Role
from stelae.spi.ids import TabletId
from stelae.telemetry.leadership_counts import CountingObserver

TABLET = TabletId("t")


def status(role: Role, term: int, leader: str | None = None, voted_for: str | None = None) -> Any:
    return SimpleNamespace(role=role, term=term, leader=leader, voted_for=voted_for, node_id="me")


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        (status(Role.FOLLOWER, 1, "you"), status(Role.CANDIDATE, 2, None, "me"), {"elections_started"}),
        (status(Role.CANDIDATE, 2), status(Role.LEADER, 2, "me", "me"), {"elections_won", "leader_changes"}),
        (
            status(Role.FOLLOWER, 1, "you"),
            status(Role.LEADER, 2, "me", "me"),
            {"elections_started", "elections_won", "leader_changes"},
        ),
        (status(Role.LEADER, 2, "me", "me"), status(Role.FOLLOWER, 3, None, None), {"leaderships_lost"}),
        (status(Role.FOLLOWER, 2, "you"), status(Role.FOLLOWER, 3, "you"), {"leader_changes"}),
        (status(Role.FOLLOWER, 2, "you"), status(Role.FOLLOWER, 3, None, "other"), set()),
        (status(Role.LEADER, 2, "me", "me"), status(Role.LEADER, 2, "me", "me"), set()),
    ],
)
def test_each_way_to_rise_and_fall(before: Any, after: Any, counted: set[str]) -> None:
    metrics, inner = NodeMetrics(), MagicMock()
    CountingObserver(metrics, inner).status_changed(TABLET, before, after)
    assert metrics.counts() == dict.fromkeys(counted, 1)
    inner.status_changed.assert_called_once_with(TABLET, before, after)


def test_a_failed_replica_is_counted_and_told_on() -> None:
    metrics, inner = NodeMetrics(), MagicMock()
    CountingObserver(metrics, inner).replica_failed(TABLET, "RUNNING", "x")
    assert metrics.counts() == {"replicas_failed": 1}
    inner.replica_failed.assert_called_once_with(TABLET, "RUNNING", "x")
