"""Tombstones vote: term and vote are durable before the answer, and a few of them are in memory."""

from __future__ import annotations

import random
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
from stelae.host.replica import REPAIR_INTERVAL_US
from stelae.host.superblock import DataState, Superblock
from stelae.host.tombstone_voter import SAVE_AGAIN_US, TombstoneVoter
from stelae.lifecycle import tombstones as module
from stelae.lifecycle.blocking_steps import StepRunner
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.sim.disk import Survival
from stelae.spi.consensus import HardState, Outbound, Ready
from stelae.spi.errors import SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.engine import RaftEngine
from stelae_consensus_raft.messages import VoteRefusal, VoteReply
from tests.unit.lifecycle.disk_node import LAYOUT, NODE
from tests.unit.lifecycle.tombstone_world import CANDIDATE, CONFIG, FAILING, RIVAL, World, fail_at, record, vote_request


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
    return MagicMock(
        log=log,
        tablet_id=log.tablet_id,
        failure="a sync failed",
        executor=executor,
        applier=MagicMock(stop=lambda done: done(None)),
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


def test_a_vote_of_the_replica_whose_sync_failed_is_durable_before_the_tombstone_tells_it(world: World) -> None:
    """The replica failed at the sync of the directory, and was deleted. Its file has the vote, but may lose it."""
    fail_at(world, "sync_directory")
    metadata = ConsensusMetadata(world.disk, LAYOUT, TabletId("t1"))
    with pytest.raises(SyncFailed):
        metadata.save(HardState(4, CANDIDATE), CONFIG)
    world.disk.faults.hook = None
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    (answer,) = world.answers()
    assert answer.refusal is None
    after = world.disk.crash(random.Random(1), Survival.LOST)
    assert ConsensusMetadata(after, LAYOUT, TabletId("t1")).load().hard_state == HardState(4, CANDIDATE)


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


@FAILING
def test_a_vote_whose_sync_fails_is_saved_again_and_told_once_it_is_durable(world: World, failing: str) -> None:
    """One sync that failed ended the votes of a tombstone until the next start of its node. The file may have the vote
    then, although it is not durable, so it proves nothing (rule 7)."""
    world.tombstones.voter(TabletId("t1"), lambda _voter: None)
    world.work()
    fail_at(world, failing)
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    assert record(world, "t1") == (HardState(4, CANDIDATE) if failing == "sync_directory" else HardState(3, None))
    assert world.answers() == [] and [when_us for when_us, _ in world.timers] == [10**9 + SAVE_AGAIN_US]
    world.ask("t1", RIVAL, vote_request(4))
    world.ask("t1", CANDIDATE, vote_request(4))
    world.pass_time()
    assert world.answers() == [] and world.peers.voters[TabletId("t1")].failure
    world.disk.faults.hook = None
    world.pass_time()
    (granted,) = world.answers()
    assert granted.refusal is None and record(world, "t1") == HardState(4, CANDIDATE) and not world.timers
    world.ask("t1", RIVAL, vote_request(4))
    world.ask("t1", RIVAL, vote_request(5))
    world.work()
    refused, next_term = world.answers()
    assert refused.refusal is not None and next_term.refusal is None


def test_a_vote_that_would_replace_another_one_on_the_disk_ends_the_votes(world: World) -> None:
    """Only a defect can ask for it: nothing is sent any more, and nothing is saved again."""
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    ConsensusMetadata(world.disk, LAYOUT, TabletId("t1")).save(HardState(4, RIVAL), CONFIG)
    world.work()
    world.ask("t1", CANDIDATE, vote_request(5))
    world.work()
    assert world.answers() == [] and not world.timers and record(world, "t1") == HardState(4, RIVAL)


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
