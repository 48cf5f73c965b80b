"""A table in words: its partitions, and the defaults of its columns."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.cli.run_table import describe_plainly, read_column
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.ids import NodeId, TabletId

LEADER, OTHER = NodeId("a" * 32), NodeId("b" * 32)


def described(columns: list[str], key: list[str], partition: dict[str, Any]) -> dict[str, Any]:
    schema = schema_from_plain({"columns": [read_column("--column", text, key) for text in columns], "key": key})
    scheme = partition_schema_from_plain(schema, partition)
    places = tuple(
        TabletPlace(
            tablet_id=TabletId(f"t{number}"),
            state=TabletState.RUNNING,
            partition=partition,
            members=((OTHER, "b:1"), (LEADER, "a:1")),
            leader=LEADER,
        )
        for number, partition in enumerate(Partitioning(schema, scheme).partitions)
    )
    table = TableDescription(
        table_id=TableId("1" * 32),
        name="readings",
        state=TableState.RUNNING,
        schema=schema.to_bytes(),
        partition_schema=scheme.to_bytes(),
        replication_factor=2,
        tablets=places,
    )
    return describe_plainly(table)


def test_levels_and_ranges_are_told_with_the_names_of_their_columns() -> None:
    levels = {"hash": [{"columns": ["id"], "buckets": 2}], "range": {"columns": ["id"], "bounds": [[10]]}}
    found = described(["id:int64"], ["id"], levels)
    assert found["partitioning"] == "hash of id into 2; ranges of id: 2"
    assert [t["partition"] for t in found["tablets"]] == [
        "bucket 0 of 2 by id; id until 10",
        "bucket 1 of 2 by id; id until 10",
        "bucket 0 of 2 by id; id from 10",
        "bucket 1 of 2 by id; id from 10",
    ]
    assert found["tablets"][0]["leader"] == "a:1" and found["tablets"][0]["followers"] == ["b:1"]


def test_a_table_of_one_tablet_says_so() -> None:
    found = described(["id:int64"], ["id"], {})
    assert found["partitioning"] == "none: one tablet" and found["tablets"][0]["partition"] == "all rows"


@pytest.mark.parametrize(
    ("kind", "given", "shown"),
    [
        ("int64", "5", 5),
        ("string", "a=b:c", "a=b:c"),
        ("double", "0.5", 0.5),
        ("bool", "true", True),
        ("decimal(5,2)", "1.50", "1.50"),
        ("date", "2024-02-29", "2024-02-29"),
        ("date", "1901-01-01", "1901-01-01"),
        ("timestamp", "2024-02-29T12:00:00.25", "2024-02-29T12:00:00.250000"),
    ],
)
def test_a_default_is_shown_as_it_is_written(kind: str, given: str, shown: Any) -> None:
    found = described(["id:int64", f"x:{kind}={given}", "y:int64"], ["id"], {})
    assert [(c["nullable"], c["default"]) for c in found["columns"]] == [(False, None), (False, shown), (True, None)]


@pytest.mark.parametrize("text", ["id", "id:", ":int64", "", "id:=5"])
def test_what_is_no_column_is_told_with_the_option_that_said_it(text: str) -> None:
    with pytest.raises(CallerError, match="--column takes NAME:TYPE or NAME:TYPE=DEFAULT"):
        read_column("--column", text)


def test_a_default_that_does_not_fit_names_column_and_value() -> None:
    with pytest.raises(CallerError, match="invalid value: column 'x': expected int64, got 'many'"):
        read_column("--column", "x:int64=many")
    with pytest.raises(SchemaMismatch, match="unknown column type 'number'"):
        read_column("--column", "x:number=5")
