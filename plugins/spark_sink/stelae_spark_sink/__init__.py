"""Stelae as a data source of Spark, on PySpark's Python data source API, and the commands ``stelae spark``.

``pyspark_stelae`` registers the source, ``data_source`` makes its readers, and ``stelae.spark`` offers typed functions.
README.md says what each module is for."""

from __future__ import annotations

from typing import Any

from stelae.spi.hooks import hookimpl

__all__ = ["stelae_cli"]


@hookimpl
def stelae_cli(app: Any) -> None:
    """Add the command group ``spark``."""
    from stelae_spark_sink.commands import register

    register(app)
