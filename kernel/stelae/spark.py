"""Typed functions for reading and writing tables with Spark. They need the extra ``stelae[spark]``.

.. code-block:: python

    from stelae.spark import create_table_from, read_table, upsert

    create_table_from(frame, "127.0.0.1:7051", "readings", key=["station", "day"])
    upsert(frame, "127.0.0.1:7051", "readings")
    warm = read_table(spark, "127.0.0.1:7051", "readings", where=("celsius", ">", 20.5))

The functions set the options of the data source ``stelae``, which every Spark session finds by itself. They are
implemented by the plugin ``stelae_spark_sink``."""

from stelae.spi.extras import MissingExtra

try:
    from stelae_spark_sink.backup.functions import (
        backup_table,
        clean_backups,
        list_backups,
        restore_table,
        verify_backups,
    )
    from stelae_spark_sink.functions import (
        create_rejects_table,
        create_table_from,
        read_changes,
        read_table,
        stream_changes,
        upsert,
        write_table,
    )
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "pyspark":
        raise
    raise MissingExtra("pyspark", "spark", wanted_by="stelae.spark") from error

__all__ = [
    "backup_table",
    "clean_backups",
    "create_rejects_table",
    "create_table_from",
    "list_backups",
    "read_changes",
    "read_table",
    "restore_table",
    "stream_changes",
    "upsert",
    "verify_backups",
    "write_table",
]
