"""The transport ``streaming`` holds to the contract of copy transports."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.copy import CopyConformance, CopyHarness
from stelae_copy_streaming import StreamingTransport


class TestStreaming(CopyConformance):
    @pytest.fixture
    def harness(self) -> CopyHarness:
        return CopyHarness(StreamingTransport)
