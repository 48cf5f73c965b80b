"""The streaming copy transport: it fetches the items of a tablet in chunks, and resumes within an item."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.copy import CopyTransport
from stelae.spi.hooks import hookimpl
from stelae_copy_streaming.transport import StreamingTransport

__all__ = ["StreamingTransport", "stelae_copy_transports"]


@hookimpl
def stelae_copy_transports() -> Sequence[type[CopyTransport]]:
    """Register the transport as ``streaming``."""
    return [StreamingTransport]
