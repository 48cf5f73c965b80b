"""The segmented log engine holds to the log contract, on the virtual disk and on a real one.

Below it, the suite itself is put to the test: engines with one planted bug each, and the check that
has to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stelae.host.log_writer import LogWriter
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.ids import ZERO
from stelae.spi.services import Buffer
from stelae.spi.wal import WalEngine
from stelae.testing.begun_commits import with_begun_commits
from stelae.testing.conformance.wal import WalBasics, WalBehaviour, WalConformance, WalScale
from stelae.testing.conformance.wal_collection import GROUPS, append_and_collect
from stelae.testing.wal_harness import RealHarness, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG
from stelae_wal_segmented import (
    SegmentedConfig,
    SegmentedWal,
    active_segment,
    group,
    log,
    reader,
    recovery,
    scan,
    segment,
    writer,
)
from stelae_wal_segmented.base_file import BaseRecord
from stelae_wal_segmented.decisions import SegmentFinding
from stelae_wal_segmented.fast import FastSegmentedWal, kept_files
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.marker import NonceSource
from tests.conformance import wal_plants

SEGMENT_BYTES_MAX = 8192
SMALL = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=SEGMENT_BYTES_MAX, prewrite_bytes_min=8192)
"""Small segments, so that every scenario rolls, from the second on into space that was written with zeros. With the
fast engine, a scenario that collects rolls into the files of collected segments too."""


class TestOnVirtualDisk(WalConformance):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(SegmentedWal, SMALL)


class TestBegunOnVirtualDisk(WalBehaviour):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(with_begun_commits(FastSegmentedWal), SMALL)


class TestOnRealDisk(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(SegmentedWal, str(tmp_path), SMALL)


def test_a_log_that_is_collected_as_it_goes_really_uses_space_again() -> None:
    engine = VirtualHarness(FastSegmentedWal, SMALL).open()
    engine.create(LOG, ZERO)
    append_and_collect(engine, GROUPS)
    assert engine.stats()["segments_reused"] >= 4
    engine.close()


class TestScale(WalScale):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(SegmentedWal, str(tmp_path))


# -- the suite bites -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """A named replacement of one function, and the check that has to fail because of it.

    ``beside`` holds replacements that are harmless by themselves, and without which the bug would not show; ``engine``
    is the kind of engine that has the function."""

    owner: Any
    name: str
    replacement: Callable[..., Any]
    check: Callable[[WalConformance, VirtualHarness], None]
    beside: Sequence[tuple[Any, str, Callable[..., Any]]] = ()
    engine: type[WalEngine] = SegmentedWal


_pwritev = VirtualFile.pwritev
_write = writer.SegmentWriter.write
_replace = SegmentIndex.replace
_decode_entry_header = scan.decode_entry_header


def _does_not_sync(self: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
    return _pwritev(self, buffers, offset)


def _believes_any_body(data: bytes, start: int, nonce: int, path: str, file_offset: int) -> object:
    salt = group.salt_of(nonce)
    header = _decode_entry_header(data[start : start + 40], salt)
    assert header is not None
    body = data[start + 40 : start + 40 + header.size]
    return group.Entry(header.op_id, group.EntryKind(header.kind), header.timestamp, body)


def _takes_any_sector_for_blank(self: Any, *place: Any) -> bool:
    return True


def _cuts_whatever_is_invalid(found: scan.SegmentScan) -> SegmentFinding:
    return SegmentFinding.TORN


def _voids_only_in_memory(self: SegmentIndex, from_index: int) -> None:
    _replace(self, max(from_index, self.first))


def _leaves_the_tail(file: object, header: object, found: scan.SegmentScan) -> None:
    return None


def _writes_no_base(self: log.TabletLog, base: BaseRecord) -> None:
    self.base = base


def _goes_on_after_any_failure(self: log.TabletLog) -> object:
    self.failed = None
    return self.durable


def _settles_nothing(self: log.TabletLog) -> None:
    return None


def _trusts_a_failed_write(self: writer.SegmentWriter, given: group.EncodedGroup, *, sync: bool) -> None:
    with suppress(writer.Full):
        _write(self, given, sync=sync)


def _syncs_no_name(self: VirtualDisk, path: str) -> None:
    return None


def _forgets_to_void_earlier_segments(self: segment.SegmentChain, from_index: int) -> None:
    self.runs.cut(from_index)


def _notes_no_end(self: log.TabletLog) -> None:
    return None


def _puts_the_sync_off(self: writer.SegmentWriter) -> None:
    return None


def _collects_too_much(self: segment.SegmentChain, upto: int, last: int) -> tuple[int, int]:
    closed = [one for one in self.segments if one.closed]
    return len(closed), last if len(closed) == len(self.segments) else self.segments[-1].first - 1


_draw = NonceSource.draw


def _draws_one_nonce(self: NonceSource, purpose: str) -> int:
    return _draw(self, purpose) if purpose.endswith("/new") else 7


_note = kept_files.ReusedFile._note
_adopt = active_segment.ActiveSegment._adopt


def _nobody_reads(self: segment.Segment) -> bool:
    return False


def _notes_only_in_memory(self: kept_files.ReusedFile, file: VirtualFile, wanted: Callable[[], bool]) -> None:
    table = file.pread(SEGMENT_BYTES_MAX, 0)
    _note(self, file, wanted)
    file.pwritev([table[: self.space.data_start]], 0)
    file.sync()


def _without_sync(function: Callable[..., Any]) -> Callable[..., Any]:
    def planted(*args: Any, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(VirtualFile, "sync", lambda file, *, data_only=False: None)
            return function(*args, **options)

    return planted


(_, _, _pwritev_again), (_, _, _sync_again) = wal_plants.repeated_syncs()
_notes_without_sync = _without_sync(_note)
_adopts_without_sync = _without_sync(_adopt)


Suite = WalConformance

BUGS = {
    "commit returns before the sync": Bug(
        VirtualFile, "pwritev", _does_not_sync,
        Suite.test_a_crash_at_any_operation_keeps_acknowledged_entries,
    ),
    "bodies are not checked": Bug(
        reader, "decode_entry", _believes_any_body,
        Suite.test_a_flipped_bit_in_a_closed_log_is_reported_or_harms_nothing,
    ),
    "damage is taken for a tail": Bug(
        recovery, "judge_last", _cuts_whatever_is_invalid,
        Suite.test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing,
    ),
    "the last group is taken for a tail": Bug(
        scan._ScanWindow, "has_blank_sector", _takes_any_sector_for_blank,
        Suite.test_a_flipped_bit_in_the_last_group_of_a_killed_engine_is_reported_or_harms_nothing,
    ),
    "a replacement does not reach below its segment": Bug(
        SegmentIndex, "replace", _voids_only_in_memory,
        Suite.test_a_read_returns_only_the_newest_entry_of_each_index,
    ),
    "a replacement does not void earlier segments": Bug(
        segment.SegmentChain, "void_from", _forgets_to_void_earlier_segments,
        Suite.test_a_read_returns_only_the_newest_entry_of_each_index,
    ),
    "the tail is left where it is": Bug(
        recovery, "_make_end_durable", _leaves_the_tail,
        Suite.test_a_write_cut_at_any_byte_leaves_every_earlier_entry_and_a_clean_end,
    ),
    "the base is not durable before removal": Bug(
        log.TabletLog, "write_base", _writes_no_base,
        Suite.test_collection_keeps_later_entries_and_remembers_the_base,
    ),
    "repair forgives a failed sync": Bug(
        log.TabletLog, "repair", _goes_on_after_any_failure,
        Suite.test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other,
    ),
    "a failed sync is repeated once": Bug(
        VirtualFile, "sync", _sync_again,
        Suite.test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other,
        beside=[(VirtualFile, "pwritev", _pwritev_again)],
    ),
    "repair leaves what a full disk cut short": Bug(
        log.TabletLog, "_settle_after_full", _settles_nothing,
        Suite.test_a_full_disk_fails_the_log_until_there_is_space_and_loses_nothing,
        beside=[(log.TabletLog, "_cut_unsynced", _settles_nothing)],
    ),
    "a write that did not fit is acknowledged": Bug(
        writer.SegmentWriter, "write", _trusts_a_failed_write,
        Suite.test_a_full_disk_fails_the_log_until_there_is_space_and_loses_nothing,
    ),
    "the name of a new segment is not synced": Bug(
        VirtualDisk, "sync_directory", _syncs_no_name,
        Suite.test_a_crash_at_any_operation_keeps_acknowledged_entries,
    ),
    "a footer is written before what it vouches for is durable": Bug(
        writer.SegmentWriter, "sync", _puts_the_sync_off,
        Suite.test_a_crash_while_closing_loses_only_unsynced_entries,
    ),
    "a closed log does not know its length": Bug(
        log.TabletLog, "_note_end", _notes_no_end,
        Suite.test_a_cut_file_of_a_closed_log_is_reported,
    ),
    "collection takes what is above": Bug(
        segment.SegmentChain, "collectable", _collects_too_much,
        Suite.test_collection_keeps_later_entries_and_remembers_the_base,
    ),
    "a stale segment is recycled": Bug(
        NonceSource, "draw", _draws_one_nonce,
        Suite.test_a_log_under_a_reused_name_shows_no_entry_of_the_earlier_log, beside=wal_plants.UsedSpace().plants(),
    ),
    "collected space is used again under the nonce it had": Bug(
        NonceSource, "draw", _draws_one_nonce,
        Suite.test_a_crash_while_a_log_is_written_and_collected_keeps_acknowledged_entries, engine=FastSegmentedWal,
    ),
    "collected space is used again while a view reads it": Bug(
        segment.Segment, "has_readers", _nobody_reads,
        Suite.test_a_snapshot_stays_readable_while_its_entries_are_collected, engine=FastSegmentedWal,
    ),
    "what stood in collected space is not on the disk": Bug(
        kept_files.ReusedFile, "_note", _notes_only_in_memory,
        Suite.test_a_crash_while_a_log_is_written_and_collected_keeps_acknowledged_entries, engine=FastSegmentedWal,
    ),
    "what stood in collected space is durable after its first group": Bug(
        kept_files.ReusedFile, "_note", _notes_without_sync,
        Suite.test_a_crash_while_a_log_is_written_and_collected_keeps_acknowledged_entries,
        beside=[(active_segment.ActiveSegment, "_adopt", _adopts_without_sync)], engine=FastSegmentedWal,
    ),
    "what has begun is shown": Bug(
        FastSegmentedWal, "begin", wal_plants.shows_what_has_begun(FastSegmentedWal),
        Suite.test_a_begun_commit_is_not_visible_before_it_is_finished, engine=FastSegmentedWal,
    ),
    "the failure of a begun write is forgotten": Bug(
        FastSegmentedWal, "begin", wal_plants.forgets_the_failure(FastSegmentedWal),
        Suite.test_a_write_that_fails_fails_its_logs_for_good, engine=FastSegmentedWal,
    ),
    "a begun commit is not synced": Bug(
        FastSegmentedWal, "begin", wal_plants.begins_without_sync(FastSegmentedWal),
        Suite.test_a_crash_during_a_begun_commit_leaves_a_prefix_of_the_group, engine=FastSegmentedWal,
    ),
    "a part of a group is begun": Bug(
        FastSegmentedWal, "begin", wal_plants.begins_what_does_not_fit(FastSegmentedWal),
        Suite.test_a_refused_group_is_not_begun_and_changes_nothing, engine=FastSegmentedWal,
    ),
    "a log that is refused fails its neighbours": Bug(
        SegmentedWal, "commit", wal_plants.fails_the_neighbours(SegmentedWal),
        Suite.test_appends_that_do_not_fit_are_refused_and_change_nothing,
    ),
    "of those who wait the first is told": Bug(
        LogWriter, "_settle", wal_plants.tells_the_first_waiter,
        Suite.test_a_failure_reaches_every_waiter_of_its_log_and_no_other_log,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    for owner, attribute, replacement in [*bug.beside, (bug.owner, bug.name, bug.replacement)]:
        assert callable(getattr(owner, attribute)), "the bug no longer applies"
        monkeypatch.setattr(owner, attribute, replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        bug.check(WalConformance(), VirtualHarness(bug.engine, SMALL))
    print(f"{name}: {bug.check.__name__}: {str(caught.value)[:100]}")
