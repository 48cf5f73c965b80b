"""Chaos on real processes: ``stelae chaos`` injects faults into a cluster under load, and judges what clients saw."""

from __future__ import annotations

from typing import Any

from stelae.spi.hooks import hookimpl

__all__ = ["stelae_cli"]


@hookimpl
def stelae_cli(app: Any) -> None:
    """Add the command."""
    from stelae_chaos.command import register

    register(app)
