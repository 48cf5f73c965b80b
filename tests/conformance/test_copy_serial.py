"""The fake transport of the test kit holds to the contract of copy transports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stelae.spi.copy import CopySource, CopyTarget
from stelae.spi.services import EngineServices
from stelae.testing.conformance.copy import CopyConformance, CopyHarness
from stelae.testing.copy_serial import SerialSource, SerialTarget, SerialTransport


class SourceWithoutLimit(SerialSource):
    bytes_per_s_max = CopySource.bytes_per_s_max
    set_bytes_per_s_max = CopySource.set_bytes_per_s_max


class TargetWithoutLimit(SerialTarget):
    bytes_per_s_max = CopyTarget.bytes_per_s_max
    set_bytes_per_s_max = CopyTarget.set_bytes_per_s_max


class UnlimitedTransport(SerialTransport):
    """A transport without limits of bytes per second, which the contract allows."""

    @classmethod
    def source(cls, config: Any, services: EngineServices, incarnation: str) -> CopySource:
        return SourceWithoutLimit(replace(config, serve_bytes_per_s_max=0), services.clock, incarnation)

    @classmethod
    def target(cls, config: Any, services: EngineServices) -> CopyTarget:
        return TargetWithoutLimit(replace(config, fetch_bytes_per_s_max=0), services.clock)


class TestUnlimited(CopyConformance):
    @pytest.fixture
    def harness(self) -> CopyHarness:
        return CopyHarness(UnlimitedTransport)


class TestSerial(CopyConformance):
    @pytest.fixture
    def harness(self) -> CopyHarness:
        return CopyHarness(SerialTransport)
