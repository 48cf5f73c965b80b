"""Optional dependencies: imported when an engine is opened, and named when they are missing."""

import importlib
from typing import Any

from stelae.spi.errors import PluginError


class MissingExtra(PluginError, code="MISSING_EXTRA"):
    """An engine needs ``module``, which is not installed; ``extra`` says what brings it."""

    def __init__(self, module: str, extra: str, *, wanted_by: str = "") -> None:
        self.module, self.extra = module, extra
        fact = f"{wanted_by or 'this'} needs the Python package {module!r}, which is not installed"
        super().__init__(f"{fact}; install it with: pip install 'stelae[{extra}]'")


def require(module: str, *, extra: str, wanted_by: str = "") -> Any:
    """Import an optional dependency on first use; else ``MissingExtra``. An engine lists it as ``{module: extra}`` in a
    class variable ``optional_modules`` too, to be told when it is picked, with the line of ``node.toml``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == module.split(".")[0]:
            raise MissingExtra(module, extra, wanted_by=wanted_by) from error
        raise
