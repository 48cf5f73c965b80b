"""A node with tombstones whose disk and threads do what a test says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata, HardStateWriter
from stelae.host.peer_codec import PeerMessage, PeerMessageHeader
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.tombstones import Tombstones
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
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


def record(world: World, tablet: str) -> HardState:
    return ConsensusMetadata(world.disk, LAYOUT, TabletId(tablet)).load().hard_state


def fail_at(world: World, failing: str) -> None:
    """Let the disk fail at an operation. At the sync of a directory, the file already has its new contents."""

    def fails(operation: str, path: str) -> None:
        if operation == failing:
            raise SyncFailed("input/output error", path=path)

    world.disk.faults.hook = fails


FAILING = pytest.mark.parametrize("failing", ["create", "sync_directory"])
