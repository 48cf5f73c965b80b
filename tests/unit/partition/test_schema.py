"""Partition schemas: what a table can have, how people write it, and what is refused."""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain, partition_schema_to_plain
from stelae.partition.schema import BUCKETS_MAX, PARTITIONS_MAX, BadPartitioning, HashLevel, KeyRange, PartitionSchema
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Corrupt
from tests.unit.partition.tables import partition_of_key, partitionings, schemas

READINGS = schema_from_plain(
    {
        "columns": [
            {"name": "sensor", "type": "int32"},
            {"name": "day", "type": "date"},
            {"name": "celsius", "type": "double", "nullable": True},
        ],
        "key": ["sensor", "day"],
    }
)


@given(st.data())
def test_a_schema_survives_its_bytes(data: st.DataObject) -> None:
    scheme = data.draw(partitionings(data.draw(schemas()), gaps=True)).partition_schema
    assert PartitionSchema.from_bytes(scheme.to_bytes()) == scheme


@given(st.binary(max_size=30))
def test_bytes_that_are_no_schema_are_corrupt_and_nothing_else(data: bytes) -> None:
    try:
        PartitionSchema.from_bytes(data)
    except Corrupt:
        return


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"version": 2}, "version 2"),
        ({"hash_levels": (HashLevel((1,), 1),)}, "2 to 1024 buckets"),
        ({"hash_levels": (HashLevel((1,), BUCKETS_MAX + 1),)}, "2 to 1024 buckets"),
        ({"hash_levels": (HashLevel((), 4),)}, "at least one column"),
        ({"hash_levels": (HashLevel((1,), 4), HashLevel((2, 1), 4))}, "twice in the hash levels"),
        ({"hash_levels": tuple(HashLevel((n,), 2) for n in range(1, 10))}, "at most 8 levels"),
        ({"hash_levels": (HashLevel((1,), 1024), HashLevel((2,), 1024))}, f"at most {PARTITIONS_MAX}"),
        ({"range_columns": (1, 1)}, "twice in the range columns"),
        ({"ranges": (KeyRange(b"a", b"b"),)}, "but no range columns"),
        ({"range_columns": (1,), "ranges": ()}, "1 to 4096 ranges"),
        ({"range_columns": (1,), "ranges": (KeyRange(b"b", b"b"),)}, "contains no key"),
        ({"range_columns": (1,), "ranges": (KeyRange(b"", b"c"), KeyRange(b"b", None))}, "overlap"),
        ({"range_columns": (1,), "ranges": (KeyRange(b"", None), KeyRange(b"b", None))}, "overlap"),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused(fields: dict[str, Any], fact: str) -> None:
    with pytest.raises(BadPartitioning, match=fact):
        PartitionSchema(**fields)


def test_a_column_that_is_not_in_the_key_is_refused_by_name() -> None:
    with pytest.raises(BadPartitioning, match=r"not 'celsius'; the key is 'sensor', 'day'"):
        Partitioning(READINGS, PartitionSchema((HashLevel((3,), 4),)))


def test_levels_and_bounds_as_people_write_them() -> None:
    scheme = partition_schema_from_plain(
        READINGS,
        {
            "hash": [{"columns": ["sensor"], "buckets": 3}],
            "range": {"columns": ["day"], "bounds": [[date(2026, 1, 1)], date(2026, 2, 1)]},
        },
    )
    partitioning = Partitioning(READINGS, scheme)
    assert scheme.count == len(partitioning.partitions) == 9
    days = [(date(*d) - date(1970, 1, 1)).days for d in ((2025, 12, 31), (2026, 1, 1), (2026, 1, 31), (2026, 2, 1))]
    assert [partition_of_key(partitioning, (7, day)) // 3 for day in days] == [0, 1, 1, 2]


def test_the_example_of_the_reference_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/partitioning.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert partition_schema_from_plain(READINGS, tomllib.loads(text)).count == 4 * 3


def test_ranges_as_people_write_them_may_leave_gaps() -> None:
    plain = {"range": {"columns": ["sensor"], "ranges": [{"until": [0]}, {"from": [10], "until": [20]}]}}
    scheme = partition_schema_from_plain(READINGS, plain)
    assert [(one.lower == b"", one.upper is None) for one in scheme.ranges] == [(True, False), (False, False)]


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"hash": [{"columns": ["day", "sensor"], "buckets": 3}]},
        {"range": {"columns": ["day", "sensor"], "ranges": [{"until": [0, -5]}, {"from": [9, 7]}]}},
        {"range": {"columns": ["sensor"], "ranges": [{}]}},
    ],
)
def test_a_partition_schema_as_people_write_it_is_the_same_when_it_is_read_back(plain: dict[str, Any]) -> None:
    scheme = partition_schema_from_plain(READINGS, plain)
    assert partition_schema_to_plain(READINGS, scheme) == plain


def test_timestamps_may_have_a_zone_and_are_utc_without() -> None:
    schema = schema_from_plain({"columns": [{"name": "at", "type": "timestamp"}], "key": ["at"]})

    def edge(value: datetime) -> bytes:
        return partition_schema_from_plain(schema, {"range": {"columns": ["at"], "bounds": [[value]]}}).ranges[1].lower

    east = timezone(timedelta(hours=2))
    assert edge(datetime(2026, 1, 1, 2, tzinfo=east)) == edge(datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("plain", "fact"),
    [
        ({"hsah": []}, "no key 'hsah'; known keys: hash, range"),
        ({"hash": [{"columns": ["sensr"], "buckets": 2}]}, "'sensr', but the table has: sensor, day, celsius"),
        ({"hash": [{"columns": ["celsius"], "buckets": 2}]}, "not 'celsius'"),
        ({"hash": [{"columns": ["sensor"], "buckets": "2"}]}, "buckets must be a number, not '2'"),
        ({"hash": [{"columns": ["sensor"]}]}, "buckets must be a number, not None"),
        ({"hash": [{"columns": "sensor", "buckets": 2}]}, "needs columns"),
        ({"range": {"columns": ["day"]}}, "either bounds"),
        ({"range": {"columns": ["day"], "bounds": [], "ranges": []}}, "either bounds"),
        ({"range": {"columns": ["day"], "bounds": [["monday"]]}}, "expected date, got str 'monday'"),
        ({"range": {"columns": ["day"], "bounds": [[1, 2]]}}, "one value for each of 1 columns"),
        ({"range": {"columns": ["day"], "bounds": [[5], [4]]}}, "contains no key"),
        ({"range": []}, "a range level must be a table"),
    ],
)
def test_what_people_mistype_is_refused_with_what_is_known(plain: dict[str, Any], fact: str) -> None:
    with pytest.raises(BadPartitioning, match=fact):
        partition_schema_from_plain(READINGS, plain)
