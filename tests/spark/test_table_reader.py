"""The reader of the data source against a cluster, without a JVM: its partitions, its errors, and servers that die."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from stelae.client import AddColumn, Client, RenameColumn, ScanToken, Table
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.spi.errors import CallerError, StelaeError
from stelae_spark_sink import data_source
from stelae_spark_sink.table_reader import TableReader, TokenPartition

BUCKETS = {"hash": [{"columns": ["id"], "buckets": 3}]}
LONG = "x" * 500


def planned(masters: str, table: str, **options: str) -> TableReader:
    """A reader as the driver has it."""
    given = {"masters": masters, "table": table, **options}
    reader = data_source.reader(given, data_source.schema(given))
    assert isinstance(reader, TableReader)
    return reader


def tokens(partitions: Sequence[InputPartition]) -> list[ScanToken]:
    assert all(isinstance(one, TokenPartition) for one in partitions)
    return [ScanToken.from_bytes(one.token) for one in partitions if isinstance(one, TokenPartition)]


def rows(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


@pytest.fixture(scope="module")
def long_rows(client: Client) -> Table:
    """A table of 36 000 rows of 500 bytes in three tablets."""
    table = client.create_table("long", {"id": "int64", "text": "string"}, "id", partition=BUCKETS)
    table.insert(pa.table({"id": range(36_000), "text": [LONG] * 36_000}))
    return table


def test_a_large_tablet_has_several_partitions_that_read_each_row_once_at_one_time(
    masters: str, long_rows: Table
) -> None:
    reader = planned(masters, "long", targetPartitionBytes="1m", columns="id")
    parts = reader.partitions()
    assert len(parts) > 9
    (at,) = {token.at for token in tokens(parts)}
    assert at is not None
    task = pickle.loads(pickle.dumps(reader))
    ids = [i for part in parts for batch in task.read(part) for i in batch.column("id").to_pylist()]
    assert sorted(ids) == [*range(36_000)]
    assert len(planned(masters, "long").partitions()) == 3


def test_many_tablets_most_of_them_empty_are_read_exactly(masters: str, client: Client) -> None:
    partition = {"hash": [{"columns": ["id"], "buckets": 100}]}
    client.create_table("many", {"id": "int64"}, "id", partition=partition, replicas=1).insert(
        [(n,) for n in range(40)]
    )
    reader = planned(masters, "many")
    parts = reader.partitions()
    assert len(parts) == 100
    found = [[i for batch in reader.read(part) for i in batch.column("id").to_pylist()] for part in parts]
    assert sorted(i for ids in found for i in ids) == [*range(40)]
    assert found.count([]) >= 60


def test_a_reader_without_partitions_reads_nothing(masters: str, long_rows: Table) -> None:
    assert rows(planned(masters, "long").read(InputPartition(None))) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columnss": "id"}, "unknown option 'columnss': did you mean 'columns'"),
        ({"kudu.master": "x"}, "unknown option 'kudu.master': use 'masters'"),
        ({"columns": "id,texts"}, "no column 'texts'; .* did you mean 'text'"),
        ({"timestampAsOf": "2020-01-01T00:00:00Z"}, "is 2020-01-01.*, and table 'long' keeps its history since 20"),
        ({"timestampAsOf": "2040-01-01T00:00:00Z"}, "ahead"),
        ({"timestampAsOf": "2090-01-01T00:00:00Z"}, "timestamps are from 1"),
        ({"timestampAsOf": "2026-01-01 00:00:00"}, "expected a time with a zone"),
        ({"where": '["id", ">", "many"]'}, "in a filter, column 'id': expected int64"),
        ({"where": '["ids", ">", 1]'}, "no column 'ids'"),
    ],
)
def test_an_option_that_cannot_be_used_is_an_error_before_any_task(
    masters: str, long_rows: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(StelaeError, match=message):
        planned(masters, "long", **options).partitions()


def test_a_frame_that_outlives_the_history_of_its_time_says_to_load_it_again(masters: str, long_rows: Table) -> None:
    reader = planned(masters, "long")
    token = tokens(reader.partitions())[0]
    assert token.parts is not None
    part = msgspec.structs.replace(token.parts[0], at=1 << 60)
    old = TokenPartition(msgspec.structs.replace(token, at=1 << 60, parts=(part,)).to_bytes())
    with pytest.raises(CallerError, match=r"'long' is read as of 1978-.*, but keeps its history since 20.*; load it"):
        rows(reader.read(old))


def test_a_table_that_was_altered_or_created_anew_is_noticed_by_the_next_reader(masters: str, client: Client) -> None:
    def columns() -> list[str]:
        reader = planned(masters, "changing")
        (part,) = reader.partitions()
        (batch,) = reader.read(part)
        return list(batch.schema.names)

    client.create_table("changing", {"id": "int64", "first": "string"}, "id").insert((1, "x"))
    assert columns() == ["id", "first"]
    client.alter_table("changing", AddColumn("second", "string", nullable=True), RenameColumn("first", to="old"))
    assert columns() == ["id", "old", "second"]
    client.drop_table("changing")
    client.create_table("changing", {"id": "int64", "third": "string"}, "id").insert((1, "x"))
    assert columns() == ["id", "third"]
    client.drop_table("changing")
    with pytest.raises(StelaeError, match="no table 'changing'"):
        columns()


def test_a_scan_goes_on_at_the_same_time_when_a_server_dies_in_the_middle(
    cluster: ClusterWithMasters, masters: str, long_rows: Table
) -> None:
    reader = planned(masters, "long")
    parts = reader.partitions()
    begun = [reader.read(part) for part in parts]
    found: list[Any] = [next(batches) for batches in begun]
    long_rows.upsert(pa.table({"id": range(36_000, 37_000), "text": ["late"] * 1000}))
    long_rows.delete(pa.table({"id": range(35_000, 36_000)}))
    server = cluster.servers[0]
    server.kill()
    try:
        for batches in begun:
            found += batches
        again = [batch for part in parts for batch in reader.read(part)]
    finally:
        server.start()
    for batches in (found, again):
        assert sorted(i for batch in batches for i in batch.column("id").to_pylist()) == [*range(36_000)]
    assert rows(iter([b for part in planned(masters, "long").partitions() for b in reader.read(part)])) == 36_000
