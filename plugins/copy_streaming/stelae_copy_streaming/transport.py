"""The engine class: it makes both sides."""

from __future__ import annotations

from typing import Any, ClassVar

from stelae.spi.copy import CopySource, CopyTarget, CopyTransport
from stelae.spi.services import EngineServices
from stelae_copy_streaming.config import StreamingConfig
from stelae_copy_streaming.source import StreamingSource
from stelae_copy_streaming.target import StreamingTarget


class StreamingTransport(CopyTransport):
    """Fetches in chunks, several at a time, and resumes within an item."""

    name: ClassVar[str] = "streaming"
    Config: ClassVar[type[Any]] = StreamingConfig

    @classmethod
    def target_slots(cls, config: Any) -> int:
        slots: int = config.target_slots
        return slots

    @classmethod
    def source(cls, config: Any, services: EngineServices, incarnation: str) -> CopySource:
        return StreamingSource(config, services.clock, services.metrics, incarnation)

    @classmethod
    def target(cls, config: Any, services: EngineServices) -> CopyTarget:
        return StreamingTarget(config, services.clock, services.metrics)
