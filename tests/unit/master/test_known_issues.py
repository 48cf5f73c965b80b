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
from tests.unit.master.company import (
    ME,
    OTHER,
    SERVERS,
    WALL_US,
    Company,
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
    company = Company()
    company.follow(1)
    for server in SERVERS:
        company.heartbeat(server)
    company.pass_ms(company.settings.server_silent_ms - 1)
    company.lead(2)
    assert refusals(company.ask(create(replication_factor=5))) == []
    assert [reply.body for reply in only(company.commit(), Reply)] != []
    members = [t.config.members for t in company.core.catalog.tablets.values() if t.config is not None]
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


def lead_again() -> tuple[Company, list[TabletId]]:
    """A master leads, is deposed, and leads again; what servers report from now on is only what changes."""
    company = Company()
    company.lead(1)
    company.hear()
    tablets = company.create_running()
    company.follow(2)
    company.lead(3)
    return company, tablets


def locations_right_after_an_election() -> None:
    """The new leader has no report yet: locations, alterations and deletions rest on its records."""
    company, tablets = lead_again()
    (shown,) = [e.body for e in only(company.read(GetTable(table="readings")), Reply)]
    assert isinstance(shown, TableDescription)
    assert [len(place.members) for place in shown.tablets] == [3, 3]
    company.ask(AlterTable(table="readings", steps=(AddColumn(name="w", type="int64"),)), sequence=2)
    asked = {(a.node_id, a.tablet_id) for a in sent(company.commit(), AlterSchema)}
    assert asked == {(server, tablet) for server in SERVERS[:3] for tablet in tablets}
    company.ask(DeleteTable(table="readings"), sequence=3)
    deleted = {(a.node_id, a.tablet_id) for a in sent(company.commit(), DeleteReplica)}
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


def exchange(company: Company, reporter: Reporter, to: NodeId = ME) -> None:
    """One heartbeat of a server to this master, and the answer to it, through their wire form."""
    for master, made in reporter.heartbeats(ServerFacts(address="host-1:7051")):
        if master == to:
            heartbeat = decode(encode(made), Heartbeat)
            company._sequences[heartbeat.node_id] = heartbeat.sequence - 1
            answer = company.heartbeat(heartbeat.node_id, heartbeat.report)
            reporter.replied(master, decode(encode(answer), HeartbeatReply))


def deletion_that_a_dead_leader_never_sent() -> None:
    """A leader answers the heartbeat that makes it delete a replica, and dies before it sends anything.

    The report has been acknowledged; only that a new leader wants everything again brings it up."""
    company = Company()
    company.lead(1)
    company.hear()
    (tablet, _) = company.create_running()
    config = company.core.catalog.tablets[tablet].config
    reporter = Reporter(SERVERS[0], IncarnationId(f"{1:016x}"), [ME, OTHER])
    reporter.replica_changed(status(tablet, config))
    for _ in range(4):
        exchange(company, reporter)  # Acknowledged by this leader, by and by.
    company.ask(DeleteTable(table="readings"), sequence=2)
    company.commit()  # What it sends is lost with it: it dies now, and nobody was reached.
    company.follow(2)
    company.lead(3)
    company.pass_ms(10 * company.settings.action_retry_ms)
    company.effects.clear()
    for _ in range(3):
        exchange(company, reporter)
        company.pass_ms(500)
    assert (SERVERS[0], tablet) in {(a.node_id, a.tablet_id) for a in sent(company.effects, DeleteReplica)}


def test_kudu_1374_what_a_dead_leader_left_undone_is_done_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def edge_triggered(self: Servers) -> None:
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
    company = Company()
    company.lead(1)
    company.hear()
    before = company.core.catalog
    company.ask(create())
    assert refusals(company.decide(BatchOutcome.CERTAINLY_NOT)) == ["NOT_REPLICATED"]
    assert company.core.catalog is before
    assert company.core.status().operations == 0
    company.ask(create())
    assert refusals(company.decide(BatchOutcome.UNKNOWN)) == ["OUTCOME_UNKNOWN"]
    assert company.core.catalog is before
    assert company.core.status().operations == 1
    company.follow(2)
    assert company.core.status().operations == 0
    company.lead(3)
    company.ask(create())
    (reply,) = [e.body for e in only(company.commit(), Reply)]
    assert isinstance(reply, ChangeReply)
    assert [t.state for t in company.core.catalog.tables.values()] == [TableState.RUNNING]


def test_kudu_495_a_master_lives_on_when_replication_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = Operations.decided

    def failing_is_fatal(self: Operations, token: int, outcome: BatchOutcome, op_id: Any, applied: Any) -> Any:
        assert outcome is BatchOutcome.COMMITTED, "replication failed: local consensus meant a failed disk"
        return decided(self, token, outcome, op_id, applied)

    taken_out(replication_that_fails, monkeypatch, (Operations, "decided", failing_is_fatal))


def test_a_late_outcome_of_an_earlier_leadership_means_nothing() -> None:
    company = Company()
    company.lead(1)
    company.hear()
    company.ask(create())
    (proposed,) = company.proposed
    company.follow(2)
    company.lead(3)
    assert only(company.step(Decided(proposed.token, BatchOutcome.CERTAINLY_NOT)), Refuse) == []


def test_times_in_records_are_wall_times() -> None:
    company = Company()
    company.lead(1)
    company.hear()
    company.create_running()
    assert all(t.since_us >= WALL_US for t in company.core.catalog.tablets.values())
    assert {t.state for t in company.core.catalog.tablets.values()} == {TabletState.RUNNING}


def test_a_full_report_of_an_empty_server_is_complete() -> None:
    company = Company()
    company.lead(1)
    assert company.heartbeat(SERVERS[0]).wants_full
    assert not company.heartbeat(SERVERS[0], full()).wants_full
    assert company.heartbeat(SERVERS[0], changes(since=1, upto=3)).acknowledged == 3
