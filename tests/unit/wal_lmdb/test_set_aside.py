"""A damaged log can be set aside: what can be read of it goes to its file, and the log is gone after one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stelae.spi.errors import CallerError, Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Append, LogState
from stelae.testing.wal_harness import RealHarness, fake_services
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries
from stelae_wal_lmdb import LmdbConfig, LmdbWal, export
from stelae_wal_lmdb.format import NAMESPACE, key

HELD = entries(1, 9, size_bytes=300)
RECORD = key(NAMESPACE, 1)
"""Key of the record of ``LOG``, the first log that is created."""


@pytest.fixture
def harness(tmp_path: Path) -> RealHarness:
    small = LmdbConfig(map_bytes=1 << 30, file_growth_bytes=1 << 16, reserve_bytes=1 << 16)
    return RealHarness(LmdbWal, str(tmp_path), small)


def filled(harness: RealHarness) -> Any:
    opened = harness.open()
    for log in (LOG, OTHER):
        opened.create(log, ZERO)
        commit(opened, Append(entries=HELD, commit_hint=7), log)
    return opened


def delete(opened: Any, at: bytes) -> None:
    with opened._env.write() as txn:
        assert txn.delete(at)


def change(opened: Any, at: bytes) -> None:
    with opened._env.write() as txn:
        data = bytearray(txn.get(at))
        data[0] ^= 1
        txn.put(at, bytes(data))


def set_aside(harness: RealHarness, opened: Any) -> tuple[LogState, list[Entry]]:
    """Set a log aside; return its state and its entries in the quarantine. The other log is intact."""
    place = f"{harness.directory.rpartition('/')[0]}/quarantine"
    opened.set_aside(LOG, place)
    for _ in range(2):
        assert set(opened.logs()) == {OTHER}
        check_holds(opened, Model(ZERO, list(HELD)), OTHER)
        opened.close()
        opened = harness.open()
    opened.close()
    with LmdbWal.opened_aside(place, LOG, harness.config, fake_services(harness.files)) as (state, found):  # type: ignore[arg-type]
        return state, list(found)


@pytest.mark.parametrize("harm", [delete, change])
def test_a_log_whose_record_was_lost_is_set_aside_without_entries(
    harness: RealHarness, harm: Callable[[Any, bytes], None]
) -> None:
    """``CallerError`` or ``Corrupt`` met every attempt, so the deletion of the replica never ended."""
    opened = filled(harness)
    harm(opened, RECORD)
    opened.close()
    opened = harness.open()
    assert opened.logs()[LOG].damage is not None
    assert set_aside(harness, opened) == (LogState(base=ZERO, last=ZERO), [])


@pytest.mark.parametrize("harm", [delete, change])
def test_a_log_whose_record_was_lost_answers_as_a_damaged_log(
    harness: RealHarness, harm: Callable[[Any, bytes], None]
) -> None:
    """Readers were told that it had been dropped."""
    opened = filled(harness)
    harm(opened, RECORD)
    opened.close()
    opened = harness.open()
    with pytest.raises(Corrupt):
        opened.read(LOG, 1, 2, READ_BYTES)
    with pytest.raises(Corrupt):
        opened.op_id_at(LOG, 1)
    assert opened.op_id_at(LOG, 0) == ZERO
    opened.close()


def test_a_reader_of_a_log_that_was_dropped_meanwhile_is_told_so(harness: RealHarness) -> None:
    opened = filled(harness)
    log = opened._logs[LOG]
    opened.drop(LOG)
    with opened._env.read() as txn, pytest.raises(CallerError, match="dropped"):
        log.bounds(txn)
    opened.close()


def test_a_record_that_changes_while_the_engine_runs_costs_no_entry(harness: RealHarness) -> None:
    opened = filled(harness)
    change(opened, RECORD)
    state, found = set_aside(harness, opened)
    assert (state, found) == (LogState(base=ZERO, last=OpId(1, 9), commit_hint=7), list(HELD))


@pytest.mark.parametrize("gone", [[1], [5], [9], [7, 4, 2]])
def test_an_entry_that_is_found_missing_ends_the_log_in_the_quarantine(harness: RealHarness, gone: list[int]) -> None:
    """The first attempt raised ``Corrupt``, and only a second one set the log aside."""
    opened = filled(harness)
    for index in gone:
        delete(opened, key(1, index))
    state, found = set_aside(harness, opened)
    kept = min(gone) - 1
    assert found == list(HELD[:kept])
    assert (state.last.index, state.commit_hint) == (kept, min(7, kept))


def test_damage_that_a_reader_meets_during_the_export_does_not_end_it_too_early(
    harness: RealHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = filled(harness)
    delete(opened, key(1, 8))
    write_export = export.write_export

    def read_meanwhile(*arguments: Any) -> int:
        monkeypatch.setattr(export, "write_export", write_export)
        delete(opened, key(1, 3))
        with pytest.raises(Corrupt):
            opened.read(LOG, 3, 4, READ_BYTES)
        return write_export(*arguments)

    monkeypatch.setattr(export, "write_export", read_meanwhile)
    state, found = set_aside(harness, opened)
    assert (state.last, found) == (OpId(1, 2), list(HELD[:2]))
