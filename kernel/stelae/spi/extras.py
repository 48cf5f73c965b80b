"""Imports optional dependencies of engines, with an error that names the extra to install."""

import importlib
from typing import Any

from stelae.spi.errors import PluginError


class MissingExtra(PluginError, code="MISSING_EXTRA"):
    """An engine needs the Python package ``module``, which is not installed. ``extra`` is the extra that has it."""

    def __init__(self, module: str, extra: str, *, wanted_by: str = "") -> None:
        self.module, self.extra = module, extra
        fact = f"{wanted_by or 'this'} needs the Python package {module!r}, which is not installed"
        super().__init__(f"{fact}; install it with: pip install 'stelae[{extra}]'")


def require(module: str, *, extra: str, wanted_by: str = "") -> Any:
    """Import an optional dependency and return the module. Raises ``MissingExtra`` if it is not installed.

    An engine should also list the dependency in its class variable ``optional_modules``, as ``{module: extra}``. The
    error then comes when the configuration is read, with the line of ``node.toml``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == module.split(".")[0]:
            raise MissingExtra(module, extra, wanted_by=wanted_by) from error
        raise
