"""Tombstones vote: term and vote are durable before the answer, and a few of them are in memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host import tombstone_voter as voter_module
from stelae.host.consensus_metadata import ConsensusMetadata, HardStateWriter
from stelae.host.peer_codec import PeerMessage, PeerMessageHeader
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import REPAIR_INTERVAL_US
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.lifecycle import tombstones as module
from stelae.lifecycle.tombstones import Tombstones
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState, Outbound
from stelae.spi.errors import SyncFailed
from stelae.spi.ids import ZERO, ClusterId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.engine import RaftEngine
from stelae_consensus_raft.messages import VoteReply, VoteRequest
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
        self.peers = PeerTraffic(MagicMock(), MagicMock(), MagicMock(), 1)
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
        Tombstones(node).start()

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


@pytest.fixture
def world() -> World:
    return World()


def record(world: World, tablet: str) -> HardState:
    return ConsensusMetadata(world.disk, LAYOUT, TabletId(tablet)).load().hard_state


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
    voter = TombstoneVoter(TabletId("t"), core, CONFIG, turns=turns, hard_states=hard_states, network=network)  # type: ignore[arg-type]
    for sender, term in ((CANDIDATE, 4), (RIVAL, 4), (RIVAL, 5)):
        voter.receive(
            sender, PeerMessage(PeerMessageHeader(TabletId("t"), 1, ZERO, ZERO), "vote", vote_request(term), ())
        )
    assert sent == [] and len(saves) == 1
    saves.pop()(None)
    assert [out.to for out in sent] == [CANDIDATE, RIVAL] and len(saves) == 1
    saves.pop()(None)
    assert [out.to for out in sent] == [CANDIDATE, RIVAL, RIVAL] and voter.idle
