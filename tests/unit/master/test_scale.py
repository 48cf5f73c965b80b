"""Many tables and tablets: what one change costs must not grow with what there is already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stelae.protocol.actions import CreateReplica, DeleteReplica
from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.master_messages import DeleteTable, GetTable, ListTables, TableList
from stelae.server.master.core import policy_views, read_answers, reconcile
from stelae.server.master.core.events import Reply
from stelae.server.master.settings import MasterSettings
from tests.unit.master.master_with_servers import SERVERS, MasterWithServers, changes, create, only, sent, status

HUGE = MasterSettings(create_replicas_per_server_max=65_536, actions_per_step_max=65_536)


class Work:
    """Counts calls of the functions that look at one tablet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        for module, name in ((reconcile, "_live_tablet"), (policy_views, "_tablet_view"), (read_answers, "_place")):
            monkeypatch.setattr(module, name, self._counting(name, getattr(module, name)))

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.calls[name] += 1
            return function(*args)

        return counted

    def of(self, work: Callable[[], object]) -> Counter[str]:
        self.calls.clear()
        work()
        return Counter(self.calls)


class Reports:
    """What three servers that carry everything out at once tell of it."""

    def __init__(self, cluster: MasterWithServers) -> None:
        self.cluster = cluster
        self.upto = 1
        cluster.lead(1)
        cluster.hear(SERVERS[:3])

    def come(self) -> None:
        """Each server reports what it was asked to create since; the first member of each tablet leads it."""
        cluster = self.cluster
        created = {a.tablet_id: a for a in sent(cluster.effects, CreateReplica) if isinstance(a, CreateReplica)}
        cluster.effects.clear()
        for server in SERVERS[:3]:
            mine = [
                status(a.tablet_id, a.config, leads=a.config.members[0].node_id == server) for a in created.values()
            ]
            cluster.heartbeat(server, changes(*mine, since=self.upto, upto=self.upto + 1))
        self.upto += 1
        cluster.commit()


def made(cluster: MasterWithServers, reports: Reports, name: str, number: int, buckets: int = 1) -> None:
    cluster.ask(create(name, buckets), number)
    cluster.commit()
    reports.come()


def test_a_thousand_tables_are_created_listed_and_dropped() -> None:
    """Fifty people at once, one after the other."""
    cluster = MasterWithServers()
    reports = Reports(cluster)
    for first in range(1, 1001, 50):
        for number in range(first, first + 50):
            cluster.ask(create(f"t{number}", buckets=1), number)
        cluster.commit()
        reports.come()
    catalog = cluster.core.catalog
    assert {t.state for t in catalog.tablets.values()} == {TabletState.RUNNING} and len(catalog.tablets) == 1000
    (listed,) = only(cluster.read(ListTables()), Reply)
    assert isinstance(listed.body, TableList) and len(listed.body.tables) == 1000
    cluster.effects.clear()
    for first in range(1, 1001, 50):
        for number in range(first, first + 50):
            cluster.ask(DeleteTable(table=f"t{number}"), 1000 + number)
        cluster.commit()
    assert {t.state for t in cluster.core.catalog.tables.values()} == {TableState.REMOVED}
    assert len({(a.node_id, a.tablet_id) for a in sent(cluster.effects, DeleteReplica)}) == 3000


def test_what_a_new_table_costs_does_not_grow_with_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    cluster = MasterWithServers()
    reports = Reports(cluster)
    costs = [work.of(partial(made, cluster, reports, f"t{number}", number)) for number in range(1, 201)]
    assert costs[-1] == costs[10] and sum(costs[-1].values()) < 20


def test_a_report_of_one_tablet_has_one_tablet_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MasterWithServers(HUGE)
    reports = Reports(cluster)
    made(cluster, reports, "wide", 1, buckets=1000)
    tablet = next(iter(cluster.core.catalog.tablets.values()))
    work = Work(monkeypatch)
    told = changes(status(tablet.tablet_id, tablet.config, size_bytes=1), since=reports.upto, upto=reports.upto + 1)
    assert work.of(lambda: cluster.heartbeat(SERVERS[2], told)) == {"_live_tablet": 1}


def test_a_new_leader_of_many_tablets_looks_at_a_bounded_number_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop goes on with heartbeats meanwhile; what the policy is shown is complete before it is asked."""
    cluster = MasterWithServers(HUGE, planner=lambda snapshot, rng: ())
    cluster.lead(1)
    cluster.hear()
    cluster.policy_answers = False
    for number in range(1, 3):
        cluster.ask(create(f"wide-{number}", buckets=1000, ranges=7), number)
        cluster.commit()
    work = Work(monkeypatch)
    cluster.follow(2)
    cluster.lead(3)
    steps = [work.of(cluster.step)]
    while cluster.core.is_behind:
        steps.append(work.of(cluster.step))
    assert max(max(step.values(), default=0) for step in steps) <= HUGE.scan_tablets_max
    assert sum(step["_tablet_view"] for step in steps) <= 14_000 and len(steps) >= 7


def test_a_description_of_a_wide_table_is_one_pass_over_its_tablets(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MasterWithServers(HUGE)
    reports = Reports(cluster)
    made(cluster, reports, "wide", 1, buckets=500)
    work = Work(monkeypatch)
    assert work.of(lambda: cluster.read(GetTable(table="wide"))) == {"_place": 500}
