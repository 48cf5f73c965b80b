"""Files and tables: the commands ``stelae import``, ``export``, ``scan``, ``get`` and ``sql``.

The modules of this package know nothing of the command line; ``commands`` has the commands themselves."""

from __future__ import annotations

from typing import Any

from stelae.spi.hooks import hookimpl

__all__ = ["stelae_cli"]


@hookimpl
def stelae_cli(app: Any) -> None:
    """Add the commands."""
    from stelae_transfer.commands import register

    register(app)
