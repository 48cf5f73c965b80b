"""Another client writes a row between two attempts of one epoch: the later attempt has its effect again.

The pages *Spark* and *Python client* describe this window. If a test fails here, they have to be changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from stelae.client.epoch import AsyncEpoch
from tests.unit.client.tablets import MemoryTable, failures, one_column

ROW = {"id": 1, "value": 1.0}
THEIRS = {"id": 1, "value": 2.0}


def write_between(kind: str, theirs: str, before: Mapping[str, float] | None = None) -> list[Mapping[str, Any]]:
    """Write the row with an epoch, then as another client, then with the epoch again; return the rows of the table."""

    async def work() -> list[Mapping[str, Any]]:
        memory = MemoryTable(one_column("value", "double"))
        if before is not None:
            await memory.table.insert(before)
        for attempt in range(2):
            await write(memory.table.epoch("nightly load", 1), kind)
            if not attempt:
                await write(memory.table, theirs)
        return [dict(row) for row in await memory.table.scan().to_pylist()]

    async def write(to: Any, one: str) -> None:
        row = ROW if isinstance(to, AsyncEpoch) else THEIRS
        result = await getattr(to, one)({"id": 1} if one == "delete" else row)
        assert result.written == 1, "it is acknowledged"

    return asyncio.run(work())


@pytest.mark.parametrize("theirs", ["upsert", "update", "delete"])
def test_an_upsert_replaces_what_another_client_has_written_since(theirs: str) -> None:
    assert write_between("upsert", theirs) == [ROW]


def test_an_update_replaces_what_another_client_has_written_since() -> None:
    assert write_between("update", "upsert", THEIRS) == [ROW]


def test_a_delete_removes_a_row_that_another_client_has_inserted_since() -> None:
    assert write_between("delete", "insert", ROW) == []


@pytest.mark.parametrize("kind", ["insert", "insert_ignore"])
def test_an_insert_brings_back_a_row_that_another_client_has_deleted_since(kind: str) -> None:
    assert write_between(kind, "delete") == [ROW]


def test_an_insert_fails_at_its_own_row_if_another_client_has_changed_it_since() -> None:
    with pytest.raises(Exception, match="a row with this key exists") as error:
        write_between("insert", "update")
    assert failures(error) == [(0, "ALREADY_PRESENT")]


def test_an_update_fails_if_another_client_has_deleted_its_row_since() -> None:
    with pytest.raises(Exception, match="there is no row with this key") as error:
        write_between("update", "delete", THEIRS)
    assert failures(error) == [(0, "NOT_FOUND")]
