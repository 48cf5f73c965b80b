"""The conformance suite for copy transports, as a pytest class over a world without threads and real time.

A transport's author subclasses ``CopyConformance`` in a test module and overrides ``harness``::

    class TestMyTransport(CopyConformance):
        @pytest.fixture
        def harness(self) -> CopyHarness:
            return CopyHarness(MyTransport)

The checks use only the contract. The network damages, loses and delays chunks, sources vanish and come back, stages are
torn and full, and time is virtual."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.copy_control import ControlChecks
from stelae.testing.conformance.copy_costs import CopyCostChecks
from stelae.testing.conformance.copy_failures import CopyFailureChecks
from stelae.testing.conformance.copy_fetching import FetchChecks
from stelae.testing.conformance.copy_harness import CopyHarness
from stelae.testing.conformance.copy_histories import CopyHistoryChecks
from stelae.testing.conformance.copy_sessions import SessionChecks
from stelae.testing.conformance.copy_threads import CopyThreadChecks

__all__ = ["CopyConformance", "CopyHarness"]


class CopyConformance(
    SessionChecks, CopyThreadChecks, FetchChecks, CopyFailureChecks, ControlChecks, CopyCostChecks, CopyHistoryChecks
):
    """The suite. ``harness`` must be overridden."""

    @pytest.fixture
    def harness(self) -> CopyHarness:
        """The transport under test."""
        raise LookupError("override `harness` with the transport under test")
