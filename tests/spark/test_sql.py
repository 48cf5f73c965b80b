"""SQL: what works in a plain session, and what Spark cannot do, which is refused with the way round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from stelae.client import Client

NAME = "stations"


@pytest.fixture(scope="module")
def view(spark: SparkSession, client: Client, masters: str) -> Iterator[str]:
    """A view on a table, as the documentation makes it."""
    client.create_table(NAME, {"station": "string", "metres": "int32"}, "station").insert(
        [("Bergen", 12), ("Oslo", 94)]
    )
    spark.sql(f"CREATE TEMPORARY VIEW {NAME} USING stelae OPTIONS (masters '{masters}', table '{NAME}')")
    yield NAME
    spark.catalog.dropTempView(NAME)


def test_a_view_is_joined_with_parquet(spark: SparkSession, view: str, tmp_path: Path) -> None:
    readings = spark.createDataFrame(
        [("Oslo", 15.5), ("Oslo", 16.5), ("Tromsø", 3.0)], "station string, celsius double"
    )
    readings.write.parquet(str(tmp_path / "readings"))
    found = spark.sql(f"""
        SELECT s.station, s.metres, max(r.celsius) AS most
        FROM {view} s LEFT JOIN parquet.`{tmp_path / "readings"}` r ON s.station = r.station
        WHERE s.metres > 10 GROUP BY ALL ORDER BY 1
    """)
    assert [tuple(row) for row in found.collect()] == [("Bergen", 12, None), ("Oslo", 94, 16.5)]


def test_create_table_with_options_is_refused_with_the_view_that_works(spark: SparkSession, masters: str) -> None:
    with pytest.raises(AnalysisException, match=r"use CREATE TEMPORARY VIEW v USING stelae OPTIONS"):
        spark.sql(f"CREATE TABLE kept USING stelae OPTIONS (masters '{masters}', table '{NAME}')")
    with pytest.raises(AnalysisException, match=r"use CREATE TEMPORARY VIEW v USING stelae OPTIONS"):
        spark.catalog.createTable("kept", source="stelae", masters=masters, table=NAME)


def test_a_table_created_with_columns_has_lost_its_options_and_takes_those_of_a_statement(
    spark: SparkSession, masters: str, view: str
) -> None:
    spark.sql(f"CREATE TABLE lost (station STRING) USING stelae OPTIONS (masters '{masters}', table '{NAME}')")
    try:
        with pytest.raises(AnalysisException, match=r"CREATE TEMPORARY VIEW v USING stelae OPTIONS"):
            spark.sql("SELECT * FROM lost").collect()
        found = spark.sql(f"SELECT * FROM lost WITH (masters = '{masters}', table = '{NAME}')")
        assert sorted(row.station for row in found.collect()) == ["Bergen", "Oslo"]
    finally:
        spark.sql("DROP TABLE lost")
