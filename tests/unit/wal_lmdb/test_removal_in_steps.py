"""A long log is removed with a bounded number of transactions in each call, because appends to all logs wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries
from stelae_wal_lmdb import removal
from tests.conformance.lmdb_disk import LmdbHarness, checks_here

COUNT, STEP = 500, 100
"""Entries of the log, and how many of them a call removes: two transactions of 50."""


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LmdbHarness:
    monkeypatch.setattr(removal, "TRANSACTIONS_MAX", 2)
    return LmdbHarness(str(tmp_path))


def filled(harness: LmdbHarness) -> Any:
    engine = harness.open()
    for log in (LOG, OTHER):
        engine.create(log, ZERO)
    commit(engine, Append(entries=entries(1, COUNT)), LOG)
    return engine


def key_count(engine: Any) -> int:
    """The number of keys without the header and the records of both logs."""
    with engine._env.read() as txn:
        return int(txn.stat()["entries"]) - 3


def test_each_collection_removes_a_step_and_appends_run_in_between(harness: LmdbHarness) -> None:
    """The collection of a long log, as when a follower has caught up, took 2 us for each entry in one call."""
    engine = filled(harness)
    for step in range(1, 5):
        assert engine.collect(LOG, 450) == OpId(1, step * STEP)
        commit(engine, Append(entries=entries(step, 1)), OTHER)
    assert engine.collect(LOG, 450) == OpId(1, 450)
    assert engine.collect(LOG, 450) == OpId(1, 450)
    check_holds(engine, Model(OpId(1, 450), list(entries(451, 50))), LOG)
    engine.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_dropped_log_is_gone_at_once_and_its_entries_later(harness: LmdbHarness, restarted: bool) -> None:
    engine = filled(harness)
    commit(engine, Append(entries=entries(1, 9)), OTHER)
    engine.drop(LOG)
    assert set(engine.logs()) == {OTHER}
    assert key_count(engine) == COUNT - STEP + 9
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 3)), LOG)
    if restarted:
        harness.crash(engine)
        with checks_here():
            engine = harness.open()
    for base in range(1, 7):
        engine.collect(OTHER, base)
    assert key_count(engine) == 3 + 3
    check_holds(engine, Model(ZERO, list(entries(1, 3))), LOG)
    check_holds(engine, Model(OpId(1, 6), list(entries(7, 3))), OTHER)
    engine.close()
