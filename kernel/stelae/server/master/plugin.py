"""Registers the master with a node, like any plugin. Its system tablet is served by the tablet server's services."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.server.master.driver.master import Master
from stelae.spi.hooks import ServiceFactory, hookimpl


@hookimpl
def stelae_services() -> Sequence[ServiceFactory]:
    """The services of a master."""
    return [Master]
