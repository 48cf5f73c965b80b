"""The columnar store holds to the store contract, and the suite bites."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.store import StoreConformance, StoreHarness
from stelae_store_columnar import ColumnarStore


class TestColumnar(StoreConformance):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(ColumnarStore)
