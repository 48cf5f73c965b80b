"""A service of a plugin, as a node runs it."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from stelae.spi.errors import PluginError, StelaeError
from stelae.spi.hooks import Service, ServiceFactory

log = logging.getLogger(__name__)


class PluginService:
    """A service of a plugin. Its errors name the plugin, and one that cannot stop leaves the node's stop alone.

    ``SystemExit`` counts as an error, as in all that plugins do: it would end the node without a message."""

    def __init__(self, factory: ServiceFactory, plugin: str, node: Any) -> None:
        self._plugin = plugin
        try:
            self._service: Service = factory(node)
        except StelaeError:
            log.error("plugin %s: the service cannot be made", plugin)
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f"plugin {plugin}: the service cannot be made: {error!r}") from error
        for name in ("start", "stop"):
            method = getattr(self._service, name, None)
            if not callable(method):
                raise PluginError(f"plugin {plugin}: the service {self._service!r} has no method {name}")
            if inspect.iscoroutinefunction(method):
                raise PluginError(f"plugin {plugin}: {name} of the service is a coroutine; services are synchronous")

    def start(self) -> None:
        """Start it. Raises ``PluginError`` if it raises an error that is not Stelae's."""
        try:
            self._service.start()
        except StelaeError:
            log.error("plugin %s: the service cannot start", self._plugin)
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f"plugin {self._plugin}: the service cannot start: {error!r}") from error

    def stop(self) -> None:
        """Stop it. An error is logged."""
        try:
            self._service.stop()
        except (Exception, SystemExit):
            log.exception("plugin %s: the service cannot stop", self._plugin)
