"""A replica without rows exists as a whole or not at all, whatever step of its creation a crash comes at."""

from __future__ import annotations

from contextlib import suppress

import pytest

from stelae.host.assembly import retention_of
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.log_only import LogOnlyStore
from stelae.host.metadata_files import CrashPoints
from stelae.host.new_replica import LogStart
from stelae.host.settings import TabletSettings
from stelae.host.superblock import DataState, Superblock
from stelae.lifecycle.log_only_creation import LogOnlyCreation
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import Full, NoRows, StelaeError, SyncFailed
from stelae.spi.ids import ZERO, LogId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.scan import ScanSpec
from stelae.spi.wal import Append
from tests.unit.lifecycle.copy_node import CopyNode, FakeNetwork
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, OTHER, SCHEMA, TABLET, DiskNode, row

BASE = OpId(3, 40)
CONFIG = TabletConfig(
    op_id=OpId(3, 38),
    members=(
        Member(node_id=NODE, address="a:1", member_type=MemberType.PRE_WITNESS),
        Member(node_id=NodeId("b" * 32), address="b:1"),
    ),
)
START = LogStart(base=BASE, committed=CONFIG, leader=NodeId("b" * 32), term=BASE.term, had_vote=False)
BLOCK = Superblock(tablet_id=TABLET, store_engine="durable", schemas=(SCHEMA.to_bytes(),))
STEPS = ("witness.after_begin", "witness.after_log", "witness.after_metadata")


class Crash(Exception):
    pass


class CrashAt(CrashPoints):
    def __init__(self, point: str) -> None:
        self.point = point

    def hit(self, point: str) -> None:
        if point == self.point:
            raise Crash


def created(crash: CrashPoints | None = None) -> DiskNode:
    """A node with another tablet that begins to create a replica without rows, up to a crash."""
    node = DiskNode.with_rows(OTHER)
    creation = LogOnlyCreation(node.disk, LAYOUT, BLOCK, START, crash or CrashPoints())
    with suppress(Crash):
        creation.begin()
        creation.create_log(node.wal)
        creation.save_metadata()
        creation.finish()
    return node


def after_power_loss(node: DiskNode) -> DiskNode:
    disk: VirtualDisk = node.disk.clone()
    return DiskNode(disk)


def test_a_replica_without_rows_begins_at_a_committed_entry_in_its_term_with_the_committed_config() -> None:
    node = after_power_loss(created())
    recovered = node.recovered()[TABLET]
    assert recovered.log.log_only and recovered.log.base == recovered.log.last == recovered.applied == BASE
    assert recovered.consensus.hard_state == HardState(term=BASE.term)
    assert recovered.consensus.committed_config == CONFIG
    assert not node.disk.exists(LAYOUT.data_of(TABLET)), "no store engine was opened"


def test_a_witness_keeps_the_log_that_a_voter_lacks_whatever_the_bound() -> None:
    """It collected entries that a voter lacked. When the leader was lost, nobody could catch that voter up."""
    node = after_power_loss(created())
    entries = [Entry(OpId(BASE.term, BASE.index + n), EntryKind.WRITE, n, b"x" * 1_000) for n in range(1, 21)]
    collectable = {}
    for tablet, recovered in node.recovered().items():
        retention = retention_of(recovered, lagging_peer_bytes_max=1)
        retention.appended(entries)
        retention.flushed(entries[-1].op_id.index)
        retention.config_durable(entries[-1].op_id.index)
        collectable[tablet] = retention.collectable()
    assert collectable == {TABLET: BASE.index, OTHER: entries[-1].op_id.index}


@pytest.mark.parametrize("point", STEPS)
def test_a_creation_that_a_crash_cuts_short_leaves_nothing(point: str) -> None:
    node = after_power_loss(created(CrashAt(point)))
    assert node.loader.inspect(TABLET, node.wal.logs()).decision.action is StartupAction.REMOVE
    assert set(node.recovered()) == {OTHER} and not node.loader.failed
    assert node.loader.inspect(TABLET, node.wal.logs()).decision.action is StartupAction.NOTHING
    assert {log.tablet_id for log in node.wal.logs()} == {OTHER}


@pytest.mark.parametrize("point", STEPS)
def test_a_creation_can_be_repeated_after_each_step(point: str) -> None:
    node = created(CrashAt(point))
    creation = LogOnlyCreation(node.disk, LAYOUT, BLOCK, START)
    creation.begin()
    creation.create_log(node.wal)
    creation.save_metadata()
    assert creation.finish().data_state is DataState.READY
    assert node.recovered()[TABLET].log.base == BASE


class FullAt(CrashAt):
    """The disk has no space at a step, once."""

    def hit(self, point: str) -> None:
        if point == self.point:
            self.point = ""
            raise Full("no space")


@pytest.mark.parametrize("log_only", [True, False], ids=["as a witness", "with rows"])
@pytest.mark.parametrize("point", STEPS)
def test_a_node_creates_a_replica_after_an_error_has_cut_a_creation_short_without_a_restart(
    point: str, *, log_only: bool
) -> None:
    """The leader had removed the witness, and added the node as PRE_VOTER: it was refused until the node restarted."""
    node = CopyNode(DiskNode.with_rows(OTHER).disk.clone(), FakeNetwork({}), FullAt(point))
    new = TabletSettings(id=TABLET, schema=SCHEMA, members=())
    ended: list[StelaeError | None] = []
    node.begin_witness(START, ended.append)
    assert isinstance(ended.pop(), Full) and TABLET not in node.hosted
    if log_only:
        node.begin_witness(START, ended.append)
    else:
        node.manager.create(new, ended.append)
    node.pass_all_time()
    assert ended == [None]
    made = CopyNode(node.disk.clone(), FakeNetwork({})).recovered[TABLET]
    assert made.superblock.log_only is log_only and made.log.base == (BASE if log_only else ZERO)
    assert made.consensus.hard_state == HardState(term=BASE.term if log_only else 0)


@pytest.mark.parametrize("log_only", [True, False], ids=["as a witness", "with rows"])
def test_a_creation_is_completed_whose_superblock_was_written_and_could_not_be_synced(*, log_only: bool) -> None:
    """It was neither a replica nor failed, and each repetition was refused until the node restarted."""
    node = CopyNode(DiskNode.with_rows(OTHER).disk.clone(), FakeNetwork({}))
    new = TabletSettings(id=TABLET, schema=SCHEMA, members=(Member(node_id=NODE, address="a:1"),))
    ended: list[StelaeError | None] = []
    syncs = []

    def create() -> None:
        if log_only:
            node.begin_witness(START, ended.append)
        else:
            node.manager.create(new, ended.append)

    def fails(operation: str, path: str) -> None:
        if operation == "sync_directory" and path.endswith("tablet-meta"):
            syncs.append(path)
            if len(syncs) == 1 + log_only:  # A witness has a superblock from the beginning on.
                raise SyncFailed("input/output error", path=path)

    node.disk.faults.hook = fails
    create()
    assert isinstance(ended.pop(), SyncFailed) and TABLET not in node.hosted
    create()
    assert ended == [None] and TABLET in node.hosted and len(syncs) == 2 + log_only, "the superblock is written again"
    made = CopyNode(node.disk.clone(), FakeNetwork({})).recovered[TABLET]
    assert made.superblock.log_only is log_only


def test_committed_entries_are_passed_over_and_never_decoded() -> None:
    node = created()
    entries = (row(41, term=3), row(42, term=3), row(43, term=4))
    metadata = ConsensusMetadata(node.disk, LAYOUT, TABLET)
    metadata.save(HardState(4, None), metadata.load().committed_config)
    node.wal.commit({LogId(TABLET, 1): Append(entries=entries, commit_hint=42)}, sync=True)
    recovered = after_power_loss(node).recovered()[TABLET]
    assert recovered.log.last == OpId(4, 43) and recovered.applied == OpId(3, 42)
    assert recovered.timestamp == entries[1].timestamp
    assert recovered.results.dump() == ResultsTable().dump(), "others know what the clients were answered"


def test_the_stand_in_for_a_store_is_flushed_by_the_bytes_that_it_was_passed() -> None:
    store = LogOnlyStore(SCHEMA, BASE)
    assert store.flush() is None and store.memory_bytes() == 0
    entries = [row(41, term=3), row(42, term=3)]
    store.passed(entries)
    assert store.applied == OpId(3, 42) and store.passed_bytes == sum(entry.size_bytes for entry in entries)
    assert store.memory_bytes() == 0, "the entries are in the log, and not in the memory of the node"
    edit = store.flush()
    assert edit is not None and (edit.flushed, edit.manifest, edit.obsolete) == (OpId(3, 42), b"", ())
    store.commit(edit)
    assert store.flush() is None and store.passed_bytes == 0 and store.compact() is None


def test_reads_of_a_replica_without_rows_say_so() -> None:
    store = LogOnlyStore(SCHEMA, BASE)
    for read in (
        lambda: store.scan(ScanSpec()),
        lambda: store.diff(0, 1, ScanSpec()),
        lambda: store.checksum(),
        lambda: store.export(),
        lambda: store.snapshot(),
        lambda: store.import_(iter(()), BASE),
        lambda: store.apply([]),
    ):
        with pytest.raises(NoRows, match="keeps the log and has no rows; ask another replica"):
            read()
