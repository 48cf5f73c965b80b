"""The segmented log engine holds to the log contract, on the virtual disk and on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.testing.conformance.wal import WalBasics, WalConformance
from stelae.testing.wal_harness import RealHarness, VirtualHarness, WalHarness
from stelae_wal_segmented import SegmentedConfig, SegmentedWal

SMALL = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192)
"""Small segments, so that every scenario rolls."""


class TestOnVirtualDisk(WalConformance):
    @pytest.fixture
    def harness(self) -> WalHarness:
        return VirtualHarness(SegmentedWal, SMALL)


class TestOnRealDisk(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WalHarness:
        return RealHarness(SegmentedWal, str(tmp_path), SMALL)
