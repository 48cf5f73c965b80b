"""The watch over a node's replicas: sizes that are worth a report, and where a server says it is."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.lifecycle.directory_size import bytes_below
from stelae.server.tserver import replica_stats
from stelae.server.tserver.replica_stats import MEASURING_MAX, SIZE_LOOKS, STEP_BYTES_MIN, ReplicaStats
from stelae.server.tserver.settings import TabletServerSettings, check_location
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import Role
from stelae.spi.consensus_events import PeerAlive
from stelae.spi.errors import ConfigError
from stelae.spi.ids import ZERO, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig

T = TabletId("t")
A, B = [NodeId(letter * 32) for letter in "ab"]
MIB = 1 << 20


class World:
    """A node with one replica, whose files, memory and clock a test decides."""

    def __init__(self) -> None:
        self.disk = VirtualDisk()
        self.disk.make_directory("/data/t")
        self.walks = 0
        self.now_us = 0
        self.turns = MagicMock()
        self.turns.now_us.side_effect = lambda: self.now_us
        self.replica = self._replica()
        self.peers = MagicMock()
        self.peers.heartbeats.peers_alive.side_effect = lambda tablet, term: [PeerAlive(B, term, 0)]
        self.node: Any = SimpleNamespace(
            config=SimpleNamespace(extra={"tserver": TabletServerSettings(follower_unhealthy_ms=1000)}),
            turns=self.turns,
            replicas={T: self.replica},
            peers=self.peers,
            files=self.disk,
            layout=SimpleNamespace(data_of=lambda tablet: f"/data/{tablet}"),
            scans=SimpleNamespace(run=self._walk),
        )
        self.watch = ReplicaStats(self.node)
        self.watch.start()
        self.looks(1)

    def _replica(self) -> Any:
        members = tuple(Member(node_id=node, address="") for node in (A, B))
        config = TabletConfig(op_id=ZERO, members=members)
        made = MagicMock(tablet_id=T, failure="")
        made.status = SimpleNamespace(role=Role.LEADER, serving=True, node_id=A, term=1, config=config, peers=())
        made.applier.store.memory_bytes.return_value = 0
        return made

    def _walk(self, key: str, work: Any, done: Any) -> None:
        self.walks += 1
        done(work())

    def write(self, name: str, size_bytes: int) -> None:
        self.disk.replace(f"/data/t/{name}", bytes(size_bytes))

    def flushed(self) -> None:
        """The superblock is another one: files have changed."""
        self.replica.flusher.superblock = object()

    def looks(self, count: int = SIZE_LOOKS) -> int:
        for _ in range(count):
            self.turns.call_at.call_args.args[1]()
        return self.watch.size_bytes[T]


def test_a_size_is_that_of_files_and_rows_in_memory_and_files_are_walked_only_when_they_changed() -> None:
    world = World()
    assert world.looks() == 0 and world.walks == 1
    world.write("block", 2 * MIB)
    assert world.looks() == 0 and world.walks == 1, "nothing says that files have changed"
    world.flushed()
    assert world.looks() == 2 * MIB and world.walks == 2
    world.replica.applier.store.memory_bytes.return_value = MIB
    assert world.looks() == 3 * MIB and world.walks == 2


def test_a_size_that_differs_little_is_no_news() -> None:
    world = World()
    memory = world.replica.applier.store.memory_bytes
    memory.return_value = STEP_BYTES_MIN
    assert world.looks() == 0
    memory.return_value = 8 * MIB
    assert world.looks() == 8 * MIB
    memory.return_value = 9 * MIB
    assert world.looks() == 8 * MIB, "an eighth more"
    memory.return_value = 9 * MIB + 1
    assert world.looks() == 9 * MIB + 1


def test_a_replica_that_is_gone_has_no_size_and_a_walk_that_fails_leaves_the_last_one() -> None:
    world = World()
    world.write("block", MIB)
    world.flushed()
    assert world.looks() == MIB
    world.node.scans.run = lambda key, work, done: done(OSError("disk"))
    world.flushed()
    assert world.looks() == MIB
    world.node.replicas.clear()
    with pytest.raises(KeyError):
        world.looks()


def test_a_walk_that_fails_is_repeated_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """After one failed read at its start, a node told a size of nothing for each table that is only read."""
    world = World()
    world.write("block", MIB)
    world.flushed()
    walk, world.node.scans.run = world.node.scans.run, lambda key, work, done: done(OSError("disk"))
    with caplog.at_level(logging.WARNING, logger=replica_stats.__name__):
        assert [world.looks(), world.looks()] == [0, 0]
    assert len(caplog.records) == 1
    world.node.scans.run = walk
    assert world.looks() == MIB
    walks = world.walks
    assert world.looks() == MIB and world.walks == walks


def test_walks_that_fail_again_and_again_keep_no_other_replica_from_being_measured() -> None:
    world = World()
    names = [TabletId(f"t{number}") for number in range(3 * MEASURING_MAX)]
    for name in names:
        world.node.replicas[name] = MagicMock(tablet_id=name, failure="", status=world.replica.status)
        world.node.replicas[name].applier.store.memory_bytes.return_value = 0
        world.disk.make_directory(f"/data/{name}")
    world.write("block", MIB)
    del world.node.replicas[T]
    world.node.replicas[T] = world.replica  # The last one.
    world.flushed()
    pending: list[Any] = []
    world.node.scans.run = lambda key, work, done: pending.append((key, work, done))
    for _ in range(8):
        world.looks()
        while pending:
            key, work, done = pending.pop(0)
            done(work() if key == f"size/{T}" else OSError("disk"))
    assert world.looks() == MIB


def test_a_follower_that_a_leader_does_not_hear_is_told_and_a_follower_tells_of_nobody() -> None:
    world = World()
    assert world.watch.unhealthy == {}
    world.now_us = 1_000_001
    world.looks(1)
    assert world.watch.unhealthy == {T: (B,)}
    world.replica.status.role = Role.FOLLOWER
    world.looks(1)
    assert world.watch.unhealthy == {}


def test_a_follower_that_needs_a_copy_is_told_after_a_time_though_it_answers_heartbeats() -> None:
    world = World()
    world.peers.heartbeats.peers_alive.side_effect = lambda tablet, term: [PeerAlive(B, term, world.now_us)]
    world.now_us = 5_000_000
    world.looks(1)
    assert world.watch.unhealthy == {}
    world.replica.status.peers = (SimpleNamespace(node_id=B, state="COPY"),)
    world.now_us = 5_900_000
    world.looks(1)
    assert world.watch.unhealthy == {}, "a copy may be about to begin"
    world.now_us = 6_100_000
    world.looks(1)
    assert world.watch.unhealthy == {T: (B,)}
    world.replica.status.peers = (SimpleNamespace(node_id=B, state="REPLICATE"),)
    world.looks(1)
    assert world.watch.unhealthy == {}


def test_bytes_are_those_of_all_files_below_a_path() -> None:
    disk = VirtualDisk()
    disk.make_directory("/a/b")
    disk.replace("/a/x", b"123")
    disk.replace("/a/b/y", b"12345")
    assert [bytes_below(disk, path) for path in ("/a", "/a/b", "/a/x", "/nothing")] == [8, 5, 3, 0]


@pytest.mark.parametrize("location", ["", "/oslo", "/oslo/rack-3/host_12.a"])
def test_a_location_is_a_path_of_names(location: str) -> None:
    check_location(TabletServerSettings(location=location), "node.toml")


@pytest.mark.parametrize("location", ["oslo", "/", "/oslo/", "//x", "/a b", "/a" * 9, "/" + "x" * 64, "/../x"])
def test_another_location_is_refused_with_the_file_and_an_example(location: str) -> None:
    with pytest.raises(ConfigError, match=r"^node\.toml: .*is not a location\nWrite one to eight names"):
        check_location(TabletServerSettings(location=location), "node.toml")
