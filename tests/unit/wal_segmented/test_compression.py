"""Compressed bodies are read back as they were given, and nothing else passes for them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae.spi.wal import Append
from stelae.testing.conformance.wal import WalConformance
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, commit, entries
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.compression import Codec, Compressor, compressor_of, expand
from stelae_wal_segmented.format import END_MARK_BYTES, ENTRY_HEADER_BYTES, ENTRY_LEAD, pack_entry, salt_of
from stelae_wal_segmented.group import decode_entry, encode_group
from stelae_wal_segmented.index import LEADS

NAMES = ["lz4", "zstd"]
BODIES = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=9), st.integers(1, 2000)),
)


Suite = WalConformance

CHECKS = [
    Suite.test_entries_of_several_groups_come_back_in_order,
    Suite.test_extreme_op_ids_kinds_and_sizes_are_kept,
    Suite.test_an_entry_of_the_maximum_size_is_kept_and_a_larger_one_refused,
    Suite.test_reads_give_only_the_winner_of_each_index,
    Suite.test_a_read_gives_at_least_one_entry_and_stops_at_its_bytes,
    Suite.test_a_snapshot_stands_still,
    Suite.test_a_crash_at_any_operation_keeps_what_was_acknowledged,
    Suite.test_a_group_torn_into_sectors_leaves_a_prefix_of_it,
    Suite.test_what_was_replaced_never_comes_back,
    Suite.test_a_flipped_bit_in_a_closed_log_is_reported_or_harms_nothing,
    Suite.test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing,
    Suite.test_a_full_disk_fails_the_log_until_there_is_space_and_loses_nothing,
    Suite.test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other,
    Suite.test_random_histories_lose_nothing_and_bring_nothing_back,
]
"""What the contract asks that does not count bytes: compressed bodies have fewer than the suite wrote."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_log_with_compressed_bodies_holds_to_the_contract(
    check: Callable[[WalConformance, VirtualHarness], None],
) -> None:
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192, compression="lz4", compress_bytes_min=64)
    check(WalConformance(), VirtualHarness(SegmentedWal, config))


@pytest.mark.parametrize("name", NAMES)
@given(body=BODIES)
def test_a_body_comes_back_and_never_takes_more_space(name: str, body: bytes) -> None:
    codec, stored = Compressor(name, 64).shrink(body)
    assert len(stored) <= len(body)
    assert (codec is Codec.NONE) == (stored is body)
    assert expand(codec, stored, "p", 0) == body


def test_without_compression_there_is_no_compressor() -> None:
    assert compressor_of("none", 64) is None


@pytest.mark.parametrize("name", NAMES)
def test_bodies_that_are_small_or_do_not_shrink_are_stored_as_they_are(name: str) -> None:
    compressor = Compressor(name, 100)
    for body in (b"a" * 99, bytes(range(256)) + os.urandom(4000)):
        assert compressor.shrink(body) == (Codec.NONE, body)
    codec, stored = compressor.shrink(b"a" * 100)
    assert codec is Codec[name.upper()]
    assert len(stored) < 60


def stored_with(name: str, body: bytes, size: int | None = None, checksum: int | None = None) -> tuple[Codec, bytes]:
    """A compressed body whose own words about it may be other ones."""
    codec, stored = Compressor(name, 1).shrink(body)
    said = struct.pack("<II", len(body) if size is None else size, crc32c(body) if checksum is None else checksum)
    return codec, said + stored[8:]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 4999, 5001, 6000, ENTRY_BYTES_MAX + 1, (1 << 32) - 1])
def test_a_body_of_another_length_than_it_says_is_corrupt(name: str, size: int) -> None:
    codec, stored = stored_with(name, b"a" * 5000, size=size)
    with pytest.raises(Corrupt, match="p@77"):
        expand(codec, stored, "p", 77)


@pytest.mark.parametrize("size", [ENTRY_BYTES_MAX + 1, (1 << 32) - 1, 255 * 40])
def test_a_length_that_cannot_be_is_refused_before_a_byte_is_reserved_for_it(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, stored = stored_with("lz4", b"a" * 5000, size=size)

    def reserve(codec: Codec) -> object:
        raise AssertionError("it went on to decompress")

    monkeypatch.setattr("stelae_wal_segmented.compression._libraries.codec", reserve)
    with pytest.raises(Corrupt, match=f"cannot be a body of {size}"):
        expand(codec, stored, "p", 0)


@pytest.mark.parametrize("name", NAMES)
def test_what_expands_to_something_else_is_corrupt(name: str) -> None:
    codec, stored = stored_with(name, b"a" * 5000, checksum=1)
    with pytest.raises(Corrupt, match="something else"):
        expand(codec, stored, "p", 0)
    for cut in range(len(stored)):
        with pytest.raises(Corrupt):
            expand(codec, stored[:cut], "p", 0)


@given(st.binary(max_size=200), st.sampled_from([Codec.LZ4, Codec.ZSTD]))
def test_garbage_does_not_expand(data: bytes, codec: Codec) -> None:
    with pytest.raises(Corrupt):
        expand(codec, data, "p", 0)


def test_an_unknown_codec_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(Corrupt, match=r"p@5: compression 9 is unknown; known are 0 \(none\), 1 \(lz4\), 2 \(zstd\)"):
        expand(9, b"x", "p", 5)
    salt = salt_of(1)
    raw = pack_entry(ENTRY_LEAD, EntryKind.WRITE, 9, 1, crc32c(b"x", salt), 1, 1, 0)
    data = raw + crc32c(raw, salt).to_bytes(4, "little") + b"x"
    with pytest.raises(Corrupt, match="compression 9"):
        decode_entry(data, 0, 1, "p", 0)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_whose_stored_bytes_have_any_bit_flipped_is_refused(name: str) -> None:
    body = b"the same again and " * 40
    entry = Entry(OpId(1, 1), EntryKind.WRITE, 5, body)
    group = encode_group(
        [entry], nonce=3, at=0, synced=0, replace_from=None, commit_hint=0, compressor=Compressor(name, 64)
    )
    raw = b"".join(group.buffers)[:-END_MARK_BYTES]
    start = group.offsets[0] & ~LEADS
    assert len(raw) < start + ENTRY_HEADER_BYTES + len(body) // 4
    assert decode_entry(raw, start, 3, "p", start) == entry
    for bit in range(8 * start, 8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode_entry(bytes(changed), start, 3, "p", start)


# -- the engine ------------------------------------------------------------------------------------


def harness_with(compression: str, disk: VirtualDisk | None = None) -> VirtualHarness:
    config = SegmentedConfig(compression=compression, compress_bytes_min=64)  # type: ignore[arg-type]
    return VirtualHarness(SegmentedWal, config, disk=disk)


def test_settings_may_change_between_starts_and_everything_stays_readable() -> None:
    harness, held = harness_with("none"), list(entries(1, 12, size_bytes=900))
    for turn, name in enumerate(("none", "lz4", "zstd", "none")):
        harness = harness_with(name, harness.disk)
        engine = harness.open()
        if not turn:
            engine.create(LOG, ZERO)
        commit(engine, Append(entries=tuple(held[3 * turn : 3 * turn + 3])))
        assert engine.read(LOG, 1, 3 * turn + 4, READ_BYTES) == held[: 3 * turn + 3]
        engine.close()
        harness.crash(engine)


@pytest.mark.parametrize("name", NAMES)
def test_a_compressed_log_is_smaller_and_its_reads_are_bounded_by_what_comes_out(name: str) -> None:
    sizes: dict[str, int] = {}
    for setting in ("none", name):
        harness = harness_with(setting)
        engine = harness.open()
        engine.create(LOG, ZERO)
        held = entries(1, 50, size_bytes=10_000)
        commit(engine, Append(entries=held))
        assert engine.read(LOG, 1, 51, 1) == [held[0]]
        found = engine.read(LOG, 1, 51, 35_000)
        assert found == list(held[: len(found)])
        assert 2 <= len(found) <= 3
        engine.close()
        sizes[setting] = sum(len(data) for data in harness.tree().values())
    assert sizes[name] < sizes["none"] // 10


def test_a_crash_recovers_compressed_entries_without_expanding_them(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_with("zstd")
    engine = harness.open()
    engine.create(LOG, ZERO)
    held = entries(1, 30, size_bytes=2000)
    commit(engine, Append(entries=held))
    harness.crash(engine)

    def refuse(*_: object) -> Iterator[bytes]:
        raise AssertionError("recovery expanded a body")

    with monkeypatch.context() as patch:
        patch.setattr("stelae_wal_segmented.group.expand", refuse)
        engine = harness.open()
        assert engine.logs()[LOG].last == OpId(1, 30)
    assert engine.read(LOG, 1, 31, READ_BYTES) == list(held)
    engine.close()
