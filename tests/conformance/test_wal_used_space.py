"""The segmented log engine holds to the log contract where every segment stands in used space."""

from __future__ import annotations

import pytest

from stelae.testing.begun_commits import with_begun_commits
from stelae.testing.conformance.wal import WalBehaviour, WalConformance
from stelae.testing.wal_harness import VirtualHarness, WalHarness
from tests.conformance.used_space import SMALL, InUsedSpace, plant


class TestInUsedSpace(WalConformance):
    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> WalHarness:
        plant(monkeypatch)
        return VirtualHarness(InUsedSpace, SMALL)


class TestBegunInUsedSpace(WalBehaviour):
    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> WalHarness:
        plant(monkeypatch)
        return VirtualHarness(with_begun_commits(InUsedSpace), SMALL)
