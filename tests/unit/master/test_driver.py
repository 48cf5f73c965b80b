"""The driver steps its core on events and deadlines, and passes on what happens in the moment when it does."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace

import pytest

from stelae.host.hybrid_clock import ClockSettings
from stelae.protocol.master_messages import CHANGE, READ, CatalogReadRequest, ChangeRequest, DeleteTable, ListTables
from stelae.protocol.masters_messages import CHANGE_MASTERS, ChangeMastersRequest, MastersView
from stelae.protocol.read_index_messages import READ_INDEX
from stelae.server.master.core.events import AskPolicy, CaughtUp, EntryApplied, MasterLeaderChanged, MasterTick, Planned
from stelae.server.master.core.freshness import FOLLOWING_US
from stelae.server.master.core.proposals import PolicyProposal
from stelae.server.master.driver.masters_watch import LOOK_US
from stelae.server.master.driver.server_links import SILENT_US
from stelae.spi.errors import NotLeader
from stelae.spi.ids import ClientId, OpId
from stelae.spi.members import Member, RemoveServer, TabletConfig
from stelae.spi.policy import PolicySnapshot
from tests.unit.master.driver_on_fakes import DriverOnFakes
from tests.unit.master.master_with_servers import ME, OTHER, SERVERS, WALL_US

SERVER = SERVERS[0]
HOUR_US = 3_600_000_000


def test_a_master_without_a_leader_takes_no_step_in_an_hour() -> None:
    driver = DriverOnFakes()
    assert driver.master.core is not None
    assert driver.pass_us(HOUR_US) == []


def test_a_follower_steps_at_its_deadlines_alone() -> None:
    driver = DriverOnFakes()
    driver.elect(1, OTHER)
    steps = driver.pass_us(10 * FOLLOWING_US)
    assert [len(events) for events in steps] == [1] * 10, "each step has the time alone, at a deadline"
    assert driver.calls == [(OTHER, READ_INDEX)] * 11


def test_a_change_of_the_leader_reaches_the_core_in_the_moment_when_the_replica_sees_it() -> None:
    driver = DriverOnFakes()
    now_us = driver.turns.time_us
    [events] = driver.elect(3, OTHER)
    assert events[1:] == [MasterLeaderChanged(3, OTHER)]
    assert isinstance(events[0], MasterTick) and events[0].now_us == now_us
    [events] = driver.elect(4, ME)
    assert events[1:] == [MasterLeaderChanged(4, ME)]


def test_a_status_that_changes_neither_term_nor_leader_brings_no_step() -> None:
    driver = DriverOnFakes()
    driver.elect(3, OTHER)
    assert driver.elect(3, OTHER) == []


def test_a_master_whose_replica_fails_while_it_leads_leads_no_more() -> None:
    """It went on to answer servers, and to send actions by a catalog that was not the newest one any more."""
    driver = DriverOnFakes()
    driver.elect(3, ME)
    driver.replica.failure = "the log cannot be trusted"
    events = [event for step in driver.pass_us(LOOK_US) for event in step]
    assert MasterLeaderChanged(3, None) in events


def test_an_applied_entry_reaches_the_core_in_the_moment_when_it_is_applied() -> None:
    driver = DriverOnFakes()
    [events] = driver.apply(OpId(1, 1))
    assert events[1] == EntryApplied(OpId(1, 1), None)


def test_the_age_of_a_catalog_is_known_from_the_first_entry_on_that_is_applied() -> None:
    """It was known only half a second later, once the leader had answered. Two of three masters were lost until then,
    and the third one showed no table, whatever age was allowed."""
    clock = ClockSettings(clock_error_ms_max=400, ceiling_step_ms=100)
    driver = DriverOnFakes(clock=clock)
    assert driver.master.core is not None and driver.master.core.status().age_us is None
    stamped_us = WALL_US + driver.turns.time_us - 70
    driver.apply(OpId(1, 1), stamped_us)
    assert driver.master.core.status().age_us == 70 + 500_000


def test_a_stopped_master_takes_no_step() -> None:
    driver = DriverOnFakes()
    driver.elect(1, OTHER)
    driver.master.stop()
    assert driver.pass_us(HOUR_US) == []


def test_a_catalog_counts_as_older_than_its_last_entry_by_what_a_clock_may_be_ahead() -> None:
    """A hybrid clock stands still while it is ahead of the wall clock, so entries that are missing here may carry the
    same physical time. A master that had just started once took its catalog for seconds fresher than it was."""
    clock = ClockSettings(clock_error_ms_max=400, ceiling_step_ms=100)
    stamped_us = WALL_US + 900_000
    driver = DriverOnFakes(OpId(2, 7), stamped_us, clock)
    [first] = driver.steps
    assert CaughtUp(stamped_us - 500_000) in first
    assert driver.master.core is not None
    assert driver.master.core.status().age_us == driver.turns.time_us - 900_000 + 500_000


def test_links_to_a_server_are_closed_once_it_was_silent_for_long_and_open_again_when_it_is_heard() -> None:
    """Each server that was replaced left links to every master, which tried to connect for ever."""
    driver = DriverOnFakes()
    driver.elect(1, OTHER)
    driver.hear(SERVER)  # Its answer has the newer config, so it is not refused.
    driver.pass_us(SILENT_US)
    assert driver.added == [SERVER] and driver.removed == []
    driver.hear(SERVER)  # Its answer has the newer config, so it is not refused.
    driver.pass_us(SILENT_US)
    assert driver.removed == []
    driver.pass_us(2 * LOOK_US)
    assert driver.removed == [SERVER]
    driver.hear(SERVER)  # Its answer has the newer config, so it is not refused.
    assert driver.added == [SERVER] * 3


def test_a_policy_that_raises_is_logged_with_the_kind_and_the_place_of_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log had no more than ``the policy failed: 'x'``, from which its author can find nothing."""
    driver = DriverOnFakes()
    driver.elect(3, ME)

    def plan(snapshot: PolicySnapshot, config: object, rng: random.Random) -> tuple[()]:
        raise KeyError("x")

    driver.node.config.policy = SimpleNamespace(engine=SimpleNamespace(plan=plan), config=None)
    with caplog.at_level(logging.ERROR):
        driver.master._ask_policy(AskPolicy(7, PolicySnapshot(now_us=1, nodes={}, tablets={}), seed=1))
        steps = driver.pass_us(0)
    assert "the policy failed: KeyError('x'); nothing is planned" in caplog.text
    assert "in plan" in caplog.text
    assert Planned(7, PolicyProposal()) in [event for step in steps for event in step]


def test_a_removed_master_refuses_reads_however_old_and_changes() -> None:
    """It answered reads that may be old, as long as the catalog of its time was young enough."""
    driver = DriverOnFakes(OpId(1, 5), stamped_us=WALL_US)
    read = CatalogReadRequest(question=ListTables(), staleness_ms=600_000)
    assert driver.ask(READ, read) is None, "it is answered in the next step"
    others = (Member(node_id=OTHER, address="b:1"),)
    driver.master._watch._heard = MastersView(
        node_id=OTHER, config=TabletConfig(op_id=OpId(3, 9), members=others), leader=OTHER, cluster_created_us=0
    )
    change = ChangeRequest(client_id=ClientId("c"), sequence=1, first_incomplete=1, change=DeleteTable(table="t"))
    removal = RemoveServer(node_id=OTHER)
    for kind, body in ((READ, read), (CHANGE, change), (CHANGE_MASTERS, ChangeMastersRequest(removal))):
        refused = driver.ask(kind, body)
        assert isinstance(refused, NotLeader) and refused.leader == OTHER
        assert "this master was removed: config 3.9 has the masters b:1" in str(refused)
    driver.hear(SERVER)  # Its answer has the newer config, so it is not refused.
