"""The suite's checks of durable flushes, on a store that flushes."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.store import StoreConformance, StoreHarness
from tests.conformance.durable_store import DurableStore


class TestDurable(StoreConformance):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(DurableStore)
