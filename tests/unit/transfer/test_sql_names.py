"""Which tables a query reads, and what becomes of names that DuckDB takes for one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from stelae.client import AsyncClient
from stelae.rows.plain_schema import schema_from_plain
from stelae_transfer.sql import Query, SqlFailed, prepare
from stelae_transfer.sql_names import require_distinct_names, tables_of
from tests.unit.client.tablets import MemoryTable

KNOWN = ["s", "casey", "CaseY", "plain", "a-b", 'we"ird', "Ärger", "ärger"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('SELECT * FROM "CaseY"', ["CaseY"]),
        ("SELECT * FROM casey", ["casey"]),
        ("SELECT * FROM PLAIN", ["plain"]),
        ("FROM plain SELECT 's', \"x\" AS s -- of s and casey", ["plain"]),
        ('SELECT * FROM plain JOIN "a-b" USING (x) WHERE EXISTS (FROM s)', ["s", "plain", "a-b"]),
        ('SELECT * FROM "we""ird"', ['we"ird']),
        ('SELECT * FROM "Ärger", "ärger"', ["Ärger", "ärger"]),
        ("SELECT * FROM main.plain", ["plain"]),
        ("WITH s AS (SELECT 1) SELECT * FROM s", []),
        ("WITH s AS (SELECT * FROM s) SELECT * FROM s", ["s"]),
        ("WITH s AS (SELECT 1) SELECT * FROM main.s", ["s"]),
        ("WITH plain AS (FROM s), s AS (SELECT 1) SELECT * FROM s, plain", ["s"]),
        ("SELECT * FROM (WITH s AS (SELECT 1) FROM s), s AS t", ["s"]),
        ("WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM s WHERE n < 3) FROM s", []),
        ("SELECT * FROM query_table('plain')", ["plain"]),
        ("DESCRIBE plain", ["plain"]),
        ("PIVOT plain ON x USING sum(y)", ["plain"]),
        ("COPY plain TO 'x.csv'", ["plain"]),
        ("SELEC 1 FROM plains", []),
        ("", []),
        ("SELECT 1 FROM nowhere", []),
    ],
)
def test_the_tables_of_a_query_are_those_that_it_reads(text: str, names: list[str]) -> None:
    assert tables_of(text, KNOWN) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT * FROM CASEY", "'CASEY' matches the tables 'casey', 'CaseY', which differ only in case; write the"),
        ('FROM casey JOIN "CaseY" USING (x)', "the tables 'casey' and 'CaseY' differ only in case, .*table rename"),
    ],
)
def test_tables_that_sql_does_not_tell_apart_are_refused_by_name(text: str, says: str) -> None:
    """The rows of one came for the other."""
    with pytest.raises(SqlFailed, match=says):
        tables_of(text, KNOWN)


def test_columns_that_sql_does_not_tell_apart_are_refused_by_name() -> None:
    """One of them was called Id_1, and a condition on it was one on the other."""
    columns = [{"name": name, "type": "int64"} for name in ("id", "x", "Id")]
    memory = MemoryTable(schema_from_plain({"columns": columns, "key": ["id"]}))

    async def asked() -> None:
        query = Query("SELECT x FROM readings", [memory.table], memory.table.now(), 5)
        says = "the columns 'id' and 'Id' of table 'readings' differ only in case, .*table alter readings --rename"
        with pytest.raises(SqlFailed, match=says):
            await asyncio.to_thread(query.run, lambda schema, batches: None)

    asyncio.run(asked())
    require_distinct_names("columns", ["ä", "Ä", "idx", "id_1", "Id"], "")


def test_a_table_whose_name_stands_in_the_text_only_is_not_asked_for() -> None:
    """A table called ``s`` that could not be reached made every query fail."""

    class Client:
        catalog = None

        async def tables(self) -> list[str]:
            return ["s", "readings"]

        async def table(self, name: str, **_: Any) -> Any:
            opened.append(name)
            return memory.table

    memory, opened = MemoryTable(), list[str]()
    client = cast("AsyncClient", Client())
    asyncio.run(prepare(client, "SELECT * FROM readings", memory.table.now(), 5))
    assert opened == ["readings"]
