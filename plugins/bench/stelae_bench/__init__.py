"""Benchmarks: ``stelae bench cluster`` and ``stelae bench wal``, with the bare machine for comparison."""

from __future__ import annotations

from typing import Any

from stelae.spi.hooks import hookimpl

__all__ = ["stelae_cli"]


@hookimpl
def stelae_cli(app: Any) -> None:
    """Add the command group ``bench``."""
    from stelae_bench.command import register

    register(app)
