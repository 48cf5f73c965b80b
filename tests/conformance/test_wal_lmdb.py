"""The LMDB log engine holds to the log contract on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.testing.conformance.wal import WalBasics
from stelae.testing.wal_harness import RealHarness, WalHarness
from stelae_wal_lmdb import LmdbConfig, LmdbWal

SMALL = LmdbConfig(file_step_bytes=1 << 16, reserve_bytes=1 << 16, removed_entries_max=100)


class TestOnRealDisk(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(LmdbWal, str(tmp_path), SMALL)
