"""The ``[tablet]`` of ``node.toml`` and the tablet that the directory has: they agree, or the node does not start."""

from __future__ import annotations

import pytest

from stelae.host.settings import TabletSettings
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import ConfigError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member
from stelae.spi.schema import Schema
from stelae.spi.wal import Append
from tests.unit.lifecycle.disk_node import LAST, NODE, OTHER, TABLET, DiskNode

WIDER = schema_from_plain(
    {
        "version": 2,
        "columns": [{"name": "id", "type": "int64"}, {"id": 7, "name": "text", "type": "string", "default": "-"}],
        "key": ["id"],
    }
)


def started(node: DiskNode, *columns: dict[str, object], key: str = "id") -> DiskNode:
    """Start a node again with these columns in its ``[tablet]``."""
    schema = schema_from_plain({"columns": [*columns], "key": [key]})
    again = DiskNode(node.disk.clone())
    member = Member(node_id=NODE, address="127.0.0.1:1")
    assert not again.loader.create(TabletSettings(id=TABLET, schema=schema, members=(member,)))
    again.loader.recover_all()
    return again


def altered(node: DiskNode, schema: Schema) -> DiskNode:
    """The schema change is in the log, and committed: the superblock does not have it yet."""
    change = Entry(OpId(1, LAST.index + 1), EntryKind.SCHEMA, 10 << 12, schema.to_bytes())
    node.wal.commit({LogId(TABLET, 1): Append(entries=(change,), commit_hint=LAST.index + 1)}, sync=True)
    return node


ID, TEXT = {"name": "id", "type": "int64"}, {"name": "text", "type": "string"}


def test_the_columns_of_the_creation_are_taken_also_after_the_table_was_altered() -> None:
    assert started(DiskNode.with_rows(TABLET), ID).loader.failed == {}
    assert started(altered(DiskNode.with_rows(TABLET), WIDER), ID).loader.failed == {}


def test_the_columns_of_any_later_version_are_taken() -> None:
    """Column ids and defaults, which the section cannot say, do not matter."""
    assert started(altered(DiskNode.with_rows(TABLET), WIDER), ID, TEXT).loader.failed == {}


@pytest.mark.parametrize(
    ("columns", "key", "mine"),
    [
        (({"name": "id", "type": "string"},), "id", "id string; key id"),
        ((ID, TEXT), "id", "id int64, text string; key id"),
        (({"name": "number", "type": "int64"},), "number", "number int64; key number"),
        ((ID, {**TEXT, "nullable": True}), "id", "id int64, text string (nullable); key id"),
    ],
)
def test_other_columns_are_refused_with_both_sides(columns: tuple[dict[str, object]], key: str, mine: str) -> None:
    """The node served the stored schema as if the file said nothing."""
    with pytest.raises(ConfigError) as caught:
        started(DiskNode.with_rows(TABLET, OTHER), *columns, key=key)
    assert f"[tablet] has the columns {mine}" in caught.value.fact
    assert f"tablet {TABLET} has id int64; key id (version 1)" in caught.value.fact
    assert "another directory" in caught.value.hint


def test_a_tablet_that_cannot_be_recovered_says_why_itself() -> None:
    node = DiskNode.with_rows(TABLET)
    node.wal.drop(LogId(TABLET, 1))
    again = started(node, ID, TEXT)
    assert again.loader.failed.get(TABLET)
