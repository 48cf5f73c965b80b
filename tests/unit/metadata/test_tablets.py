"""Tablets at the start of a node: one that cannot be recovered keeps no other one offline."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.host.assembly import Engines
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.wal import LogState

LAYOUT = DirectoryLayout("/node")
TABLETS = [TabletId(name) for name in ("a", "b", "c")]


class Wal:
    """Names a log with one entry for each tablet; none of them holds an entry to replay."""

    def logs(self) -> dict[LogId, LogState]:
        return {LogId(t, 1): LogState(base=OpId(1, 1), last=OpId(1, 1)) for t in TABLETS}

    def op_id_at(self, log: LogId, index: int) -> OpId:
        return OpId(1, index)


class Store:
    """A store engine that fails to open one tablet's directory."""

    def __init__(self, error: Exception, directory: str) -> None:
        self.error = error
        self.directory = directory
        self.opened: list[str] = []

    def open(self, directory: str, *_: Any) -> Any:
        self.opened.append(directory)
        if directory == self.directory:
            raise self.error
        raise Corrupt("as the others of this test do", path=directory)


@pytest.mark.parametrize("error", [FileNotFoundError("data/b/rows"), NotADirectoryError("data/b/rows")])
def test_a_file_that_is_missing_fails_its_tablet_and_not_the_start(error: OSError) -> None:
    disk = VirtualDisk()
    node = Instance(node_id=NodeId("a" * 32), cluster_id=None, wal_engine="w")
    format_directory(disk, LAYOUT, node)
    for tablet in TABLETS:
        block = Superblock(
            tablet_id=tablet, generation=1, consensus_engine="raft", store_engine="memory", flushed=OpId(1, 1)
        )
        SuperblockFile(disk, LAYOUT, tablet).save(block)
        config = TabletConfig(op_id=ZERO, members=())
        ConsensusMetadata(disk, LAYOUT, tablet).save(HardState(1), config)
    store = Store(error, LAYOUT.data_of(TABLETS[1]))
    engines: Any = Engines(
        wal=Wal(),  # type: ignore[arg-type]
        consensus=None,  # type: ignore[arg-type]
        consensus_config=None,
        store=store,  # type: ignore[arg-type]
        store_config=None,
        services=None,  # type: ignore[arg-type]
    )
    loader = TabletLoader(disk, LAYOUT, engines, ("raft", "memory"))
    assert loader.recover_all() == []
    assert "data/b/rows" in loader.failed[TABLETS[1]]
    assert store.opened == [LAYOUT.data_of(tablet) for tablet in TABLETS], "all were tried"
