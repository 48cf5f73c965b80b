"""Registers the master with a node, like any plugin. Its system tablet is served by the tablet server's services."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stelae.host.node import Node
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.server.master.driver.master import Master
from stelae.spi.hooks import ServiceFactory, hookimpl


def master_of(node: Node) -> Master:
    """Make the master of a node that is configured with the system tablet."""
    loader = node.tablets
    assert isinstance(loader, TabletLoader)
    create_tablet = TabletManager(node, loader).create
    return Master(node, loader=loader, create_tablet=create_tablet, rng=random.SystemRandom())


@hookimpl
def stelae_services() -> Sequence[ServiceFactory]:
    """The services of a master."""
    return [master_of]
