"""Registers the tablet server with a node, like any plugin."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.server.tserver.heartbeats import MasterReports
from stelae.server.tserver.leadership import LeadershipService
from stelae.server.tserver.maintenance import Maintenance
from stelae.server.tserver.schemas import SchemaService
from stelae.server.tserver.service import TabletService
from stelae.server.tserver.tablets import LifecycleService
from stelae.spi.hooks import ServiceFactory, hookimpl


@hookimpl
def stelae_services() -> Sequence[ServiceFactory]:
    """The services of a tablet server."""
    return [TabletService, SchemaService, LifecycleService, LeadershipService, Maintenance, MasterReports]
