"""Optional dependencies: imported when an engine is opened, and named when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from stelae.spi.errors import PluginError


class MissingExtra(PluginError):
    """An engine needs a package that this installation does not have.

    ``module`` is what could not be imported and ``extra`` what to install for it.
    """

    code = "MISSING_EXTRA"

    def __init__(self, module: str, extra: str, *, wanted_by: str = "") -> None:
        self.module = module
        self.extra = extra
        who = wanted_by or "this"
        super().__init__(
            f"{who} needs the Python package {module!r}, which is not installed; "
            f"install it with: pip install 'stelae[{extra}]'"
        )


def require(module: str, *, extra: str, wanted_by: str = "") -> Any:
    """Import an optional dependency, on the first use of the engine that needs it.

    An engine also lists ``{module: extra}`` in a class variable ``optional_modules``; then the
    kernel says what is missing when the engine is picked, with the line of ``node.toml``.

    Raises:
        MissingExtra: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == module.split(".")[0]:
            raise MissingExtra(module, extra, wanted_by=wanted_by) from error
        raise
