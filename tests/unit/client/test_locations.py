"""Where tables are: from a file, or from the nodes; and what is wrong with a file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from stelae.client.catalog import CatalogLocations
from stelae.client.locations import FileLocations, NodeLocations, NoSuchTable, TableLocation, TabletLocation
from stelae.protocol.master_errors import NoTable
from stelae.spi.errors import ConfigError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.schema import Schema
from tests.unit.client.tablets import SCHEMA

NODE = "5b4f16d0e9a24f0b8a6f6f5c3f6f7a01"
GOOD = f"""
[tables.readings]
partition.hash = [{{columns = ["sensor"], buckets = 2}}]
tablets = [
    {{id = "readings-0", members = [{{uuid = "{NODE}", address = "127.0.0.1:7051"}}]}},
    {{id = "readings-1"}},
]
[tables.plain]
tablets = [{{id = "plain"}}]
"""


async def schema_of(location: TabletLocation) -> Schema:
    return SCHEMA


def read(path: Path, text: str) -> FileLocations:
    path.joinpath("tables.toml").write_text(text)
    return FileLocations(path / "tables.toml", schema_of)


def found(path: Path, text: str, name: str = "readings") -> TableLocation:
    return asyncio.run(read(path, text).find(name))


def test_a_file_says_tablets_members_and_partitions(tmp_path: Path) -> None:
    locations = read(tmp_path, GOOD)
    assert asyncio.run(locations.tables()) == ["plain", "readings"]
    table = asyncio.run(locations.find("readings"))
    assert table.schema == SCHEMA and table.partition_schema.count == 2
    assert table.tablets == (
        TabletLocation(TabletId("readings-0"), ((NodeId(NODE), "127.0.0.1:7051"),)),
        TabletLocation(TabletId("readings-1")),
    )
    assert found(tmp_path, GOOD, "plain").partitioning().is_unpartitioned


@pytest.mark.parametrize("error", [NoSuchTable, NoTable])
def test_a_table_that_is_not_there_is_told_with_the_nearest_and_not_with_all(error: Any) -> None:
    """It listed sixty."""
    names = [f"table_{n:02}" for n in range(60)]
    told = str(error("Readngs", [*names, "readings", "weather"]))
    others = ", ".join(names[:9])
    assert told == f"no table 'Readngs'; there are: readings, {others} and 52 more"
    assert str(error("x", ["b", "a"])) == "no table 'x'; there are: a, b"
    assert str(error("x", [])) == "no table 'x'; there are: none"


def test_without_a_file_each_tablet_is_a_table() -> None:
    async def tablets() -> list[Any]:
        return ["b", "a", "b"]

    locations = NodeLocations(tablets, schema_of)
    assert asyncio.run(locations.tables()) == ["a", "b"]
    assert asyncio.run(locations.find("a")).tablets == (TabletLocation(TabletId("a")),)
    with pytest.raises(NoSuchTable, match="no table 'c'; there are: a, b"):
        asyncio.run(locations.find("c"))


def test_the_masters_are_asked_for_as_long_as_the_caller_says() -> None:
    """A cluster that is busy making a table needs more than the default, and who gives it that gets it."""
    asked = AsyncMock(side_effect=Unavailable("0 of 1 tablets run"))
    with pytest.raises(Unavailable):
        asyncio.run(CatalogLocations(Mock(running=asked)).find("readings", timeout_s=120.0))
    asked.assert_awaited_once_with("readings", timeout_s=120.0)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("tables = 5", "expected \\[tables.NAME\\]"),
        ("[table.x]\n", "found: table"),
        ("[tables", "cannot be read"),
        ("[tables.readings]\ntablet = []", "partition and tablets, and nothing else"),
        ("[tables.readings]\ntablets = []", "needs tablets"),
        ("[tables.readings]\ntablets = [{name = 'x'}]", "no 'id'"),
        ("[tables.readings]\ntablets = [{id = '../x'}]", "tablet id"),
        ("[tables.readings]\ntablets = [{id = 'x', members = [{uuid = 'y', address = 'z'}]}]", "node uuid"),
        ("[tables.readings]\ntablets = [{id = 'a'}, {id = 'b'}]", "1 partitions and 2 tablets"),
        (GOOD.replace("readings-1", "readings-0"), "names a tablet twice"),
        (GOOD.replace("sensor", "sensr"), "'sensr', but the table has: sensor, minute"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(tmp_path: Path, text: str, fact: str) -> None:
    with pytest.raises(ConfigError, match=fact) as caught:
        found(tmp_path, text)
    assert "tables.toml" in str(caught.value)


def test_the_file_of_the_reference_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/python-client.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    table = found(tmp_path, text.replace('"station"', '"sensor"'))
    assert [len(tablet.members) for tablet in table.tablets] == [1, 1]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.toml"):
        FileLocations(tmp_path / "tables.toml", schema_of)
