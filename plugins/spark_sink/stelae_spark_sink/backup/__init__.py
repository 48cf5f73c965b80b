"""Backup and restore of tables: Parquet files and a manifest, on any file system that Spark reaches.

``functions`` has what ``stelae.spark`` offers, ``command`` the command ``stelae-spark``. The format of a backup is in
``manifest``."""
