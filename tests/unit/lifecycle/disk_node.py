"""A node's tablets on a virtual disk, with the real log engine and a store that flushes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory, make_names_durable
from stelae.host.metadata_files import CrashPoints
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.deletion import LastOpId, roll_forward, write_tombstone
from stelae.lifecycle.quarantine import DeletionRecord
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.rows.batcher import Batcher
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import ConsensusEngine, HardState
from stelae.spi.ids import ClientId, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, WalEngine
from stelae.spi.write import OpKind, digests_of
from stelae_wal_segmented import SegmentedWal
from tests.conformance.durable_store import DurableStore
from tests.unit.lifecycle.flushed_blocks import flushed

LAYOUT = DirectoryLayout("/node")
NODE = NodeId("a" * 32)
TABLET, OTHER = TabletId("t"), TabletId("other")
SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
LAST = OpId(1, 9)


class NoService:
    """Clock, metrics and workers of a world in which nothing takes time."""

    def count(self, name: str, amount: int = 1) -> None: ...

    def gauge(self, name: str, value: float) -> None: ...

    def histogram(self, name: str) -> Callable[[int], None]:
        return lambda _value: None

    def monotonic_us(self) -> int:
        return 0

    def wall_us(self) -> int:
        return 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        result = work()
        if done is not None:
            done(result)


class DiskNode:
    """Opens the log engine on a disk and brings its tablets up, as a node does."""

    def __init__(
        self, disk: VirtualDisk, crash: CrashPoints | None = None, wal: type[WalEngine] = SegmentedWal
    ) -> None:
        self.disk = disk
        make_names_durable(disk, LAYOUT)
        no_service = NoService()
        services = EngineServices(disk, no_service, no_service, no_service)
        config = wal.Config(segment_bytes_first=4096, segment_bytes_max=4096)
        self.wal = wal.open(LAYOUT.wals, config, services)
        engines = Engines(
            wal=self.wal,
            consensus=ConsensusEngine,
            consensus_config=None,
            store=DurableStore,
            store_config=DurableStore.Config(),
            services=services,
        )
        self.crash = crash or CrashPoints()
        self.loader = TabletLoader(disk, LAYOUT, engines, ("raft", "durable"), self.crash)

    @classmethod
    def with_rows(cls, *tablets: TabletId, wal: type[WalEngine] = SegmentedWal) -> DiskNode:
        """Tablets with nine rows each, of which three are flushed; term 4, voted."""
        disk = VirtualDisk()
        format_directory(disk, LAYOUT, Instance(node_id=NODE, cluster_id=None, wal_engine=wal.name))
        node = cls(disk, wal=wal)
        for tablet in tablets:
            node.add_rows(tablet)
        return node

    def add_rows(self, tablet: TabletId) -> None:
        """Create a tablet as ``with_rows`` does."""
        member = Member(node_id=NODE, address="127.0.0.1:1")
        self.loader.create(TabletSettings(id=tablet, schema=SCHEMA, members=(member,)))
        metadata = ConsensusMetadata(self.disk, LAYOUT, tablet)
        metadata.save(HardState(4, NODE), metadata.load().committed_config)
        entries = tuple(row(index) for index in range(1, LAST.index + 1))
        log = LogId(tablet, 1)
        self.wal.commit({log: Append(entries=entries[:3], commit_hint=3)}, sync=True)
        (recovered,) = (one for one in self.loader.recover_all() if one.superblock.tablet_id == tablet)
        edit, block = flushed(recovered, SCHEMA.to_bytes())
        SuperblockFile(self.disk, LAYOUT, tablet).save(block)
        recovered.store.commit(edit)
        self.wal.commit({log: Append(entries=entries[3:], commit_hint=9)}, sync=True)

    def block(self, tablet: TabletId = TABLET) -> Superblock:
        return SuperblockFile(self.disk, LAYOUT, tablet).load()

    def delete(self, tablet: TabletId = TABLET, last: LastOpId = LAST) -> None:
        """Steps 2 to 6."""
        about = DeletionRecord(tablet_id=tablet, table_name="", deleted_us=5, reason="test")
        tombstone = write_tombstone(self.disk, LAYOUT, self.block(tablet), last, about, self.crash)
        roll_forward(self.disk, LAYOUT, tombstone, self.wal.set_aside, self.crash)

    def recovered(self) -> dict[TabletId, RecoveredTablet]:
        return {one.superblock.tablet_id: one for one in self.loader.recover_all()}


def ids(recovered: RecoveredTablet) -> list[int]:
    return [row[0] for batch in recovered.store.scan(ScanSpec(order=Order.KEY)) for row in batch.to_rows()]


def row(index: int, term: int = 1) -> Entry:
    """The entry that inserts the row of this number."""
    batcher = Batcher(SCHEMA)
    (run,) = sequence_ranges_of([(index, operation(OpKind.INSERT, [(index,)]))])
    batcher.add(ClientId("c"), 1, run, digests_of(run), None)
    ((payload, _),) = batcher.build()
    return Entry(OpId(term, index), EntryKind.WRITE, index << 12, payload)


def moments(disk: VirtualDisk, work: Callable[[], object]) -> list[VirtualDisk]:
    """Do some work; return the disk as a process that is killed before each operation leaves it."""
    found: list[VirtualDisk] = []
    disk.faults.hook = lambda _operation, _path: found.append(disk.clone())
    work()
    disk.faults.hook = None
    return found
