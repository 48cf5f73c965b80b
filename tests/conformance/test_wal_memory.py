"""The fake log engine of the test kit holds to the log contract, but for crashes, which it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.spi.ids import ZERO
from stelae.spi.wal import Append
from stelae.testing.conformance.wal import WalBasics
from stelae.testing.wal_harness import RealHarness, VirtualHarness, WalHarness
from stelae.testing.wal_memory import MemoryWal
from stelae.testing.wal_model import LOG, commit, entries


class TestOnVirtualDisk(WalBasics):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(MemoryWal)


class TestOnRealDisk(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(MemoryWal, str(tmp_path))


def test_it_says_that_it_survives_no_crash_and_does_not() -> None:
    assert "volatile" in MemoryWal.capabilities and "fake_files" not in MemoryWal.capabilities
    harness = VirtualHarness(MemoryWal)
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 3)))
    harness.crash(engine)
    assert not harness.open().logs()
