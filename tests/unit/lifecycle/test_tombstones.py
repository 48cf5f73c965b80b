"""Tombstones vote: term and vote are durable before the answer, and a few of them are in memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host import tombstone_voter as voter_module
from stelae.host.consensus_metadata import ConsensusMetadata, HardStateWriter
from stelae.host.entry_cache import EntryCache
from stelae.host.executor import ExecutorPorts, ReadyExecutor
from stelae.host.peer_codec import PeerMessage, PeerMessageHeader
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import REPAIR_INTERVAL_US
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.lifecycle import tombstones as module
from stelae.lifecycle.blocking_steps import StepRunner
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState, Outbound, Ready
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.ids import ZERO, ClusterId, LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.engine import RaftEngine
from stelae_consensus_raft.messages import VoteRefusal, VoteReply, VoteRequest
from tests.unit.lifecycle.disk_node import LAYOUT, NODE

CANDIDATE, RIVAL = NodeId("b" * 32), NodeId("c" * 32)
CONFIG = TabletConfig(op_id=ZERO, members=())


def vote_request(term: int, last: OpId = OpId(3, 30)) -> Any:
    return VoteRequest(term=term, last=last, attempt=1, pre=False, transfer=False)


class World:
    """A node with tombstones ``t0`` to ``t10`` at 2.20, term 3, whose pool works when it is told to."""

    def __init__(self) -> None:
        from stelae.host.instance import Instance, format_directory

        self.disk = VirtualDisk()
        instance = Instance(node_id=NODE, cluster_id=ClusterId("c"), wal_engine="w")
        format_directory(self.disk, LAYOUT, instance)
        for number in range(11):
            tablet = TabletId(f"t{number}")
            self.save(Superblock(tablet_id=tablet, data_state=DataState.DELETED, tombstone=OpId(2, 20)))
            ConsensusMetadata(self.disk, LAYOUT, tablet).save(HardState(3, None), CONFIG)
        self.due: list[Callable[[], None]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.sent: list[tuple[TabletId, Any]] = []
        self.peers = PeerTraffic(MagicMock(), MagicMock(), MagicMock(), 1, MagicMock())
        self.peers.send = lambda tablet, out, entries: self.sent.append((tablet, out))  # type: ignore[method-assign]
        node: Any = SimpleNamespace(
            node_id=NODE,
            files=self.disk,
            layout=LAYOUT,
            peers=self.peers,
            replicas={},
            turns=SimpleNamespace(now_us=lambda: 10**9, call_at=self.call_at),
            metadata_pool=self,
            hard_states=HardStateWriter(self.disk, LAYOUT, self),
            engines=SimpleNamespace(consensus=RaftEngine, consensus_config=RaftConfig()),
        )
        self.tombstones = Tombstones(node)
        self.tombstones.start()

    def save(self, block: Superblock) -> None:
        SuperblockFile(self.disk, LAYOUT, block.tablet_id).save(block)

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def carry_out() -> None:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

        self.due.append(carry_out)

    def call_at(self, when_us: int, call: Callable[[], None]) -> Any:
        self.timers.append((when_us, call))
        return SimpleNamespace(cancel=lambda: self.timers.remove((when_us, call)))

    def pass_time(self) -> None:
        """Let every timer fire, and what follows from it."""
        timers, self.timers = self.timers, []
        for _, call in timers:
            call()
        self.work()

    def work(self) -> None:
        while self.due:
            self.due.pop(0)()

    def ask(self, tablet: str, sender: NodeId, message: Any) -> None:
        guard = PeerMessageHeader(TabletId(tablet), 1, ZERO, ZERO)
        self.peers._to_voter(sender, PeerMessage(header=guard, kind="vote", message=message, entries=()))

    def answers(self) -> list[VoteReply]:
        found = [out.message for _, out in self.sent]
        self.sent.clear()
        return found


def failed_replica(world: World, *readies: Ready) -> Any:
    """A replica of ``t1`` that has failed while its Readies are carried out, with its real executor."""
    log = LogId(TabletId("t1"), 1)
    writer = MagicMock(acknowledged=lambda _log: OpId(2, 20))
    executor = ReadyExecutor(
        log=log,
        ports=ExecutorPorts(
            writer=writer,
            reader=MagicMock(),
            hard_states=HardStateWriter(world.disk, LAYOUT, world),
            network=world.peers,
            time=MagicMock(),
        ),
        sink=MagicMock(),
        cache=EntryCache(OpId(2, 20), 1 << 20),
        hard_state=HardState(3, None),
        committed_config=CONFIG,
        range_bytes_max=1 << 20,
    )
    for ready in readies:
        executor.execute(ready)
    pool = SimpleNamespace(run=lambda _key, _work, done: done(None))
    return MagicMock(
        log=log,
        tablet_id=log.tablet_id,
        failure="a sync failed",
        executor=executor,
        applier=MagicMock(pool=pool),
        flusher=MagicMock(saving=False),
    )


def shut_down(world: World, replica: Any) -> None:
    """Shut a replica down. Only the saves of consensus metadata take time."""
    writer: Any = SimpleNamespace(acknowledged=lambda _log: OpId(2, 20), has_queued=lambda _log: False)
    node: Any = SimpleNamespace(peers=MagicMock(), writer=writer)
    pool = SimpleNamespace(run=lambda _key, work, done: done(work()))
    turns: Any = SimpleNamespace(now_us=lambda: 0, call_at=world.call_at)
    ended: list[object] = []
    StepRunner(pool, writer, turns).run("tablet/t1", TabletManager(node, MagicMock()).shut_down(replica), ended.append)
    while not ended:
        world.pass_time()
    assert ended == [OpId(2, 20)]


@pytest.fixture
def world() -> World:
    return World()


def record(world: World, tablet: str) -> HardState:
    return ConsensusMetadata(world.disk, LAYOUT, TabletId(tablet)).load().hard_state


def test_a_failed_replica_that_is_shut_down_gives_no_vote_beside_its_tombstone(world: World) -> None:
    """Its executor went on with the Readies that waited for a slow save, while the tombstone voted in the same term."""
    given = Outbound(CANDIDATE, VoteReply(term=5, campaign_term=5, attempt=1, pre=False), 5)
    replica = failed_replica(
        world,
        Ready(id=1, hard_state=HardState(4, None)),
        Ready(id=2, hard_state=HardState(5, CANDIDATE), after_persist=(given,)),
    )
    shut_down(world, replica)
    world.ask("t1", RIVAL, vote_request(5))
    world.work()
    assert [out.to for _, out in world.sent if out.message.refusal is None] == [RIVAL], "one vote in term 5"
    assert record(world, "t1") == HardState(5, RIVAL)


def test_a_replica_whose_save_waits_for_space_is_shut_down(world: World) -> None:
    """A closed replica does not try again. Its deletion, which would have made space, waited for that for ever."""
    given = Outbound(CANDIDATE, VoteReply(term=5, campaign_term=5, attempt=1, pre=False), 5)
    world.disk.faults.capacity_bytes = 0
    replica = failed_replica(world, Ready(id=1, hard_state=HardState(5, CANDIDATE), after_persist=(given,)))
    replica.failure = ""
    replica.applier.idle, replica.flusher.busy = True, False
    while world.due:
        world.pass_time()
    assert replica.executor.waits_to_save
    shut_down(world, replica)
    assert record(world, "t1") != HardState(5, CANDIDATE) and world.sent == []


def test_a_superblock_that_is_being_saved_does_not_come_after_the_tombstone(world: World) -> None:
    """The superblock of a flush became durable over the tombstone, and the replica was READY without its data."""
    replica, looks = failed_replica(world), iter([True, True, False])
    order: list[str] = []

    class Flusher:
        def halt(self) -> None:
            order.append("halt")

        @property
        def saving(self) -> bool:
            order.append("saving")
            return next(looks)

    replica.flusher = Flusher()
    replica.executor.halt = lambda: order.append("executor")
    shut_down(world, replica)
    assert order == ["halt", "saving", "saving", "saving", "executor"]


def test_the_saves_of_a_replica_that_is_shut_down_have_ended(world: World) -> None:
    """The vote that it gave last is in the file that its tombstone reads."""
    given = Outbound(CANDIDATE, VoteReply(term=5, campaign_term=5, attempt=1, pre=False), 5)
    shut_down(world, failed_replica(world, Ready(id=1, hard_state=HardState(5, CANDIDATE), after_persist=(given,))))
    assert world.due == [] and record(world, "t1") == HardState(5, CANDIDATE)
    world.ask("t1", RIVAL, vote_request(5))
    world.work()
    assert [reply.refusal for reply in world.answers()] == [VoteRefusal.VOTED]


def test_a_tombstone_that_is_asked_wakes_votes_and_the_vote_is_durable_before_it_is_told(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()  # its files are read
    assert world.answers() == [] and record(world, "t1") == HardState(3, None)
    world.work()
    (answer,) = world.answers()
    assert answer.refusal is None and record(world, "t1") == HardState(4, CANDIDATE)


def test_it_votes_once_in_a_term_also_when_it_was_forgotten_in_between(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    world.peers.voters.clear()
    world.ask("t1", RIVAL, vote_request(4))
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    refused, repeated = world.answers()[1:]
    assert refused.refusal is not None and repeated.refusal is None


def test_it_votes_for_no_log_behind_its_own(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4, last=OpId(2, 19)))
    world.work()
    (answer,) = world.answers()
    assert answer.refusal is not None and record(world, "t1") == HardState(4, None)


def test_one_whose_last_op_id_is_unknown_never_votes(world: World) -> None:
    world.save(Superblock(tablet_id=TabletId("t1"), data_state=DataState.DELETED, tombstone="UNKNOWN"))
    world.ask("t1", CANDIDATE, vote_request(9, last=OpId(8, 10**9)))
    world.work()
    (answer,) = world.answers()
    assert answer.refusal is not None


def test_a_vote_that_cannot_be_saved_is_not_told_and_nothing_is_after_it(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    world.due[:] = [lambda: world.peers.voters[TabletId("t1")]._saved(SyncFailed("input/output error"))]
    world.work()
    world.ask("t1", CANDIDATE, vote_request(5))
    world.work()
    assert world.answers() == []


def test_a_vote_that_finds_no_space_is_saved_and_told_once_there_is_some(world: World) -> None:
    """One full disk ended the votes of a tombstone until the next start of its node."""
    world.disk.faults.capacity_bytes = 0
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    world.ask("t1", RIVAL, vote_request(4))
    world.pass_time()
    assert world.answers() == [] and record(world, "t1") == HardState(3, None)
    assert [when_us for when_us, _ in world.timers] == [10**9 + REPAIR_INTERVAL_US]
    world.disk.faults.capacity_bytes = None
    world.pass_time()
    granted, refused = world.answers()
    assert granted.refusal is None and refused.refusal is not None
    assert record(world, "t1") == HardState(4, CANDIDATE) and not world.timers
    assert world.peers.voters[TabletId("t1")].idle


def test_a_voter_whose_disk_is_full_keeps_a_bounded_number_of_answers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voter_module, "READIES_MAX", 3)
    world.disk.faults.capacity_bytes = 0
    for term in range(4, 14):
        world.ask("t1", CANDIDATE, vote_request(term))
        world.work()
    world.disk.faults.capacity_bytes = None
    world.pass_time()
    assert [answer.term for answer in world.answers()] == [4, 5, 6]
    world.ask("t1", CANDIDATE, vote_request(14))
    world.work()
    assert [answer.term for answer in world.answers()] == [14]


def test_a_voter_that_is_closed_saves_nothing_any_more(world: World) -> None:
    world.disk.faults.capacity_bytes = 0
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    world.peers.stop()
    assert world.timers == []
    world.disk.faults.capacity_bytes = None
    world.ask("t1", CANDIDATE, vote_request(5))
    world.work()
    assert world.answers() == [] and record(world, "t1") == HardState(3, None)


def test_a_tablet_that_was_never_here_has_no_vote(world: World) -> None:
    world.ask("stranger", CANDIDATE, vote_request(4))
    world.work()
    assert world.answers() == [] and not world.peers.voters
    assert not world.disk.exists(LAYOUT.consensus_of(TabletId("stranger")))


def test_a_live_replica_that_is_starting_is_no_tombstone(world: World) -> None:
    world.save(Superblock(tablet_id=TabletId("t1"), data_state=DataState.READY))
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    assert world.answers() == []


def test_few_tombstones_are_awake_and_none_goes_whose_vote_is_on_its_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAKE_MAX", 3)
    for number in range(10):
        world.ask(f"t{number}", CANDIDATE, vote_request(4))
    world.work()
    assert len(world.answers()) == 10, "each was awake until its vote was durable and told"
    world.ask("t10", CANDIDATE, vote_request(4))
    world.work()
    assert [*world.peers.voters] == ["t8", "t9", "t10"] and len(world.answers()) == 1


def test_what_a_voter_says_keeps_its_order_behind_a_save() -> None:
    saves: list[Callable[[Any], None]] = []
    sent: list[Outbound] = []
    core = RaftEngine.restore_voter(
        node_id=NODE, hard_state=HardState(3, None), last=ZERO, config=RaftConfig(), now_us=0
    )
    hard_states, network = MagicMock(), MagicMock()
    hard_states.save.side_effect = lambda *args: saves.append(args[-1])
    network.send.side_effect = lambda _tablet, out, _entries: sent.append(out)
    turns = SimpleNamespace(now_us=lambda: 10**9)
    voter = TombstoneVoter(
        TabletId("t"), core, HardState(3, None), CONFIG, turns=turns, hard_states=hard_states, network=network
    )  # type: ignore[arg-type]
    for sender, term in ((CANDIDATE, 4), (RIVAL, 4), (RIVAL, 5)):
        voter.receive(
            sender, PeerMessage(PeerMessageHeader(TabletId("t"), 1, ZERO, ZERO), "vote", vote_request(term), ())
        )
    assert sent == [] and len(saves) == 1
    saves.pop()(None)
    assert [out.to for out in sent] == [CANDIDATE, RIVAL] and len(saves) == 1
    saves.pop()(None)
    assert [out.to for out in sent] == [CANDIDATE, RIVAL, RIVAL] and voter.idle


# -- the metadata of the source of a copy (rule 20) --------------------------------------------------

NEWER = TabletConfig(op_id=OpId(5, 40), members=())


def merge(world: World, term: int, config: TabletConfig = NEWER) -> list[Any]:
    """Merge at the voter of t1; return what ``done`` is called with, which may come later."""
    ends: list[Any] = []

    def found(voter: TombstoneVoter | None) -> None:
        assert voter is not None
        voter.merge(term, config, ends.append)

    world.tombstones.voter(TabletId("t1"), found)
    return ends


def saved(world: World) -> tuple[HardState, OpId]:
    found = ConsensusMetadata(world.disk, LAYOUT, TabletId("t1")).load()
    return found.hard_state, found.committed_config.op_id


@pytest.mark.parametrize("voted", [False, True])
@pytest.mark.parametrize("source_term", [2, 3, 4, 5, 6])
def test_the_metadata_of_the_source_are_merged_with_what_the_voter_promised(
    world: World, voted: bool, source_term: int
) -> None:
    """T3: lower, equal and higher terms, with and without a vote in term 4 (3 without)."""
    if voted:
        world.ask("t1", CANDIDATE, vote_request(4))
        world.work()
    before = record(world, "t1")
    ends = merge(world, source_term)
    world.work()
    assert ends == [None]
    expected = before if source_term <= before.term else HardState(source_term, None)
    assert saved(world) == (expected, NEWER.op_id)


def test_a_vote_that_is_given_while_the_merge_is_saved_has_the_new_config_and_survives(world: World) -> None:
    ends = merge(world, 5)
    world.due.pop(0)()  # the files are read, and the save of the merge begins
    world.ask("t1", CANDIDATE, vote_request(6, last=OpId(5, 50)))
    assert ends == [] and world.answers() == []
    world.work()
    assert ends == [None] and [answer.refusal for answer in world.answers()] == [None]
    assert saved(world) == (HardState(6, CANDIDATE), NEWER.op_id)


def test_a_vote_that_is_on_its_way_to_the_disk_is_saved_before_the_merge(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    ends = merge(world, 4)
    world.work()
    assert ends == [None] and saved(world) == (HardState(4, CANDIDATE), NEWER.op_id)


def test_a_merge_that_finds_no_space_fails_and_the_voter_goes_on_with_the_old_config_and_the_new_term(
    world: World,
) -> None:
    merge(world, 3, CONFIG)
    world.work()
    world.disk.faults.capacity_bytes = 0
    ends = merge(world, 5)
    world.work()
    assert [type(end) for end in ends] == [Full] and record(world, "t1") == HardState(3, None)
    world.disk.faults.capacity_bytes = None
    world.pass_time()
    assert len(ends) == 1 and saved(world) == (HardState(5, None), ZERO)
    world.ask("t1", CANDIDATE, vote_request(5))
    world.work()
    assert [answer.refusal for answer in world.answers()] == [None]


def test_a_merge_that_cannot_be_saved_fails_and_nothing_is_sent_any_more(world: World) -> None:
    ends = merge(world, 5)
    world.due.pop(0)()
    world.due[:] = [lambda: world.peers.voters[TabletId("t1")]._saved(SyncFailed("input/output error"))]
    world.work()
    ends += merge(world, 5)
    world.ask("t1", CANDIDATE, vote_request(6))
    world.work()
    assert [type(end) for end in ends] == [SyncFailed, StorageError] and world.answers() == []


def test_a_merge_behind_a_vote_that_cannot_be_saved_fails_too(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    ends = merge(world, 5)
    world.due[:] = [lambda: world.peers.voters[TabletId("t1")]._saved(SyncFailed("input/output error"))]
    world.work()
    assert [type(end) for end in ends] == [SyncFailed] and world.answers() == []


def test_a_merge_that_waits_fails_when_its_voter_is_closed(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    ends = merge(world, 5)
    world.peers.voters[TabletId("t1")].close()
    assert [type(end) for end in ends] == [StorageError]
    world.work()
    assert len(ends) == 1


def test_a_voter_that_is_held_gets_no_message_and_is_not_loaded_again(world: World) -> None:
    """Its replica is about to start with what the voter has saved: a vote after that would be given twice."""
    tablet = TabletId("t1")
    world.ask("t1", CANDIDATE, vote_request(4))  # Its files are still being read when the hold begins.
    world.tombstones.hold(tablet)
    world.work()
    assert world.answers() == [] and not world.peers.voters and record(world, "t1") == HardState(3, None)
    world.ask("t1", CANDIDATE, vote_request(4))
    assert world.due == []
    world.tombstones.release(tablet)
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    assert [answer.refusal for answer in world.answers()] == [None]


def test_a_first_copy_has_promised_nothing_and_does_not_vote(world: World) -> None:
    """A tombstone at 0.0 would vote like an empty replica, although a former replica may have been lost (rule 19)."""
    world.save(Superblock(tablet_id=TabletId("t1"), data_state=DataState.COPYING, tombstone=None))
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    assert world.answers() == [] and not world.peers.voters


def test_a_copy_over_a_tombstone_votes_with_the_last_op_id_of_the_tombstone(world: World) -> None:
    world.save(Superblock(tablet_id=TabletId("t1"), data_state=DataState.COPYING, tombstone=OpId(2, 20)))
    world.ask("t1", CANDIDATE, vote_request(4, last=OpId(2, 19)))
    world.ask("t1", RIVAL, vote_request(5, last=OpId(2, 20)))
    world.work()
    behind, granted = world.answers()
    assert behind.refusal is not None and granted.refusal is None
