"""Programs that end without closing their session: rows are written where that is possible, and told where not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import connect
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.ids import TabletId
from tests.e2e.starting import start

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "value", "type": "string", "nullable": True}]
ROWS = 5
TIMEOUT_S = 60
SYNC = """
from stelae.client import SessionOptions, connect
client = connect({address!r})
session = client.table("readings").session(SessionOptions(auto_flush={auto}, flush_interval_s=1000))
for n in range({rows}):
    session.insert({{"id": n, "value": {value}}})
{end}
"""
ASYNC = """
import asyncio
from stelae.client import SessionOptions, connect_async
async def main():
    client = await connect_async({address!r})
    session = (await client.table("readings")).session(SessionOptions(auto_flush={auto}, flush_interval_s=1000))
    for n in range({rows}):
        await session.insert({{"id": n, "value": {value}}})
    {end}
asyncio.run(main())
"""
UNWRITTEN = "UnwrittenRows: a session on table 'readings' was left open; rows that were handed in and are not written"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    spec = TabletSpec(tablet_id=TabletId("readings"), columns=COLUMNS, key=["id"])
    made = LocalCluster.create(
        tmp_path_factory.mktemp("one") / "cluster", spec, ClusterOptions(node_count=1), formatted=format_here
    )
    start(made)
    try:
        yield made
    finally:
        made.stop()


def ended(cluster: LocalCluster, program: str, end: str, *, auto: bool, value: str = "'a'") -> tuple[str, int, int]:
    """Run a program to its end; return what it said, its exit code, and how many rows are there. They go again."""
    text = program.format(address=cluster.addresses[0], end=end, auto=auto, rows=ROWS, value=value)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=TIMEOUT_S)
    with connect(cluster.addresses) as client:
        table = client.table("readings")
        found = table.scan(["id"]).to_arrow()
        table.delete(found)
    assert done.stdout == ""
    return done.stderr, done.returncode, len(found)


@pytest.mark.parametrize("end", ["", "client.close()", "del session, client", "raise SystemExit(0)"])
def test_a_program_that_ends_has_its_rows_written(cluster: LocalCluster, end: str) -> None:
    assert ended(cluster, SYNC, end, auto=True) == ("", 0, ROWS)


def test_a_program_that_fails_has_its_rows_written_and_its_error_told(cluster: LocalCluster) -> None:
    said, code, rows = ended(cluster, SYNC, "1 / 0", auto=True)
    assert (code, rows) == (1, ROWS) and said.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("end", ["", "client.close()"])
def test_rows_that_nobody_flushed_by_hand_are_told(cluster: LocalCluster, end: str) -> None:
    said, code, rows = ended(cluster, SYNC, end, auto=False)
    assert (code, rows) == (0, 0) and f"<string>:4: {UNWRITTEN}" in said and said.count("UnwrittenRows") == 1


def test_rows_that_were_refused_on_the_way_out_are_told(cluster: LocalCluster) -> None:
    said, code, rows = ended(cluster, SYNC, "", auto=True, value="b'x' if n == 3 else 'a'")
    assert (code, rows) == (0, ROWS - 1)
    assert "rows that were refused: 1, the first is row 3: BAD_VALUE: column 'value': expected string" in said


@pytest.mark.parametrize(("end", "rows"), [("pass", 0), ("await client.close()", ROWS)])
def test_a_loop_that_is_gone_cannot_send_and_says_so(cluster: LocalCluster, end: str, rows: int) -> None:
    said, code, found = ended(cluster, ASYNC, end, auto=True)
    assert (code, found) == (0, rows)
    assert (f"<string>:6: {UNWRITTEN}" in said) == (rows == 0) and said.count("UnwrittenRows") == (rows == 0)


def test_a_fork_that_ends_says_and_sends_nothing_of_its_parents_rows(cluster: LocalCluster) -> None:
    fork = "import os, sys\nif pid := os.fork():\n    os.waitpid(pid, 0)\n    session.close()\nelse:\n    sys.exit(0)"
    said, code, rows = ended(cluster, SYNC, fork, auto=True)
    assert (code, rows) == (0, ROWS) and "UnwrittenRows" not in said
