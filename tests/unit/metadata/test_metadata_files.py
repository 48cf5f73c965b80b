"""Metadata files: what is written is read, and whatever else is read is refused by name."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.host.consensus_metadata import (
    CONSENSUS,
    ConfigRegression,
    ConsensusMetadata,
    ConsensusRecord,
    HardStateWriter,
    VoteRegression,
)
from stelae.host.directory_layout import DirectoryLayout, tablet_names
from stelae.host.instance import CLOCK, INSTANCE, ClockCeiling, Instance, format_directory
from stelae.host.metadata_files import HEADER_BYTES, FileKind, MetadataMissing, decode, encode
from stelae.host.superblock import SUPERBLOCK, DataState, PartitionBounds, Superblock, SuperblockFile
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import (
    BadIdentifier,
    Corrupt,
    Foreign,
    Full,
    FutureVersion,
    StelaeError,
    StorageError,
    SyncFailed,
)
from stelae.spi.ids import ZERO, ClusterId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from tests.at_length import times

TABLET = TabletId("t1")
NODE_A, NODE_B = NodeId("a" * 32), NodeId("b" * 32)
CONFIG = TabletConfig(op_id=OpId(1, 1), members=(Member(node_id=NODE_A, address="127.0.0.1:1"),))
BLOCK = Superblock(
    tablet_id=TABLET,
    table_name="rows",
    generation=1 << 40,
    data_state=DataState.COPYING,
    schemas=(b"one", b"two"),
    partition=PartitionBounds(hash_buckets=(3,), key_low=b"\x00", key_high=b"\xff"),
    manifest=b"\x00\x01",
    flushed=OpId(1 << 33, 1 << 35),
    results=b"r",
    tombstone="UNKNOWN",
    quarantine="quarantine/t1.0",
)
RECORDS: list[tuple[FileKind[Any], Any]] = [
    (INSTANCE, Instance(node_id=NODE_A, cluster_id=None, wal_engine="segmented")),
    (CLOCK, ClockCeiling(1 << 60)),
    (SUPERBLOCK, BLOCK),
    (CONSENSUS, ConsensusRecord(tablet_id=TABLET, term=1 << 40, voted_for=NODE_B, committed_config=CONFIG)),
]
KINDS = pytest.mark.parametrize(("kind", "record"), RECORDS, ids=[k.name for k, _ in RECORDS])


def formatted() -> tuple[VirtualDisk, DirectoryLayout]:
    disk, layout = VirtualDisk(), DirectoryLayout("/node")
    instance = Instance(node_id=NODE_A, cluster_id=ClusterId("c"), wal_engine="segmented")
    format_directory(disk, layout, instance)
    return disk, layout


@KINDS
def test_a_record_is_read_back_as_it_was_written(kind: FileKind[Any], record: Any) -> None:
    assert decode(kind, encode(kind, record), "f") == record


@KINDS
def test_every_cut_is_refused_with_the_files_name(kind: FileKind[Any], record: Any) -> None:
    data = encode(kind, record)
    for size in range(len(data)):
        with pytest.raises(Corrupt, match="some/file"):
            decode(kind, data[:size], "some/file")


@KINDS
def test_every_flipped_bit_is_refused(kind: FileKind[Any], record: Any) -> None:
    data = encode(kind, record)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises((Corrupt, Foreign, FutureVersion)):
            decode(kind, bytes(damaged), "f")


@settings(max_examples=times(200))
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((Corrupt, Foreign)):
        decode(SUPERBLOCK, data, "f")


def test_a_body_of_another_shape_is_refused_although_its_checksum_holds() -> None:
    other = FileKind("superblock", SUPERBLOCK.magic, SUPERBLOCK.version, msgspec.msgpack.Decoder(ClockCeiling))
    with pytest.raises(Corrupt, match="cannot be decoded"):
        decode(SUPERBLOCK, encode(other, ClockCeiling(1)), "f")


class Raw(msgspec.Struct):
    name: msgspec.Raw


class Named(msgspec.Struct):
    name: str


@pytest.mark.parametrize("value", [b"\xa2\xff\xff", b"\x91" * 100_000])
def test_a_body_that_is_no_messagepack_of_ours_is_refused(value: bytes) -> None:
    data = encode(FileKind("name", b"NAME", 1, msgspec.msgpack.Decoder(Raw)), Raw(msgspec.Raw(value)))
    with pytest.raises(Corrupt, match="cannot be decoded"):
        decode(FileKind("name", b"NAME", 1, msgspec.msgpack.Decoder(Named)), data, "f")


def test_another_kind_of_file_is_foreign() -> None:
    with pytest.raises(Foreign, match="not a superblock"):
        decode(SUPERBLOCK, encode(CLOCK, ClockCeiling(1)), "f")


def test_a_newer_format_is_refused_with_both_versions() -> None:
    newer = FileKind("clock", CLOCK.magic, CLOCK.version + 1, msgspec.msgpack.Decoder(ClockCeiling))
    with pytest.raises(FutureVersion, match="format 2 is newer than 1"):
        decode(CLOCK, encode(newer, ClockCeiling(1)), "f")


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(Corrupt):
        decode(CLOCK, encode(CLOCK, ClockCeiling(1)) + b"x", "f")


def test_the_header_has_the_documented_length_and_begins_with_the_magic() -> None:
    data = encode(CLOCK, ClockCeiling(0))
    assert HEADER_BYTES == 20
    assert data[:4] == b"STck"


def test_a_missing_file_is_an_error_of_its_own() -> None:
    disk, layout = formatted()
    with pytest.raises(MetadataMissing, match="tablet-meta/t1"):
        SuperblockFile(disk, layout, TABLET).load()


def test_a_full_disk_leaves_the_old_contents() -> None:
    disk, layout = formatted()
    file = SuperblockFile(disk, layout, TABLET)
    file.save(BLOCK)
    disk.faults.capacity_bytes = 0
    with pytest.raises(Full):
        file.save(Superblock(tablet_id=TABLET, generation=1 << 41))
    disk.faults.capacity_bytes = None
    assert SuperblockFile(disk, layout, TABLET).load() == BLOCK


def test_a_superblock_of_an_older_generation_is_refused() -> None:
    disk, layout = formatted()
    SuperblockFile(disk, layout, TABLET).save(BLOCK)
    with pytest.raises(StorageError, match="cannot replace"):
        SuperblockFile(disk, layout, TABLET).save(Superblock(tablet_id=TABLET, generation=1))
    assert SuperblockFile(disk, layout, TABLET).load() == BLOCK


def test_a_file_under_another_tablets_name_is_refused() -> None:
    disk, layout = formatted()
    disk.replace(layout.superblock_of(TabletId("t2")), encode(SUPERBLOCK, BLOCK))
    disk.replace(layout.consensus_of(TabletId("t2")), encode(*RECORDS[3]))
    for file in (SuperblockFile, ConsensusMetadata):
        with pytest.raises(StorageError, match="not of the tablet in its name"):
            file(disk, layout, TabletId("t2")).load()


def test_damaged_metadata_is_never_overwritten() -> None:
    disk, layout = formatted()
    ConsensusMetadata(disk, layout, TABLET).save(HardState(7, NODE_A), CONFIG)
    disk.damage(layout.consensus_of(TABLET), HEADER_BYTES + 2)
    with pytest.raises(Corrupt):
        ConsensusMetadata(disk, layout, TABLET).save(HardState(8, NODE_A), CONFIG)


@pytest.mark.parametrize(
    ("later", "refused"),
    [
        (HardState(5, NODE_A), False),
        (HardState(6, None), False),
        (HardState(6, NODE_B), False),
        (HardState(4, NODE_A), True),
        (HardState(5, NODE_B), True),
        (HardState(5, None), True),
    ],
)
@pytest.mark.parametrize("reopened", [False, True])
def test_terms_and_votes_never_go_back(later: HardState, refused: bool, reopened: bool) -> None:
    disk, layout = formatted()
    metadata = ConsensusMetadata(disk, layout, TABLET)
    metadata.save(HardState(5, NODE_A), CONFIG)
    if reopened:
        metadata = ConsensusMetadata(disk, layout, TABLET)
    if refused:
        with pytest.raises(VoteRegression):
            metadata.save(later, CONFIG)
        later = HardState(5, NODE_A)
    else:
        metadata.save(later, CONFIG)
    assert ConsensusMetadata(disk, layout, TABLET).load().hard_state == later


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("older", [OpId(1, 3), OpId(2, 4), OpId(1, 9)])
def test_an_older_config_never_replaces_a_newer_one(older: OpId, reopened: bool) -> None:
    disk, layout = formatted()
    metadata = ConsensusMetadata(disk, layout, TABLET)
    metadata.save(HardState(3, None), msgspec.structs.replace(CONFIG, op_id=OpId(2, 5)))
    before = disk.read_bytes(layout.consensus_of(TABLET))
    if reopened:
        metadata = ConsensusMetadata(disk, layout, TABLET)
    with pytest.raises(ConfigRegression, match=rf"config {older} would replace config 2\.5") as refused:
        metadata.save(HardState(4, NODE_A), msgspec.structs.replace(CONFIG, op_id=older))
    assert refused.value.code == "CONFIG_REGRESSION"
    assert disk.read_bytes(layout.consensus_of(TABLET)) == before, (
        "term and vote of the refused record are not kept either"
    )
    metadata.save(HardState(4, NODE_A), msgspec.structs.replace(CONFIG, op_id=OpId(2, 5)))  # The same one is no older.


@pytest.mark.parametrize("bad", ["", "../x", "a/b", ".hidden", "a.tmp", "a" * 65, "a\n", "ü"])
def test_a_bad_tablet_id_never_becomes_a_path(bad: str) -> None:
    layout, tablet = DirectoryLayout("/node"), TabletId(bad)
    for path in (layout.superblock_of, layout.consensus_of, layout.data_of):
        with pytest.raises(BadIdentifier):
            path(tablet)


def test_leftovers_of_a_replacement_are_not_tablets() -> None:
    disk, layout = formatted()
    SuperblockFile(disk, layout, TABLET).save(BLOCK)
    for name in (".t1.tmp", "t2.tmp"):
        disk.replace(f"{layout.superblocks}/{name}", b"half")
    assert tablet_names(disk, layout.superblocks) == [TABLET]


class _ByHand:
    """A pool whose work waits until it is run, in order."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Any, Any]] = []

    def run(self, key: str, work: Any, done: Any) -> None:
        self.waiting.append((key, work, done))

    def run_all(self) -> None:
        for _, work, done in self.waiting:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)
        self.waiting.clear()


def test_hard_states_are_reported_durable_only_after_they_are() -> None:
    disk, layout = formatted()
    pool, heard = _ByHand(), list[StelaeError | None]()
    writer = HardStateWriter(disk, layout, pool)
    writer.save(TABLET, HardState(1, NODE_A), CONFIG, heard.append)
    assert heard == [] and not disk.exists(layout.consensus_of(TABLET))
    pool.run_all()
    assert heard == [None]
    survived = disk.crash(random.Random(1))
    assert ConsensusMetadata(survived, layout, TABLET).load().hard_state == HardState(1, NODE_A)


def test_a_failed_hard_state_reaches_its_caller_as_the_typed_error() -> None:
    disk, layout = formatted()
    pool, heard = _ByHand(), list[StelaeError | None]()
    writer = HardStateWriter(disk, layout, pool)
    disk.faults.capacity_bytes = 0
    writer.save(TABLET, HardState(1, None), CONFIG, heard.append)
    pool.run_all()
    assert isinstance(heard[0], Full)


def test_hard_states_of_one_tablet_share_a_key_and_tablets_do_not() -> None:
    disk, layout = formatted()
    pool = _ByHand()
    writer = HardStateWriter(disk, layout, pool)
    for tablet in (TABLET, TabletId("t2"), TABLET):
        writer.save(tablet, HardState(1, None), CONFIG, lambda _: None)
    keys = [key for key, _, _ in pool.waiting]
    assert keys[0] == keys[2] != keys[1]


def test_a_failed_sync_is_told_and_leaves_the_old_or_the_new_record() -> None:
    disk, layout = formatted()
    newer = Superblock(tablet_id=TABLET, generation=1 << 41)
    SuperblockFile(disk, layout, TABLET).save(BLOCK)
    disk.faults.fail_syncs("tablet-meta")
    with pytest.raises(SyncFailed):
        SuperblockFile(disk, layout, TABLET).save(newer)
    survived = disk.crash(random.Random(3))
    assert SuperblockFile(survived, layout, TABLET).load() in (BLOCK, newer)


def test_an_initial_record_has_no_vote() -> None:
    disk, layout = formatted()
    ConsensusMetadata(disk, layout, TABLET).save(HardState(), TabletConfig(op_id=ZERO, members=CONFIG.members))
    record = ConsensusMetadata(disk, layout, TABLET).load()
    assert record.hard_state == HardState(0, None)
