"""A replica whose log fails while a Ready is carried out: for good, or for want of space."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from stelae.host.entry_cache import EntryCache
from stelae.host.executor import ExecutorPorts, ReadyExecutor
from stelae.host.heartbeats import HeartbeatService
from stelae.host.leadership_transfers import PendingTransfers
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.log_writer import CommitGroup, LogWriter
from stelae.host.member_changes import PendingMemberChanges
from stelae.host.read_index_waits import ReadIndexWaits
from stelae.host.replica import REPAIR_INTERVAL_US, Replica
from stelae.host.replica_state import ReplicaState
from stelae.spi.consensus import Beats, HardState, LogAppend, ReadReady, Ready, Role
from stelae.spi.consensus_events import LeaderAlive, StepDown, Tick
from stelae.spi.errors import Full, Overloaded, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig
from stelae.spi.wal import Failed
from tests.unit.leader_status import leader_status

LOG = LogId(TabletId("t"), 1)
CONFIG = TabletConfig(op_id=ZERO, members=())
LAST = OpId(1, 5)
NODE, PEER = NodeId("a" * 32), NodeId("b" * 32)

STATUS = leader_status(NODE, CONFIG, LAST)


def failed_writer(error: StorageError) -> LogWriter:
    """A writer whose log has failed at ``LAST``."""
    writer = LogWriter(
        lock=nullcontext(),
        wake=lambda: None,
        post=lambda _completions: None,
        queue_bytes_max=1 << 20,
        group_bytes_max=1 << 20,
    )
    writer.open_log(LOG, LAST)
    slot = writer.reserve(LOG, 1)
    entry = Entry(OpId(2, 6), EntryKind.NOOP, 9, b"")
    writer.append_async(slot, (entry,), done=lambda _outcome: None)
    group = writer.take_work()
    assert isinstance(group, CommitGroup)
    writer.complete(group, {LOG: Failed(error, LAST)})
    return writer


def executor_of(replica: Replica, writer: LogWriter, hard_states: MagicMock) -> ReadyExecutor:
    ports = MagicMock()
    ports.time.now.return_value = 9
    return ReadyExecutor(
        log=LOG,
        ports=ExecutorPorts(writer=writer, reader=ports, hard_states=hard_states, network=ports, time=ports.time),
        sink=replica,
        cache=EntryCache(LAST, 1 << 20),
        hard_state=HardState(2, NODE),
        committed_config=CONFIG,
        range_bytes_max=1 << 20,
    )


class World:
    """A leading replica whose log has failed, which the loop has not been told yet."""

    def __init__(self, error: StorageError) -> None:
        self.core = MagicMock()
        self.core.status.return_value = STATUS
        self.core.can_wait.return_value = False
        self.deferred: list[Callable[[], None]] = []
        self.turns = turns = MagicMock()
        turns.now_us.return_value = 0
        turns.defer.side_effect = self.deferred.append
        self.writer = writer = failed_writer(error)
        self.heartbeats = HeartbeatService(MagicMock(), lambda _tablet, _event: None)
        ports = MagicMock(turns=turns, writer=writer, heartbeats=self.heartbeats)
        self.retention = LogRetentionLimit(0, 0, 0)
        self.replica = Replica(log=LOG, core=self.core, vote_kinds=frozenset(), ports=ports)
        applier, writes, flusher = MagicMock(applied=LAST), MagicMock(), MagicMock(retention=self.retention)
        writes.take_proposals.return_value = None
        self.reads = ReadIndexWaits(count(1), lambda: 1)
        self.hard_states = MagicMock()
        self.replica.connect(
            executor_of(self.replica, writer, self.hard_states),
            applier,
            writes,
            self.reads,
            PendingTransfers(count(1)),
            PendingMemberChanges(count(1)),
            flusher,
        )

    def turn(self, **effects: Any) -> None:
        """One turn whose Ready appends, and has some more effects."""
        entry = Entry(OpId(2, 7), EntryKind.NOOP, 0, b"")
        ready = Ready(id=1, append=LogAppend(entries=(entry,)), **effects)
        self.core.take_ready.side_effect = [ready, *[None] * 9]
        self.replica.start()
        self.drain()

    def drain(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()


@pytest.fixture
def world() -> World:
    return World(SyncFailed("fsync failed"))


def test_its_node_does_not_keep_it_alive(world: World) -> None:
    world.turn(beats=Beats(2, (PEER,)))
    assert world.replica.state is ReplicaState.FAILED
    assert world.heartbeats.beats_due() == []


def test_a_read_that_was_answered_with_the_failure_is_not_answered_again(world: World) -> None:
    answers: list[object] = []
    event = world.reads.request(answers.append)
    world.turn(reads_ready=(ReadReady(event.token, 5),))
    assert world.replica.state is ReplicaState.FAILED
    assert len(answers) == 1 and "failed" in str(answers[0])


def saving(error: StorageError, **effects: Any) -> tuple[World, list[Callable[[], None]]]:
    """A replica one of whose saves of its consensus metadata has failed, and its timers."""
    world, timers = World(SyncFailed("fsync failed")), list[Callable[[], None]]()
    world.turns.call_at.side_effect = lambda _when_us, call: timers.append(call) or MagicMock()
    world.replica.start()
    executor = world.replica.executor
    executor.execute(Ready(id=1, **effects))
    _tablet, _hard_state, _config, done = world.hard_states.save.call_args.args
    timers.clear()
    done(error)
    return world, timers


SAVES: dict[str, dict[str, Any]] = {
    "term and vote": {"hard_state": HardState(3, PEER)},
    "config": {"committed_config": TabletConfig(op_id=OpId(1, 4), members=())},
}


@pytest.mark.parametrize("effects", SAVES.values(), ids=SAVES)
@pytest.mark.parametrize("error", [SyncFailed("fsync failed"), StorageError("input/output error", path="a")])
def test_metadata_that_cannot_be_saved_fails_the_replica_and_is_not_saved_again(
    error: StorageError, effects: dict[str, Any]
) -> None:
    """After a failed sync, nothing of the file can be trusted (rule 7)."""
    world, timers = saving(error, **effects)
    assert world.replica.state is ReplicaState.FAILED
    assert world.replica.failure == f"consensus metadata cannot be saved: {error}"
    assert not timers and world.hard_states.save.call_count == 1


@pytest.mark.parametrize("effects", SAVES.values(), ids=SAVES)
def test_metadata_without_space_is_saved_again_and_the_replica_runs_on(effects: dict[str, Any]) -> None:
    world, timers = saving(Full("no space", path="a"), **effects)
    assert not world.replica.failure and world.hard_states.save.call_count == 1
    (again,) = timers
    again()
    first, second = (call.args[:3] for call in world.hard_states.save.call_args_list)
    assert first == second


def test_a_config_of_a_failed_append_keeps_the_log_no_longer() -> None:
    """It kept the log before it for as long as no later config came."""
    world = World(Full("no space"))
    world.retention.flushed(LAST.index)
    world.retention.all_replicated(LAST.index)
    entry = Entry(OpId(2, LAST.index), EntryKind.CONFIG, 9, b"")
    world.replica.entries_changed((entry,), None)
    assert world.retention.collectable() == LAST.index - 1
    world.replica.entries_cut(LAST.index)
    assert world.retention.collectable() == LAST.index


def ticks(world: World) -> list[int]:
    """What the core has been told of the time."""
    told = [event for call in world.core.step.call_args_list for event in call.args[0]]
    return [event.now_us for event in told if isinstance(event, Tick)]


def test_while_its_disk_is_full_time_stops_before_the_deadline_so_it_never_campaigns() -> None:
    world = World(Full("no space"))
    world.core.next_deadline.return_value = 500
    world.turns.now_us.return_value = 10
    world.turn()
    world.turns.now_us.return_value = 10_000
    world.replica.deliver(StepDown())
    world.drain()
    repair_only = [call.args[0] for call in world.turns.call_at.call_args_list]
    assert world.replica.suspended and repair_only == [10 + REPAIR_INTERVAL_US]
    assert ticks(world) == [10, 10, 499]


def test_with_space_back_it_hears_its_leader_before_the_time() -> None:
    world = World(Full("no space"))
    world.core.next_deadline.return_value = 500
    world.turn()
    repair = world.turns.call_at.call_args.args[1]
    repair()
    job = world.writer.take_work()
    assert job is not None
    for done, argument in world.writer.perform(job, MagicMock(repair=lambda _log: LAST)):
        done(argument)
    world.turns.now_us.return_value = 10_000
    world.heartbeats.leader_alive = MagicMock(return_value=LeaderAlive(PEER, 2, 9_000))
    world.core.status.return_value = world.replica.status = msgspec.structs.replace(STATUS, role=Role.FOLLOWER)
    world.drain()
    assert not world.replica.suspended
    assert world.core.step.call_args.args[0] == [LeaderAlive(PEER, 2, 9_000), Tick(10_000)]


def with_full_store(*, waits_for_log: bool) -> tuple[Replica, MagicMock]:
    """A leader whose store is full, and its ports. ``waits_for_log``: its log lacks entries that it has applied."""
    core = MagicMock()
    core.status.return_value = STATUS
    core.can_wait.return_value = False
    ports = MagicMock()
    ports.writer.has_room.return_value = True
    replica = Replica(log=LOG, core=core, vote_kinds=frozenset(), ports=ports)
    executor, flusher = MagicMock(stalled=False), MagicMock(full=True, waits_for_log=waits_for_log)
    replica.connect(executor, MagicMock(applied=LAST), MagicMock(), MagicMock(), MagicMock(), MagicMock(), flusher)
    return replica, ports


def test_a_replica_whose_store_is_full_pushes_writers_and_appends_back_and_serves_reads() -> None:
    replica, ports = with_full_store(waits_for_log=False)
    answers: list[Any] = []
    replica.write(MagicMock(), answers.append)
    assert isinstance(answers[0], Overloaded) and "memory is full" in str(answers[0])
    replica.receive(PEER, MagicMock(entries=(Entry(LAST, EntryKind.NOOP, 0, b""),)))
    ports.turns.defer.assert_not_called()
    replica.read_index(answers.append)
    assert len(answers) == 1, "a read waits for its majority"
    replica.drained()
    replica.flusher.consider.assert_called_once()  # type: ignore[attr-defined]


def test_a_full_store_that_waits_for_entries_of_its_log_takes_them_but_no_writes() -> None:
    # An append failed after its entries were applied. The store cannot flush them until the log has them durably, so
    # a replica that refused them because its store is full would never accept anything again.
    replica, ports = with_full_store(waits_for_log=True)
    answers: list[Any] = []
    replica.write(MagicMock(), answers.append)
    assert isinstance(answers[0], Overloaded)
    append = MagicMock(entries=(Entry(LAST, EntryKind.NOOP, 0, b""),))
    replica.receive(PEER, append)
    ports.turns.defer.assert_called_once()
    ports.writer.has_room.return_value = False
    replica.receive(PEER, append)
    ports.metrics.count.assert_called_once_with("consensus_messages_refused")
