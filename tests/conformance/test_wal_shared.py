"""The shared log engine holds to the log contract, on the virtual disk and on a real one.

Below it, the suite itself is put to the test: engines with one planted bug each, and the check that
has to find it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.services import Buffer
from stelae.spi.wal import Append, Durable, Failed
from stelae.testing.conformance.wal import WalBasics, WalConformance
from stelae.testing.conformance.wal_failures import append_until_failure
from stelae.testing.wal_harness import RealHarness, Survival, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries
from stelae_wal_shared import SharedConfig, SharedWal

SMALL = SharedConfig(segment_bytes_first=4096, segment_bytes_max=8192)
"""Small segments, so that every scenario rolls."""

RESTLESS = SharedConfig(
    segment_bytes_first=4096, segment_bytes_max=8192, live_percent_max=90, move_percent_max=1000, move_bytes_max=4096
)
"""Every collection moves entries, so that every scenario finds them in other places."""


class OneFileForAll(WalConformance):
    """The checks that make one log's files fail, where all logs have the same: those of the group fail."""

    def _fail_syncs(self, harness: VirtualHarness, count: int, failing: int, survival: Survival) -> bool:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, Append(entries=entries(1, 5, size_bytes=90)), OTHER)
        seen = 0

        def fail_nth(operation: str, path: str) -> None:
            nonlocal seen
            if "sync" in operation:
                seen += 1
                if seen == count + 1:
                    harness.disk.faults.fail_syncs(harness.directory, failing)

        harness.disk.faults.hook = fail_nth
        model, outcome = append_until_failure(engine, Model(), 25)
        harness.disk.faults.hook = None
        harness.disk.faults.heal()
        if outcome is not None:
            assert not isinstance(outcome.error, Full)
            assert outcome.durable == model.last
            with pytest.raises(StorageError):
                engine.repair(LOG)
            again = Append(entries=entries(model.last.index + 1, 5))
            assert isinstance(engine.commit({LOG: again}, sync=True)[LOG], Failed)
            assert engine.logs()[LOG].last == model.last
        other = Append(entries=entries(6, 2, term=2))
        assert isinstance(engine.commit({OTHER: other}, sync=True)[OTHER], Durable)
        harness.crash(engine, survival)
        self._check_after_failed_sync(harness, model)
        return outcome is not None

    def test_a_failed_sync_of_earlier_unsynced_commits_is_reported(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        given = Append(entries=entries(4, 2))
        assert isinstance(engine.commit({LOG: given}, sync=False)[LOG], Durable)
        harness.disk.faults.fail_syncs(harness.directory, 1)
        outcomes = engine.commit({}, sync=True)
        outcome = outcomes[LOG]
        assert isinstance(outcome, Failed)
        assert outcome.durable == OpId(1, 3)
        assert OTHER not in outcomes
        assert isinstance(engine.commit({LOG: given}, sync=True)[LOG], Failed)
        assert isinstance(engine.commit({OTHER: Append(entries=entries(1, 1))}, sync=True)[OTHER], Durable)
        harness.crash(engine)

    def test_closing_reports_a_log_that_fails_then_and_closes_the_others(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
            commit(engine, Append(entries=entries(1, 5)), log)
        engine.commit({LOG: Append(entries=entries(6, 1))}, sync=False)
        harness.disk.faults.fail_syncs(harness.directory, 9)
        with pytest.raises(StorageError):
            engine.close()
        harness.disk.faults.heal()
        engine = harness.open()
        check_holds(engine, Model(ZERO, list(entries(1, 5))), OTHER)
        assert engine.read(LOG, 1, 6, 1 << 30) == list(entries(1, 5))
        engine.close()


class TestOnVirtualDisk(OneFileForAll):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(SharedWal, SMALL)


class TestMovingOnVirtualDisk(OneFileForAll):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(SharedWal, RESTLESS)


class TestOnRealDisk(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(SharedWal, str(tmp_path), SMALL)
