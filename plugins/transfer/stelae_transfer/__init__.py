"""Files in and out of tables, and SQL over tables: ``stelae import``, ``export``, ``scan``, ``get`` and ``sql``.

The package ``commands`` is the command line. The other modules do not depend on it."""

from __future__ import annotations

from typing import Any

from stelae.spi.hooks import hookimpl

__all__ = ["stelae_cli"]


@hookimpl
def stelae_cli(app: Any) -> None:
    """Add the commands."""
    from stelae_transfer.commands import register

    register(app)
