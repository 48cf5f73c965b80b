"""The conformance suite for tablet stores, as a pytest class over a replica that can crash and reopen.

An engine's author subclasses ``StoreConformance`` in a test module and overrides ``harness``::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def harness(self) -> StoreHarness:
            return StoreHarness(MyStore)

Checks of a capability that the engine does not declare are skipped, with its name."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.store_altering import AlteringChecks
from stelae.testing.conformance.store_apply import ApplyChecks
from stelae.testing.conformance.store_crash import CrashChecks
from stelae.testing.conformance.store_files import FileChecks
from stelae.testing.conformance.store_harness import StoreHarness
from stelae.testing.conformance.store_history import StoreHistoryChecks
from stelae.testing.conformance.store_lookup import LookupChecks
from stelae.testing.conformance.store_readers import ReaderChecks
from stelae.testing.conformance.store_scan import ScanChecks
from stelae.testing.conformance.store_shapes import ShapeChecks
from stelae.testing.conformance.store_short_scans import ShortScanChecks
from stelae.testing.conformance.store_sizes import SizeChecks

__all__ = ["StoreConformance", "StoreHarness"]


class StoreConformance(
    ApplyChecks,
    ScanChecks,
    ShortScanChecks,
    LookupChecks,
    ShapeChecks,
    SizeChecks,
    StoreHistoryChecks,
    CrashChecks,
    FileChecks,
    ReaderChecks,
    AlteringChecks,
):
    """The suite. ``harness`` must be overridden."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """The engine under test."""
        raise LookupError("override `harness` with the engine under test")
