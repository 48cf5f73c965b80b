"""SQL: what works in a plain session, and what Spark cannot do, which is refused with the way round."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, UnsupportedOperationException
from pyspark.sql import SparkSession

from stelae.client import Client, Table

NAME = "stations"
PAGE = Path(__file__).parents[2] / "docs/reference/spark.md"


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


def test_save_as_table_writes_and_leaves_a_table_of_the_catalog_without_options(
    spark: SparkSession, masters: str, client: Client
) -> None:
    """The reference page warns of it. Spark hands over the same options as for ``save``, so it cannot be refused."""
    table = client.create_table("saved", {"id": "int64"}, "id", replicas=1)
    writer = spark.range(3).write.format("stelae").options(masters=masters, table="saved")
    writer.mode("append").saveAsTable("left")
    try:
        assert table.scan().count() == 3
        with pytest.raises(AnalysisException, match=r"CREATE TEMPORARY VIEW v USING stelae OPTIONS"):
            spark.table("left").collect()
        found = spark.sql(f"SELECT * FROM left WITH (masters = '{masters}', table = 'saved')")
        assert found.count() == 3
    finally:
        spark.sql("DROP TABLE left")
    assert table.scan().count() == 3


# -- what Spark refuses, and what the reference page says to use instead ---------------------------


@pytest.fixture(scope="module")
def table_of_rows(client: Client) -> Table:
    """The table behind the views."""
    columns = [
        {"name": "id", "type": "int64"},
        {"name": "note", "type": "string", "nullable": True},
        {"name": "celsius", "type": "double", "nullable": True},
    ]
    return client.create_table("sqlrows", columns, "id", replicas=1)


@pytest.fixture
def rows(table_of_rows: Table) -> Table:
    """A table of three rows."""
    table_of_rows.delete_ignore([(n,) for n in range(10)])
    table_of_rows.insert([(n, "old", float(n)) for n in (1, 2, 3)])
    return table_of_rows


def create_view(spark: SparkSession, masters: str, name: str, columns: str = "", options: str = "") -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {name} {columns} USING stelae "
        f"OPTIONS (masters '{masters}', table 'sqlrows'{options})"
    )


def held(table: Table) -> list[tuple[int, str | None, float | None]]:
    return sorted((row["id"], row["note"], row["celsius"]) for row in table.scan().to_pylist())


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "MERGE INTO v USING (SELECT 1L AS key) s ON v.id = s.key WHEN MATCHED THEN DELETE",
            "does not support MERGE INTO TABLE",
        ),
        ("UPDATE v SET celsius = 0.0 WHERE id = 1", "does not support UPDATE TABLE"),
        ("DELETE FROM v WHERE id = 1", "does not support deletes"),
        ("TRUNCATE TABLE v", "'TRUNCATE TABLE' expects a table"),
        ("INSERT INTO v REPLACE WHERE id = 1 SELECT 1L, 'new', 0.0D", "does not support overwrite by filter"),
        ("INSERT OVERWRITE v PARTITION (id = 1) SELECT 'new', 0.0D", "cannot contain the non-partition column"),
    ],
)
def test_what_spark_cannot_do_with_a_view_is_refused_and_the_page_has_the_way_round(
    spark: SparkSession, masters: str, rows: Table, statement: str, says: str
) -> None:
    """Spark refuses the statement without a call of the data source, so its error cannot name the way round. The page
    has a line with the words of the statement and of the error, by which a reader finds it."""
    create_view(spark, masters, "v")
    with pytest.raises((AnalysisException, UnsupportedOperationException), match=re.escape(says)):
        spark.sql(statement).collect()
    assert held(rows) == [(1, "old", 1.0), (2, "old", 2.0), (3, "old", 3.0)]
    words = re.findall(r"MERGE INTO|UPDATE|DELETE FROM|TRUNCATE TABLE|INSERT INTO|REPLACE WHERE|PARTITION", statement)
    (way_round,) = [cells[1] for cells in page_lines() if says in cells[2] and all(word in cells[0] for word in words)]
    assert "INSERT INTO" in way_round or "INSERT OVERWRITE" in way_round


def page_lines() -> list[list[str]]:
    """The table of the reference page: statement, way round, and what Spark says."""
    section = PAGE.read_text().partition("## What SQL cannot do")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


OLD_2, OLD_3 = (2, "old", 2.0), (3, "old", 3.0)


@pytest.mark.parametrize(
    ("columns", "options", "statement", "expected"),
    [
        (
            "",
            "",
            "INSERT INTO w SELECT 1L, 'new', 0.0D UNION ALL SELECT 4L, 'new', 0.0D",
            [(1, "new", 0.0), OLD_2, OLD_3, (4, "new", 0.0)],
        ),
        (
            "(id BIGINT, note STRING)",
            ", operation 'insert_ignore'",
            "INSERT INTO w SELECT explode(array(1L, 4L)), 'new'",
            [(1, "old", 1.0), OLD_2, OLD_3, (4, "new", None)],
        ),
        (
            "(id BIGINT, celsius DOUBLE)",
            ", operation 'update'",
            "INSERT INTO w SELECT id, celsius + 10 FROM v WHERE id = 1",
            [(1, "old", 11.0), OLD_2, OLD_3],
        ),
        ("(id BIGINT)", ", operation 'delete'", "INSERT INTO w SELECT id FROM v WHERE celsius < 2", [OLD_2, OLD_3]),
        ("", "", "INSERT OVERWRITE w SELECT * FROM w WHERE false", []),
        (
            "(id BIGINT, note STRING, celsius DOUBLE)",
            """, replaceWhere '[["celsius", "<", 3]]'""",
            "INSERT OVERWRITE w SELECT 2L, 'new', 0.0D",
            [(2, "new", 0.0), OLD_3],
        ),
        (
            "(id BIGINT, note STRING, celsius DOUBLE)",
            ", ignoreNull 'true'",
            "INSERT INTO w (id, celsius) SELECT 1L, 0.0D",
            [(1, "old", 0.0), OLD_2, OLD_3],
        ),
    ],
    ids=["upsert", "insert", "update", "delete", "truncate", "replaceWhere", "ignoreNull"],
)
def test_a_view_that_writes_does_what_spark_refuses(
    spark: SparkSession, masters: str, rows: Table, columns: str, options: str, statement: str, expected: list[object]
) -> None:
    create_view(spark, masters, "v")
    create_view(spark, masters, "w", columns, options)
    spark.sql(statement)
    assert held(rows) == expected


def test_a_view_with_an_option_of_writes_needs_columns(spark: SparkSession, masters: str, rows: Table) -> None:
    with pytest.raises(AnalysisException, match=r"CREATE TEMPORARY VIEW v \(id BIGINT, \.\.\.\) USING stelae"):
        create_view(spark, masters, "w", options=", operation 'delete'")


def test_spark_drops_the_options_of_with_behind_a_view(spark: SparkSession, masters: str, rows: Table) -> None:
    """The reference page warns of it. If this fails, Spark hands them over, and the warning can go."""
    create_view(spark, masters, "v")
    spark.sql("INSERT INTO v WITH (operation = 'delete') SELECT 1L, 'upserted', 0.0D")
    assert held(rows) == [(1, "upserted", 0.0), OLD_2, OLD_3]
