"""The fake transport of the test kit holds to the contract of copy transports."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.copy import CopyConformance, CopyHarness
from stelae.testing.copy_serial import SerialTransport


class TestSerial(CopyConformance):
    @pytest.fixture
    def harness(self) -> CopyHarness:
        return CopyHarness(SerialTransport)
