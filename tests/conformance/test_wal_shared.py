"""The shared log engine holds to the log contract, on the virtual disk and on a real one.

Below it, the suite itself is put to the test: engines with one planted bug each, and the check that
has to find it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stelae.host.log_writer import LogWriter
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.ids import OpId
from stelae.spi.services import Buffer
from stelae.spi.wal import WalEngine
from stelae.testing.begun_commits import with_begun_commits
from stelae.testing.conformance.wal import WalBasics, WalBehaviour, WalConformance, WalScale
from stelae.testing.wal_harness import RealHarness, VirtualHarness, WalHarness
from stelae_wal_shared import (
    SharedConfig,
    SharedWal,
    collection,
    control_records,
    format,
    group,
    marker,
    reader,
    replay,
    scan,
    tail,
)
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.fast import FastSharedWal
from stelae_wal_shared.recovery import _NodeLogRecovery
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.writer import SharedWriter
from tests.conformance import wal_plants

SMALL = SharedConfig(segment_bytes_first=8192, segment_bytes_max=20480, prewrite_bytes_min=20480)
"""Small segments, so that every scenario rolls, and from the second on into space that was written with zeros. A
head takes 8 KiB, and a smaller segment would grow beyond what was written."""

RESTLESS = SharedConfig(
    segment_bytes_first=4096, segment_bytes_max=8192, live_percent_max=90, move_percent_max=1000, move_bytes_max=4096
)
"""Every collection moves entries, so that every scenario finds them in other places."""


class TestOnVirtualDisk(WalConformance):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(SharedWal, SMALL)


class TestBegunOnVirtualDisk(WalBehaviour):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(with_begun_commits(FastSharedWal), SMALL)


class TestMovingOnVirtualDisk(WalConformance):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(SharedWal, RESTLESS)


class TestOnRealDisk(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(SharedWal, str(tmp_path), SMALL)


class TestScale(WalScale):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(SharedWal, str(tmp_path))


# -- the suite bites -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """Functions that are replaced, by owner and name, and the check that has to fail because of it."""

    planted: Sequence[tuple[Any, str, Callable[..., Any]]]
    check: Callable[[WalConformance, VirtualHarness], None]
    config: SharedConfig = SMALL
    engine: type[WalEngine] = SharedWal


_pwritev = VirtualFile.pwritev
_write_control = control_records.write_control
_note_newest = marker.SharedMarker.note_newest
_decode_record = group.decode_record
_move = SharedTabletLog.move
_apply = replay.RecordReplay._apply


def _does_not_sync(self: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
    return _pwritev(self, buffers, offset)


def _syncs_no_name(self: VirtualDisk, path: str) -> None:
    return None


def _believes_any_body(data: bytes, offsets: array[int], nonce: int, log: int, first: int, path: str) -> object:
    found = []
    for index, offset in enumerate(offsets, first):
        at = offset - offsets[0]
        record = _decode_record(data, at, format.salt_of(nonce))
        if record is None:
            found.append(group.decode_entry(data, at, nonce, log, index, path, offset))
            continue
        body = data[at + format.RECORD_BYTES : at + format.RECORD_BYTES + record.size]
        op_id = OpId(record.term, record.index)
        found.append(group.Entry(op_id, group.EntryKind(record.entry_kind), record.timestamp, body))
    return found


def _takes_damage_for_a_tail(self: Any, *place: int) -> bool:
    return False


def _takes_any_sector_for_blank(self: Any, *place: int) -> bool:
    return True


def _applies_a_move_as_an_append(self: replay.RecordReplay, log: SharedTabletLog, record: format.SharedRecord) -> None:
    kind = format.RecordKind.ENTRY if record.kind == format.RecordKind.MOVED else record.kind
    _apply(self, log, record._replace(kind=kind))


def _brings_the_suffix_along(self: SharedTabletLog, first: int, end: int, segment: Any) -> None:
    """A move that takes all for the log's that its old segment had, replaced or not."""
    _move(self, first, end, segment)
    self.last = OpId(self.last.term, self.last.index + 1)
    self.extents[-1].end += 1


def _collects_what_lives(self: collection.SegmentCollector) -> None:
    state = self._state
    for segment in [one for one in state.segments.values() if one.number != state.newest]:
        state.remove(segment)
        with suppress(FileNotFoundError):
            state.files.remove(segment.path)


def _forgets_the_base(state: Any, tail: Any, committer: Any, log: SharedTabletLog, kind: Any, *rest: Any) -> None:
    if kind != format.RecordKind.BASE:
        _write_control(state, tail, committer, log, kind, *rest)


def _fails_everybody(self: Committer, error: Any, logs: list[SharedTabletLog]) -> Any:
    return _fail_all(self, error, list(self._state.logs.values()))


_fail_all = Committer.fail_all


def _forgives_everything(self: SharedWal, log: Any) -> OpId:
    known = self._state.known(log)
    known.failed = None
    return known.durable


def _goes_on_where_it_was(self: Committer, logs: list[SharedTabletLog]) -> None:
    return None


def _claims_nothing(self: SharedWriter, size: int) -> None:
    return None


def _proves_nothing(self: _NodeLogRecovery, *args: Any, **options: Any) -> None:
    return None


def _settles_without_sync(self: tail.LogTail) -> None:
    self._state.mark_all_durable()
    if self.writer is not None:
        self.writer.synced = self.writer.end


def _notes_no_end(self: marker.SharedMarker, number: int, end: int = 0) -> None:
    _note_newest(self, number)


def _draws_one_nonce(self: marker.SharedMarker) -> int:
    return 7


Suite = WalConformance

BUGS = {
    "commit returns before the sync": Bug(
        [(VirtualFile, "pwritev", _does_not_sync)],
        Suite.test_a_crash_at_any_operation_keeps_acknowledged_entries,
    ),
    "a failed sync is repeated once": Bug(
        wal_plants.repeated_syncs(),
        Suite.test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other,
    ),
    "the name of a new segment is not synced": Bug(
        [(VirtualDisk, "sync_directory", _syncs_no_name)],
        Suite.test_a_crash_at_any_operation_keeps_acknowledged_entries,
    ),
    "bodies are not checked": Bug(
        [(reader, "decode_entries", _believes_any_body)],
        Suite.test_a_flipped_bit_in_a_closed_log_is_reported_or_harms_nothing,
    ),
    "damage is taken for a tail": Bug(
        [(scan._SharedScan, "_was_whole", _takes_damage_for_a_tail)],
        Suite.test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing,
    ),
    "the last group is taken for a tail": Bug(
        [(scan._SharedScan, "_has_blank_sector", _takes_any_sector_for_blank)],
        Suite.test_a_flipped_bit_in_the_last_group_of_a_killed_engine_is_reported_or_harms_nothing,
    ),
    "a moved entry voids what follows it": Bug(
        [(replay.RecordReplay, "_apply", _applies_a_move_as_an_append)],
        Suite.test_random_histories_lose_nothing_and_bring_nothing_back,
        RESTLESS,
    ),
    "a move brings a replaced suffix back": Bug(
        [(SharedTabletLog, "move", _brings_the_suffix_along)],
        Suite.test_random_histories_lose_nothing_and_bring_nothing_back,
        RESTLESS,
    ),
    "segments go that are needed": Bug(
        [(collection.SegmentCollector, "sweep", _collects_what_lives)],
        Suite.test_collection_keeps_later_entries_and_remembers_the_base,
    ),
    "the base is not durable before removal": Bug(
        [(collection, "write_control", _forgets_the_base)],
        Suite.test_a_crash_at_any_operation_keeps_acknowledged_entries,
    ),
    "what has begun is shown": Bug(
        [(FastSharedWal, "begin", wal_plants.shows_what_has_begun(FastSharedWal))],
        Suite.test_a_begun_commit_is_not_visible_before_it_is_finished, engine=FastSharedWal,
    ),
    "the failure of a begun write is forgotten": Bug(
        [(FastSharedWal, "begin", wal_plants.forgets_the_failure(FastSharedWal))],
        Suite.test_a_write_that_fails_fails_its_logs_for_good, engine=FastSharedWal,
    ),
    "a begun commit is not synced": Bug(
        [(FastSharedWal, "begin", wal_plants.begins_without_sync(FastSharedWal))],
        Suite.test_a_crash_during_a_begun_commit_leaves_a_prefix_of_the_group, engine=FastSharedWal,
    ),
    "a part of a group is begun": Bug(
        [(FastSharedWal, "begin", wal_plants.begins_what_does_not_fit(FastSharedWal))],
        Suite.test_a_refused_group_is_not_begun_and_changes_nothing, engine=FastSharedWal,
    ),
    "a log that is refused fails its neighbours": Bug(
        [(SharedWal, "commit", wal_plants.fails_the_neighbours(SharedWal))],
        Suite.test_appends_that_do_not_fit_are_refused_and_change_nothing,
    ),
    "a failed sync fails logs that were not written": Bug(
        [(Committer, "fail_all", _fails_everybody)],
        Suite.test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other,
    ),
    "repair forgives a failed sync": Bug(
        [(SharedWal, "repair", _forgives_everything)],
        Suite.test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other,
    ),
    "what a full disk cut short is left where it is": Bug(
        [(SharedWriter, "claim", _claims_nothing), (Committer, "close_full_segment", _goes_on_where_it_was)],
        Suite.test_repair_on_a_disk_that_is_still_full_fails_and_can_be_repeated,
    ),
    "entries take the space that a full disk is freed with": Bug(
        [(SharedWriter, "claim", _claims_nothing)],
        Suite.test_collecting_and_dropping_free_a_disk_that_appends_have_filled,
    ),
    "an end that was read is taken for durable": Bug(
        [(_NodeLogRecovery, "_settle", _proves_nothing)],
        Suite.test_entries_visible_after_a_failed_sync_are_durable_before_others_follow,
    ),
    "a footer is written before what it vouches for is durable": Bug(
        [(tail.LogTail, "sync", _settles_without_sync)],
        Suite.test_a_crash_may_lose_a_suffix_of_unsynced_entries_but_none_before_a_sync,
    ),
    "a closed log does not know its length": Bug(
        [(marker.SharedMarker, "note_newest", _notes_no_end)],
        Suite.test_a_cut_file_of_a_closed_log_is_reported,
    ),
    "a stale segment is recycled": Bug(
        [*wal_plants.UsedSpace().plants(), (marker.SharedMarker, "draw_nonce", _draws_one_nonce)],
        Suite.test_a_log_under_a_reused_name_shows_no_entry_of_the_earlier_log,
    ),
    "of those who wait the first is told": Bug(
        [(LogWriter, "_settle", wal_plants.tells_the_first_waiter)],
        Suite.test_a_failure_reaches_every_waiter_of_its_log_and_no_other_log,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    for owner, attribute, replacement in bug.planted:
        assert callable(getattr(owner, attribute)), "the bug no longer applies"
        monkeypatch.setattr(owner, attribute, replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        bug.check(WalConformance(), VirtualHarness(bug.engine, bug.config))
    print(f"{name}: {bug.check.__name__}: {str(caught.value)[:100]}")
