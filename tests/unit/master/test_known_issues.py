"""The four known issues of the multi-master document: what happened, and that each comes back without its cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.protocol.actions import AlterSchema, DeleteReplica
from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply
from stelae.protocol.master_messages import AddColumn, AlterTable, ChangeReply, DeleteTable, GetTable, TableDescription
from stelae.server.master.core.events import Decided, Refuse, Reply
from stelae.server.master.core.operations import BatchOutcome, Operations
from stelae.server.master.core.servers import Servers
from stelae.server.tserver.reporting import Reporter, ServerFacts
from stelae.spi.ids import IncarnationId, NodeId, TabletId
from tests.unit.master.master_with_servers import (
    ME,
    OTHER,
    SERVERS,
    WALL_US,
    MasterWithServers,
    changes,
    create,
    full,
    only,
    refusals,
    sent,
    status,
)

Part = tuple[Any, str, Any]
"""Of a cure: where it is, its name, and what stood there without it."""


def taken_out(scenario: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *cure: Part) -> None:
    """The scenario holds with its cure, and fails without it."""
    scenario()
    with monkeypatch.context() as patch:
        for target, name, instead in cure:
            patch.setattr(target, name, instead)
        with pytest.raises(AssertionError):
            scenario()


# -- KUDU-1358 ---------------------------------------------------------------------------------------


def create_right_after_an_election() -> None:
    """A follower has heard five servers; it becomes leader and is asked for a table before the next heartbeat."""
    cluster = MasterWithServers()
    cluster.follow(1)
    for server in SERVERS:
        cluster.heartbeat(server)
    cluster.pass_ms(cluster.settings.server_silent_ms - 1)
    cluster.lead(2)
    assert refusals(cluster.ask(create(replication_factor=5))) == []
    assert [reply.body for reply in only(cluster.commit(), Reply)] != []
    members = [t.config.members for t in cluster.core.catalog.tablets.values() if t.config is not None]
    assert [len(found) for found in members] == [5, 5]


def test_kudu_1358_a_table_can_be_created_right_after_a_master_election(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Servers.heard

    def cold_on_followers(self: Servers, heartbeat: Heartbeat, now_us: int) -> bool:
        taken = heard(self, heartbeat, now_us)
        if heartbeat.report is None:
            self._servers[heartbeat.node_id].heard_us = -(1 << 60)  # Followers ignore heartbeats, as they once did.
        return taken

    taken_out(create_right_after_an_election, monkeypatch, (Servers, "heard", cold_on_followers))


# -- KUDU-1353 ---------------------------------------------------------------------------------------


def lead_again() -> tuple[MasterWithServers, list[TabletId]]:
    """A master leads, is deposed, and leads again; what servers report from now on is only what changes."""
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    tablets = cluster.create_running()
    cluster.follow(2)
    cluster.lead(3)
    return cluster, tablets


def locations_right_after_an_election() -> None:
    """The new leader has no report yet: locations, alterations and deletions rest on its records."""
    cluster, tablets = lead_again()
    (shown,) = [e.body for e in only(cluster.read(GetTable(table="readings")), Reply)]
    assert isinstance(shown, TableDescription)
    assert [len(place.members) for place in shown.tablets] == [3, 3]
    cluster.ask(AlterTable(table="readings", steps=(AddColumn(name="w", type="int64"),)), sequence=2)
    asked = {(a.node_id, a.tablet_id) for a in sent(cluster.commit(), AlterSchema)}
    assert asked == {(server, tablet) for server in SERVERS[:3] for tablet in tablets}
    cluster.ask(DeleteTable(table="readings"), sequence=3)
    deleted = {(a.node_id, a.tablet_id) for a in sent(cluster.commit(), DeleteReplica)}
    assert deleted == {(server, tablet) for server in SERVERS[:3] for tablet in tablets}


def test_kudu_1353_an_altered_table_does_not_get_stuck_after_a_master_election(monkeypatch: pytest.MonkeyPatch) -> None:
    from stelae.server.master.core import read_answers, reconcile

    def from_reports_alone(view: Any, tablet: Any, addresses: Any) -> Any:
        place = placed(view, tablet, addresses)
        holders = {node_id for node_id, _ in view.servers.holding(tablet.tablet_id)}
        members = tuple(member for member in place.members if member[0] in holders)
        return type(place)(tablet_id=place.tablet_id, state=place.state, partition=place.partition, members=members)

    placed = read_answers._place
    taken_out(locations_right_after_an_election, monkeypatch, (read_answers, "_place", from_reports_alone))

    def to_reported_leaders(view: Any, table: Any, tablet: Any, config: Any, plan: Any) -> None:
        if view.leader_of(tablet.tablet_id) is not None:
            altered(view, table, tablet, config, plan)

    altered = reconcile._alter
    taken_out(locations_right_after_an_election, monkeypatch, (reconcile, "_alter", to_reported_leaders))
    nothing = lambda view, tablet, plan: None  # noqa: E731
    taken_out(locations_right_after_an_election, monkeypatch, (reconcile, "_delete_unreported", nothing))


# -- KUDU-1374 ---------------------------------------------------------------------------------------


def exchange(cluster: MasterWithServers, reporter: Reporter, to: NodeId = ME) -> None:
    """One heartbeat of a server to this master, and the answer to it, through their wire form."""
    for master, made in reporter.heartbeats(ServerFacts(address="host-1:7051"), cluster.now_us):
        if master == to:
            heartbeat = decode(encode(made), Heartbeat)
            cluster._sequences[heartbeat.node_id] = heartbeat.sequence - 1
            answer = cluster.heartbeat(heartbeat.node_id, heartbeat.report)
            reporter.replied(master, decode(encode(answer), HeartbeatReply))


def deletion_that_a_dead_leader_never_sent() -> None:
    """A leader answers the heartbeat that makes it delete a replica, and dies before it sends anything.

    The report has been acknowledged; only that a new leader wants everything again brings it up."""
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    (tablet, _) = cluster.create_running()
    config = cluster.core.catalog.tablets[tablet].config
    reporter = Reporter(SERVERS[0], IncarnationId(f"{1:016x}"), [ME, OTHER])
    reporter.replica_changed(status(tablet, config))
    for _ in range(4):
        exchange(cluster, reporter)  # Acknowledged by this leader, by and by.
    cluster.ask(DeleteTable(table="readings"), sequence=2)
    cluster.commit()  # What it sends is lost with it: it dies now, and nobody was reached.
    cluster.follow(2)
    cluster.lead(3)
    cluster.pass_ms(10 * cluster.settings.action_retry_ms)
    cluster.effects.clear()
    for _ in range(3):
        exchange(cluster, reporter)
        cluster.pass_ms(500)
    assert (SERVERS[0], tablet) in {(a.node_id, a.tablet_id) for a in sent(cluster.effects, DeleteReplica)}


def test_kudu_1374_what_a_dead_leader_left_undone_is_done_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def edge_triggered(self: Servers, now_us: int) -> None:
        """A server that was known before is not asked again: all that it reports is what changes from now on."""
        for server in self:
            server.complete = True
            self._forget(server)
            server.complete, server.version = True, 1 << 40

    def full_when_asked(self: Reporter, master: NodeId, reply: HeartbeatReply) -> bool:
        """A new leader is none of the server's business, as it once was."""
        known = self._masters[master]
        known.term = reply.term or known.term
        known.wants_full = reply.wants_full if reply.term else known.wants_full
        known.acknowledged = max(known.acknowledged, reply.acknowledged)
        return False

    servers, reporter = (Servers, "begin_leadership", edge_triggered), (Reporter, "replied", full_when_asked)
    taken_out(deletion_that_a_dead_leader_never_sent, monkeypatch, servers, reporter)


# -- KUDU-495 ----------------------------------------------------------------------------------------


def replication_that_fails() -> None:
    """Whatever becomes of replication, the master lives on, has changed nothing, and the change is made once."""
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    before = cluster.core.catalog
    cluster.ask(create())
    assert refusals(cluster.decide(BatchOutcome.CERTAINLY_NOT)) == ["NOT_REPLICATED"]
    assert cluster.core.catalog is before
    assert cluster.core.status().operations == 0
    cluster.ask(create())
    assert refusals(cluster.decide(BatchOutcome.UNKNOWN)) == ["OUTCOME_UNKNOWN"]
    assert cluster.core.catalog is before
    assert cluster.core.status().operations == 1
    cluster.follow(2)
    assert cluster.core.status().operations == 0
    cluster.lead(3)
    cluster.ask(create())
    (reply,) = [e.body for e in only(cluster.commit(), Reply)]
    assert isinstance(reply, ChangeReply)
    assert [t.state for t in cluster.core.catalog.tables.values()] == [TableState.RUNNING]


def test_kudu_495_a_master_lives_on_when_replication_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = Operations.decided

    def failing_is_fatal(self: Operations, token: int, outcome: BatchOutcome, op_id: Any, applied: Any) -> Any:
        assert outcome is BatchOutcome.COMMITTED, "replication failed: local consensus meant a failed disk"
        return decided(self, token, outcome, op_id, applied)

    taken_out(replication_that_fails, monkeypatch, (Operations, "decided", failing_is_fatal))


def test_a_late_outcome_of_an_earlier_leadership_means_nothing() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create())
    (proposed,) = cluster.proposed
    cluster.follow(2)
    cluster.lead(3)
    assert only(cluster.step(Decided(proposed.token, BatchOutcome.CERTAINLY_NOT)), Refuse) == []


def test_times_in_records_are_wall_times() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.create_running()
    assert all(t.since_us >= WALL_US for t in cluster.core.catalog.tablets.values())
    assert {t.state for t in cluster.core.catalog.tablets.values()} == {TabletState.RUNNING}


def test_a_full_report_of_an_empty_server_is_complete() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    assert cluster.heartbeat(SERVERS[0]).wants_full
    assert not cluster.heartbeat(SERVERS[0], full()).wants_full
    assert cluster.heartbeat(SERVERS[0], changes(since=1, upto=3)).acknowledged == 3
