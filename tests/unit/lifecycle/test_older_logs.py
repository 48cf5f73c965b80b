"""A log that contradicts the superblock beside it: whatever the engine, the replica never votes again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.assembly import Engines
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.host.settings import TabletSettings
from stelae.lifecycle.log_agreement import LogContradicts
from stelae.lifecycle.startup_decisions import lost_logs
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tablet_recovery import recover
from stelae.machine.files import RealFiles
from stelae.spi.consensus import ConsensusEngine, HardState
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.members import Member, TabletConfig
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, WalEngine
from stelae_wal_lmdb import LmdbWal
from stelae_wal_segmented import SegmentedWal
from stelae_wal_shared import SharedWal
from tests.conformance.durable_store import DurableStore
from tests.unit.lifecycle.disk_node import NODE, OTHER, SCHEMA, TABLET, NoService, row
from tests.unit.lifecycle.flushed_blocks import flushed

WALS: dict[str, type[WalEngine]] = {"segmented": SegmentedWal, "lmdb": LmdbWal, "shared": SharedWal}
LOG = LogId(TABLET, 1)
ROWS = tuple(row(index) for index in range(1, 10))
FLUSHED = 5
_CONFIG = TabletConfig(op_id=ZERO, members=())


class RealNode:
    """A node in a real directory, with two tablets of nine rows, of which five are flushed."""

    def __init__(self, root: Path, wal: WalEngine) -> None:
        self.files, self.layout, self.wal = RealFiles(), DirectoryLayout(str(root)), wal
        self.engines = Engines(
            wal=wal,
            consensus=ConsensusEngine,
            consensus_config=None,
            store=DurableStore,
            store_config=DurableStore.Config(),
            services=_services(self.files),
        )
        self.loader = TabletLoader(self.files, self.layout, self.engines, ("raft", "durable"))

    def fill(self) -> None:
        for tablet in (TABLET, OTHER):
            member = Member(node_id=NODE, address="127.0.0.1:1")
            self.loader.create(TabletSettings(id=tablet, schema=SCHEMA, members=(member,)))
            ConsensusMetadata(self.files, self.layout, tablet).save(HardState(1, NODE), _CONFIG)
            self.wal.commit({LogId(tablet, 1): Append(entries=ROWS[:FLUSHED], commit_hint=FLUSHED)}, sync=True)
            (found,) = [one for one in self.loader.recover_all() if one.superblock.tablet_id == tablet]
            edit, block = flushed(found, SCHEMA.to_bytes())
            self.loader.superblock_file(tablet).save(block)
            found.store.commit(edit)
            found.store.close()
            self.wal.commit({LogId(tablet, 1): Append(entries=ROWS[FLUSHED:])}, sync=True)

    def log(self, base: OpId, entries: Sequence[Entry]) -> None:
        """Put another log in the place of the tablet's."""
        self.wal.drop(LOG)
        self.wal.create(LOG, base)
        if entries:
            self.wal.commit({LOG: Append(entries=tuple(entries))}, sync=True)

    def config(self, op_id: OpId) -> None:
        metadata = ConsensusMetadata(self.files, self.layout, TABLET)
        metadata.save(HardState(4, NODE), TabletConfig(op_id=op_id, members=()))


def _services(files: RealFiles) -> EngineServices:
    no_service: Any = NoService()
    return EngineServices(files, no_service, no_service, no_service)


@contextmanager
def running(root: Path, engine: str) -> Iterator[RealNode]:
    wal = WALS[engine].open(str(root / "wals"), WALS[engine].Config(), _services(RealFiles()))
    try:
        yield RealNode(root, wal)
    finally:
        wal.close()


LOGS: dict[str, tuple[OpId, Sequence[Entry], OpId, str]] = {
    "it ends below what is flushed": (ZERO, ROWS[:3], ZERO, "the log ends at 1.3, and the store is flushed up to 1.5"),
    "it is empty": (ZERO, (), ZERO, "the log ends at 0.0"),
    "it begins above what is flushed": (OpId(1, 6), ROWS[6:], ZERO, "the log begins after 1.6"),
    "it begins and ends above what is flushed": (OpId(1, 9), (), ZERO, "the log begins after 1.9"),
    "it has another term there": (
        ZERO,
        [row(index, 2) for index in range(1, 10)],
        ZERO,
        "the log holds 2.5, and the store is flushed up to 1.5",
    ),
    "its base has another term": (OpId(2, 5), (), ZERO, "the log holds 2.5"),
    "it ends below the committed config": (ZERO, ROWS, OpId(1, 20), "the committed config is of 1.20"),
    "it has another entry where the committed config was": (ZERO, ROWS, OpId(3, 8), "the committed config is of 3.8"),
}


@pytest.mark.parametrize("engine", WALS)
@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_contradicts_its_superblock_fails_the_replica_and_its_last_op_id_is_lost(
    engine: str, name: str, tmp_path: Path
) -> None:
    base, entries, config, says = LOGS[name]
    format_directory(
        RealFiles(), DirectoryLayout(str(tmp_path)), Instance(node_id=NODE, cluster_id=None, wal_engine=engine)
    )
    with running(tmp_path, engine) as node:
        node.fill()
        node.log(base, entries)
        node.config(config)
    with running(tmp_path, engine) as node:
        assert [one.superblock.tablet_id for one in node.loader.recover_all()] == [OTHER]
        assert set(node.loader.failed) == node.loader.unknown_op_ids == {TABLET}
        assert says in node.loader.failed[TABLET]
        block, record = node.loader.superblock_file(TABLET).load(), ConsensusMetadata(node.files, node.layout, TABLET)
        with pytest.raises(LogContradicts, match=says):
            recover(block, record.load(), node.engines, node.layout.data_of(TABLET))
        found = node.loader.inspect(TABLET, node.wal.logs())
        assert found.decision.letter == "P" and lost_logs([found]) == [found], "also without a recovery, as fs check"
        for loader in (node.loader, TabletLoader(node.files, node.layout, node.engines, ("raft", "durable"))):
            _, last = TabletManager(MagicMock(), loader)._offline(found, None)
            assert last == "UNKNOWN", "what a tombstone of it would say, also if it has not been recovered"


@pytest.mark.parametrize("engine", WALS)
def test_a_log_that_was_collected_up_to_what_is_flushed_starts(engine: str, tmp_path: Path) -> None:
    format_directory(
        RealFiles(), DirectoryLayout(str(tmp_path)), Instance(node_id=NODE, cluster_id=None, wal_engine=engine)
    )
    with running(tmp_path, engine) as node:
        node.fill()
        node.log(OpId(1, 5), ())
        node.config(OpId(1, 2))
    with running(tmp_path, engine) as node:
        assert {one.superblock.tablet_id for one in node.loader.recover_all()} == {TABLET, OTHER}
