"""The services of plugins: those that ``[plugins] services`` chooses, with the settings in ``[service.NAME]``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stelae.config.registry import SERVICE, Registry
from stelae.config.source import ConfigSource, fill, refuse_repeats, typed
from stelae.config.toml_locator import Path
from stelae.spi.errors import PluginError


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginsSection:
    """Section ``[plugins]``."""

    services: list[Any] = field(default_factory=list)


def read_services(source: ConfigSource, registry: Registry) -> dict[str, Any]:
    """Load the chosen services, and return the settings of each by the name of its section.

    Raises:
        ConfigError: a service is not installed or broken, or its section is not valid.
    """
    path = ("plugins", "services")
    chosen = fill(source, ("plugins",), PluginsSection).services
    for position, name in enumerate(chosen):
        typed(source, (*path, position), name, str)
    refuse_repeats(source, path, chosen, "service")
    source.check_keys((SERVICE,), registry.announced(SERVICE))
    return {
        f"{SERVICE}.{name}": _loaded(source, (*path, position), registry, name) for position, name in enumerate(chosen)
    }


def _loaded(source: ConfigSource, path: Path, registry: Registry, name: str) -> Any:
    """Load a service, and return its settings: an instance of its ``Config``, or ``None`` if it has none."""
    installed = registry.announced(SERVICE)
    if name not in installed:
        fact = f"there is no service {name!r}; installed services: {', '.join(installed) or 'none'}"
        raise source.error(path, fact, "See what is installed with: stelae plugins list")
    try:
        _, settings = registry.load_service(name)
    except PluginError as error:
        raise source.error(path, str(error), "See what is wrong with: stelae plugins check") from error
    if settings is None:
        source.check_keys((SERVICE, name), ())
        return None
    return fill(source, (SERVICE, name), settings)
