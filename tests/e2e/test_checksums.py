"""``stelae check --checksums`` on real processes: "differ" is said only of rows that were compared."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.machine.files import RealFiles
from stelae.spi.ids import TabletId
from stelae.spi.schema import Schema
from stelae.spi.services import SharedParts
from stelae.spi.store import ApplyEntry
from stelae.testing.conformance.store_harness import payload, upsert
from stelae_store_columnar import ColumnarStore
from tests.e2e import in_process
from tests.e2e.test_cluster_commands import answer, process, stelae, until_content, until_given_up

FLUSHING = "\n[maintenance]\nflush_interval_ms = 10\n"
ROWS = 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A running cluster of one master and three tablet servers, which flush at once what they apply."""
    directory = str(tmp_path / "cluster")
    process("cluster", "up", directory, "--masters", "1")
    process("cluster", "down", directory)
    for config in Path(directory).glob("*/node.toml"):
        config.write_text(config.read_text() + FLUSHING)
    process("cluster", "up", directory)
    try:
        yield directory
    finally:
        process("cluster", "down", directory)


def servers(cluster: str) -> list[dict[str, Any]]:
    """The tablet servers, whether they run or not."""
    found = json.loads(in_process.stelae("cluster", "status", cluster, "--json").stdout)
    return [node for node in found["nodes"] if node["role"] == "tserver"]


def superblock_file(cluster: str, server: dict[str, Any], tablet: TabletId) -> SuperblockFile:
    return SuperblockFile(RealFiles(), DirectoryLayout(str(Path(cluster, server["name"], "data"))), tablet)


def flushed_block(cluster: str, server: dict[str, Any], tablet: TabletId) -> Superblock:
    """The superblock of a replica once all rows are flushed: what is applied and what is flushed are the same."""
    file = superblock_file(cluster, server, tablet)
    for _ in until_given_up():
        found = file.load()
        with_rows = found is not None and found.manifest
        if found is not None and with_rows and str(found.flushed) == applied(cluster, server, tablet):
            return found
    pytest.fail("the replica does not flush")


def applied(cluster: str, server: dict[str, Any], tablet: TabletId) -> str:
    """The op id of the last entry of a replica's log."""
    (table,) = answer("check", "--dir", cluster)["tables"]
    (found,) = [one for one in table["tablets"] if one["tablet_id"] == tablet]
    return next(r["last"] for r in found["replicas"] if r["address"] == server["address"])


def idle_table(cluster: str, tmp_path: Path) -> TabletId:
    """A table of one tablet whose rows are flushed everywhere, and that nobody writes to any more."""
    stelae("table", "create", "idle", "--column", "id:int64", "--key", "id", "--dir", cluster)
    file = tmp_path / "rows.csv"
    file.write_text("id\n" + "".join(f"{row}\n" for row in range(ROWS)))
    stelae("import", str(file), "--table", "idle", "--dir", cluster)
    ((tablet,),) = [table["tablets"] for table in until_content(cluster)["tables"]]
    for server in servers(cluster):
        flushed_block(cluster, server, TabletId(tablet["tablet_id"]))
    return TabletId(tablet["tablet_id"])


def kill(cluster: str, server: dict[str, Any]) -> None:
    os.kill(server["pid"], signal.SIGKILL)
    for _ in until_given_up():
        if not next(one for one in servers(cluster) if one["name"] == server["name"])["pid"]:
            return


def test_a_restarted_replica_of_an_idle_table_is_compared_and_a_real_difference_is_found(
    cluster: str, tmp_path: Path
) -> None:
    """After a restart that replayed nothing, a replica did not know of when its rows were: it could not be compared,
    and the report said that its rows differed."""
    tablet = idle_table(cluster, tmp_path)
    (described,) = answer("tablet", "list", "--table", "idle", "--dir", cluster)["tablets"]
    follower = next(one for one in servers(cluster) if one["address"] != described["leader"])
    kill(cluster, follower)
    process("cluster", "up", cluster)
    until_content(cluster)
    found = answer("check", "--checksums", "--dir", cluster)
    assert found["ok"] and set(found["checksums"]) == {tablet}, found["problems"]
    assert found["differ"] == found["not_compared"] == {}

    follower = next(one for one in servers(cluster) if one["address"] == follower["address"])
    kill(cluster, follower)
    write_a_row_behind_the_log(cluster, follower, tablet)
    process("cluster", "up", cluster)
    until_content(cluster)
    broken = answer("check", "--checksums", "--dir", cluster, expect=1)
    assert not broken["ok"] and tablet not in broken["checksums"]
    assert any("rows differ" in problem for problem in broken["problems"]), broken["problems"]
    assert set(broken["differ"]) == {tablet} and broken["not_compared"] == {}


def write_a_row_behind_the_log(cluster: str, server: dict[str, Any], tablet: TabletId) -> None:
    """Give the store of a node that is down another row, which no entry of the log brought."""
    file = superblock_file(cluster, server, tablet)
    block = file.load()
    assert block is not None
    schemas = {schema.version: schema for schema in map(Schema.from_bytes, block.schemas)}
    services: Any = SimpleNamespace(files=RealFiles(), shared=SharedParts())
    place = DirectoryLayout(str(Path(cluster, server["name"], "data"))).data_of(tablet)
    store = ColumnarStore.open(place, block.manifest, block.flushed, schemas, ColumnarStore.Config(), services)
    change = payload(store.schema, [upsert((ROWS + 1,))])
    store.apply([ApplyEntry(block.flushed._replace(index=block.flushed.index + 1), 1, change)])
    edit = store.flush()
    assert edit is not None
    file.save(msgspec.structs.replace(block, manifest=edit.manifest))
    store.close()
