"""Changes that wait for a lock: when they are planned, and what a client that asks again gets."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.protocol.master_messages import Change, DeleteTable
from stelae.server.master.core import change_requests
from stelae.server.master.core.events import Refuse, Reply
from tests.unit.master.master_with_servers import SETTINGS, MasterWithServers, create, leading, only, refusals

DROP = DeleteTable(table="readings")


class Plans:
    """Counts the plans for changes of one kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[Change] = []
        plan = change_requests.plan_change

        def counted(catalog: Any, change: Change, context: Any) -> Any:
            self.changes.append(change)
            return plan(catalog, change, context)

        monkeypatch.setattr(change_requests, "plan_change", counted)


@pytest.fixture
def cluster() -> MasterWithServers:
    """A leader that is dropping a table for ann; another one has to wait."""
    made = leading()
    made.create_running(create(buckets=8))
    made.effects.clear()
    made.ask(DROP, 2)
    return made


def test_a_change_that_waits_is_planned_again_only_once_its_locks_are_free(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each heartbeat, a drop of ten thousand tablets was planned and encoded anew."""
    plans = Plans(monkeypatch)
    assert cluster.ask(DROP, 1, "bob") == []
    for _ in range(5):
        cluster.pass_ms(SETTINGS.scan_interval_ms)
    assert plans.changes == [DROP] and cluster.core.status().waiting == 1
    assert refusals(cluster.commit()) == ["NO_TABLE"]
    assert plans.changes == [DROP, DROP]


def test_a_client_that_asks_again_waits_once_and_its_newest_request_is_answered(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Plans(monkeypatch)
    cluster.ask(DROP, 1, "bob")
    first = cluster._token
    (left,) = only(cluster.ask(DROP, 1, "bob"), Refuse)
    assert (left.token, left.code, left.retryable) == (first, "TABLE_BUSY", True)
    assert cluster.core.status().waiting == 1 and len(plans.changes) == 1
    newest = cluster._token
    assert [(refuse.token, refuse.code) for refuse in only(cluster.commit(), Refuse)] == [(newest, "NO_TABLE")]


def test_another_change_under_the_same_identity_takes_no_place_of_the_first(cluster: MasterWithServers) -> None:
    cluster.ask(DROP, 1, "bob")
    assert cluster.ask(DeleteTable(table="readings", keep_ms=1000), 1, "bob") == []
    assert cluster.core.status().waiting == 2
    assert sorted(refusals(cluster.commit())) == ["NO_TABLE", "PAYLOAD_MISMATCH"]


def test_a_client_that_asks_again_while_its_change_is_in_flight_gets_its_answer(cluster: MasterWithServers) -> None:
    cluster.ask(DROP, 2)
    assert cluster.core.status().waiting == 1
    told = only(cluster.commit(), Reply)
    assert cluster._token in {reply.token for reply in told} and cluster.core.status().waiting == 0
