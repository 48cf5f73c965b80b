"""Registers the tablet server with a node, like any plugin."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.server.tserver.tablet_server import TabletServer
from stelae.spi.hooks import ServiceFactory, hookimpl


@hookimpl
def stelae_services() -> Sequence[ServiceFactory]:
    """What a tablet server serves."""
    return [TabletServer]
