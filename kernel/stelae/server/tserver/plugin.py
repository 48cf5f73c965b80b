"""Registers the tablet server as a service of a node, like any plugin."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.server.tserver.tablet_server import TabletServer
from stelae.spi.hooks import ServiceFactory, hookimpl


@hookimpl
def stelae_services() -> Sequence[ServiceFactory]:
    """Return the tablet server as the only service."""
    return [TabletServer]
