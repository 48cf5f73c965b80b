"""The checks of the LMDB log engine are put to the test: engines with one planted bug each, and the check
that has to find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stelae.host.log_writer import LogWriter
from stelae.spi.errors import Full, SyncFailed
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Durable, Failed
from stelae_shared.lmdb_files import marker
from stelae_wal_lmdb import LmdbWal, append, engine, format, reader, removal, startup, walk
from stelae_wal_lmdb.check import EnvironmentReport
from stelae_wal_lmdb.environment import LogEnvironment
from tests.conformance import lmdb_disk, wal_plants
from tests.conformance.lmdb_disk import LmdbHarness
from tests.conformance.test_wal_lmdb import LmdbChecks


@dataclass(frozen=True)
class Bug:
    """A named replacement of one function, and the check that has to fail because of it."""

    owner: Any
    name: str
    replacement: Any
    check: Callable[..., None]


@dataclass(frozen=True)
class ChildBug:
    """A function that plants a bug in the children that live and judge, and the check that has to fail for it."""

    plant: Callable[[], None]
    check: Callable[..., None]


def _forgets_the_last_entry(txn: Any, fit: append.AcceptedAppend) -> None:
    for one in fit.append.entries[:-1]:
        at = format.key(fit.log.number, one.op_id.index)
        txn.put(at, format.encode_entry(at, one))
    txn.put(format.key(format.NAMESPACE, fit.log.number), format.encode_record(fit.log.number, fit.record))


def _believes_any_body(at: Any, data: Any) -> object:
    head = format.decode_head(at, data)
    assert head is not None
    body = bytes(data[format.HEAD_BYTES :])
    return format.Entry(OpId(head.term, format.split_key(at)[1]), format.EntryKind(head.kind), head.timestamp, body)


def _leaves_the_old_suffix(txn: Any, fit: append.AcceptedAppend) -> None:
    for one in fit.append.entries:
        at = format.key(fit.log.number, one.op_id.index)
        txn.put(at, format.encode_entry(at, one))
    txn.put(format.key(format.NAMESPACE, fit.log.number), format.encode_record(fit.log.number, fit.record))


def _commits_each_by_itself(env: LogEnvironment, fits: Any) -> None:
    for fit in fits:
        _append_all(env, [fit])


_append_all = append.append_all


def _appends_again(env: LogEnvironment, fits: Any) -> None:
    try:
        _append_all(env, fits)
    except SyncFailed:
        env._env.error = None  # The system has told of the failure, and does so once.
        _append_all(env, fits)


def _voids_before_it_puts(env: LogEnvironment, fits: Any) -> None:
    """The old suffix goes in a transaction of its own."""
    with env.write() as txn:
        for fit in fits:
            for index in range(fit.append.replace_from or 1 << 40, fit.log.record.last.index + 1):
                txn.delete(format.key(fit.log.number, index))
    _append_all(env, fits)


def _forgets_the_hint(record: format.LogRecord, given: Any, before: OpId) -> format.LogRecord:
    return dataclasses.replace(_record_after(record, given, before), commit_hint=record.commit_hint)


_record_after = append._record_after


def _fails_them_all(self: LmdbWal, fits: Any) -> Any:
    try:
        append.append_all(self._writable(), fits)
    except Full as error:
        return {fit.log.name: Failed(error, fit.log.last) for fit in fits}
    return {fit.log.name: Durable(fit.record.last) for fit in fits}


@contextmanager
def _lends_nothing(self: LogEnvironment) -> Iterator[None]:
    yield


@contextmanager
def _keeps_its_transaction(self: LogEnvironment) -> Iterator[Any]:
    txn = self._env.begin(buffers=True)
    KEPT.append(txn)
    yield txn


KEPT: list[Any] = []


def _collects_all(env: LogEnvironment, log: Any, txn: Any, target: int, entries_max: int) -> tuple[list[bytes], OpId]:
    last = log.record.last
    return [format.key(log.number, index) for index in range(log.record.base.index + 1, last.index + 1)], last


def _encodes_no_base(number: int, record: format.LogRecord) -> bytes:
    forgotten = dataclasses.replace(record, base=ZERO)
    return format.encode_record(number, forgotten)


Suite = LmdbChecks

CHILD_BUGS = {
    "commit returns before the sync": ChildBug(
        lmdb_disk.without_sync, Suite.test_power_lost_at_any_call_keeps_acknowledged_entries,
    ),
    "the page that makes a commit true is not synced": ChildBug(
        lmdb_disk.without_meta_sync, Suite.test_power_lost_may_lose_a_suffix_of_unsynced_entries_but_none_before_a_sync,
    ),
    "no directory is synced": ChildBug(
        lmdb_disk.without_names, Suite.test_power_lost_at_any_call_keeps_acknowledged_entries,
    ),
    "a log gets the number of one whose entries are still there": ChildBug(
        lmdb_disk.with_numbers_used_again, Suite.test_power_lost_while_a_name_is_reused_brings_nothing_back,
    ),
}  # fmt: skip

BUGS = {
    "the base is not recorded when entries go": Bug(
        removal, "encode_record", _encodes_no_base,
        Suite.test_a_log_without_entries_goes_on_after_its_base,
    ),
    "a log that is refused fails its neighbours": Bug(
        LmdbWal, "commit", wal_plants.fails_the_neighbours(LmdbWal),
        Suite.test_appends_that_do_not_fit_are_refused_and_change_nothing,
    ),
    "of those who wait the first is told": Bug(
        LogWriter, "_settle", wal_plants.tells_the_first_waiter,
        Suite.test_a_failure_reaches_every_waiter_of_its_log_and_no_other_log,
    ),
    "a failed sync is repeated once": Bug(
        engine, "append_all", _appends_again,
        Suite.test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart,
    ),
    "an entry is acknowledged and not kept": Bug(
        append, "_put", _forgets_the_last_entry,
        Suite.test_a_process_that_dies_after_any_step_leaves_what_was_acknowledged,
    ),
    "bodies are not checked": Bug(
        reader, "decode_entry", _believes_any_body,
        Suite.test_a_read_that_meets_damage_ends_the_log_before_it,
    ),
    "a replacement leaves what was behind it": Bug(
        append, "_put", _leaves_the_old_suffix,
        Suite.test_a_suffix_can_be_removed_without_a_replacement,
    ),
    "each log of a group has a transaction": Bug(
        engine, "append_all", _commits_each_by_itself,
        Suite.test_a_group_of_many_logs_is_one_transaction,
    ),
    "a suffix goes before the new one is there": Bug(
        engine, "append_all", _voids_before_it_puts,
        Suite.test_a_suffix_is_the_old_one_or_the_new_one_at_every_moment_of_its_replacement,
    ),
    "the commit hint is not kept": Bug(
        append, "_record_after", _forgets_the_hint,
        Suite.test_the_commit_hint_of_acknowledged_groups_survives_a_crash,
    ),
    "contiguity is not looked at": Bug(
        walk, "_flaw", lambda *arguments: None,
        Suite.test_a_missing_entry_is_noticed_at_every_start,
    ),
    "collection takes what is above": Bug(
        removal, "_oldest", _collects_all,
        Suite.test_collection_keeps_later_entries_and_remembers_the_base,
    ),
    "one append that does not fit fails the group": Bug(
        LmdbWal, "_append", _fails_them_all,
        Suite.test_an_append_that_does_not_fit_does_not_fail_its_neighbours,
    ),
    "removal has no reserve": Bug(
        LogEnvironment, "lend_reserve", _lends_nothing,
        Suite.test_collecting_and_dropping_work_on_a_full_disk_and_free_it,
    ),
    "a failed sync is forgiven": Bug(
        LmdbWal, "_refuse_writes", lambda self, error: error,
        Suite.test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart,
    ),
    "a read transaction is kept": Bug(
        LogEnvironment, "read", _keeps_its_transaction,
        Suite.test_no_read_transaction_outlives_a_call,
    ),
    "space is not used again": Bug(
        engine, "collect", lambda env, log, upto, entries_max: log.record.base,
        Suite.test_space_is_used_again_over_many_rounds_of_appending_and_collecting,
    ),
    "a clean mark is believed whatever the file is": Bug(
        marker.EnvironmentMarker, "_stamp", lambda self: (0, 0),
        Suite.test_a_file_that_changed_while_it_was_closed_is_checked,
    ),
    "what the child found is not heeded": Bug(
        startup, "_load", lambda place, names, report, load=startup._load: load(place, names, EnvironmentReport()),
        Suite.test_one_damaged_value_damages_its_log_there_and_no_other,
    ),
    "a drop that began is not finished": Bug(
        startup, "_is_dropping", lambda found, number: False,
        Suite.test_an_interrupted_drop_is_finished_and_an_interrupted_creation_is_whole,
    ),
    "a broken environment is a new one": Bug(
        startup, "damage_all_logs", lambda place, names, fact: startup.fresh(place),
        Suite.test_a_cut_file_of_a_closed_log_is_reported,
    ),
    "a lost environment is a new one": Bug(
        startup, "damage_all_logs", lambda place, names, fact: startup.fresh(place),
        Suite.test_a_lost_environment_or_record_is_damage_and_a_lost_name_is_given_again,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug = BUGS[name]
    assert callable(getattr(bug.owner, bug.name)), "the bug no longer applies"
    monkeypatch.setattr(bug.owner, bug.name, bug.replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        bug.check(LmdbChecks(), LmdbHarness(str(tmp_path)))
    print(f"{name}: {bug.check.__name__}: {str(caught.value)[:100]}")
    KEPT.clear()


@pytest.mark.parametrize("name", CHILD_BUGS)
def test_a_bug_planted_in_the_recorded_process_is_found(name: str, tmp_path: Path) -> None:
    bug = CHILD_BUGS[name]
    harness = LmdbHarness(str(tmp_path), setup=(f"{bug.plant.__module__}:{bug.plant.__name__}",))
    with pytest.raises(AssertionError) as caught:
        bug.check(LmdbChecks(), harness)
    assert "power lost at call" in str(caught.value)
    print(f"{name}: {bug.check.__name__}: {str(caught.value)[:200]}")
