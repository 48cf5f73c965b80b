"""Reading tables with Spark: values, snapshots, partitions, columns."""

from __future__ import annotations

from pyspark.sql import SparkSession

from stelae.client import Client


def test_a_plain_session_reads_a_table_without_registration(spark: SparkSession, client: Client, masters: str) -> None:
    table = client.create_table("plain", {"id": "int64", "note": "string"}, "id")
    table.insert([(1, "one"), (2, "two")])
    frame = spark.read.format("stelae").option("masters", masters).option("table", "plain").load()
    assert sorted(map(tuple, frame.collect())) == [(1, "one"), (2, "two")]
