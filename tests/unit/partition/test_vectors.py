"""The published vectors of version 1: encoding, hash and bucket, value by value and in a batch."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import mmh3
import pytest

from stelae.partition.key_columns import KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import PARTITION_VERSION, HashLevel, PartitionSchema
from stelae.rows.batch_building import build_batch
from stelae.spi.schema import Schema
from tests.unit.partition.tables import TYPES, table

PUBLISHED = json.loads((Path(__file__).parents[3] / "docs/reference/partition-vectors.json").read_text())
BUCKETS = PUBLISHED["buckets_per_level"]


def values_of(vector: dict[str, Any]) -> list[Any]:
    read = {"binary": bytes.fromhex, "decimal(9,2)": Decimal}
    return [read.get(t, lambda v: v)(v) for t, v in zip(vector["types"], vector["values"], strict=True)]


def test_the_version_is_that_of_the_vectors() -> None:
    assert PUBLISHED["partition_version"] == PARTITION_VERSION
    assert PUBLISHED["key_encoding_version"] == 1


def test_every_type_has_a_vector() -> None:
    assert {t for vector in PUBLISHED["vectors"] for t in vector["types"]} == {*TYPES, "int16"}


@pytest.mark.parametrize("vector", PUBLISHED["vectors"], ids=lambda v: f"{v['types']}={v['values']}")
def test_vector(vector: dict[str, Any]) -> None:
    schema = table(vector["types"])
    values = values_of(vector)
    encoded = KeyColumns(schema, schema.key).encode(values)
    assert encoded.hex() == vector["encoded"]
    assert [mmh3.hash(encoded, level, signed=False) for level in (0, 1)] == vector["hashes"]
    assert [hashed % BUCKETS for hashed in vector["hashes"]] == vector["buckets"]
    assert [bucket_of(schema, values, level) for level in (0, 1)] == vector["buckets"]


def bucket_of(schema: Schema, values: list[Any], level: int) -> int:
    """The bucket that a batch gets on a level: a column of its own, equal everywhere, stands on the level before."""
    types = [c.type for c in schema.columns]
    wider = table([*types, "int8"])
    levels = [HashLevel(wider.key[:-1], BUCKETS)]
    levels.insert(0, HashLevel(wider.key[-1:], 2))
    partitioning = Partitioning(wider, PartitionSchema(tuple(levels[1 - level :])))
    rows = build_batch(wider.layout, [(*values, 0)] * 3)
    places = {partitioning.partitions[place].buckets[-1] for place in partitioning.partitions_of(rows)}
    assert len(places) == 1
    return places.pop()
