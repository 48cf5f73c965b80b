"""The client against real processes: failures under it, replicas that help, a table over several nodes."""

from __future__ import annotations

import asyncio
import pickle
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import Client, RowsFailed, SessionOptions, connect, connect_async
from stelae.client.locations import NoSuchTable
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.demo_verification import Agreement, wait_for_agreement
from stelae.local.node_process import NodeProcess
from stelae.local.ports import free_ports
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from tests.e2e.starting import start, wait_until_answered

COLUMNS = [
    {"name": "sensor", "type": "int32"},
    {"name": "minute", "type": "int64"},
    {"name": "celsius", "type": "double", "nullable": True},
]
NOTE = {"name": "note", "type": "string", "nullable": True}
KEY = ["sensor", "minute"]
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes with one tablet, ``readings``."""
    spec = TabletSpec(tablet_id=TabletId("readings"), columns=[*COLUMNS, NOTE], key=KEY)
    made = LocalCluster.create(
        tmp_path_factory.mktemp("three") / "cluster", spec, ClusterOptions(settings=SETTINGS), formatted=format_here
    )
    start(made)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with connect(",".join(cluster.addresses)) as connected:
        yield connected


def leader_of(cluster: LocalCluster) -> NodeProcess:
    """The node that leads ``readings``."""

    async def ask() -> NodeId:
        async with await connect_async(cluster.addresses) as client:
            nodes = client.connection.nodes
            async with asyncio.timeout(20):
                while True:
                    reports = [report for node in nodes for report in await client.connection.status(node)]
                    leaders = [report.node_id for report in reports if report.role == "LEADER"]
                    if leaders:
                        return leaders[0]
                    await asyncio.sleep(0.05)

    return cluster.node(asyncio.run(ask()))


def frame(sensor: int, count: int) -> pa.Table:
    return pa.table(
        {
            "sensor": pa.array([sensor] * count, pa.int32()),
            "minute": pa.array(range(count), pa.int64()),
            "celsius": pa.array([n / 2 for n in range(count)]),
        }
    )


def of(sensor: int) -> tuple[str, str, int]:
    return ("sensor", "=", sensor)


def test_a_table_is_found_without_a_file_and_others_are_named(client: Client) -> None:
    assert client.tables() == ["readings"]
    assert list(client.table("readings").key) == KEY
    with pytest.raises(NoSuchTable, match="no table 'reading'; there are: readings"):
        client.table("reading")


def test_rows_go_in_and_come_back_in_every_form(client: Client) -> None:
    table = client.table("readings")
    table.insert(frame(1, 30_000))
    found = table.scan(frame(1, 1).column_names, of(1), order="key").to_arrow()
    assert found.cast(frame(1, 1).schema).equals(frame(1, 30_000))
    assert table.scan(where=of(1)).to_pandas()["celsius"].sum() == sum(n / 2 for n in range(30_000))
    assert table.scan(where=of(1)).to_polars().height == 30_000
    assert table.get((1, 29_999)) == {"sensor": 1, "minute": 29_999, "celsius": 14_999.5, "note": None}
    assert sum(batch.num_rows for batch in table.scan(where=of(1))) == 30_000


def test_a_session_survives_the_death_of_the_leader_and_writes_every_row_once(cluster: LocalCluster) -> None:
    with connect(cluster.addresses) as client:
        table = client.table("readings")
        victim = leader_of(cluster)
        # Inserts: a row that were written twice would be a failure.
        with table.session(SessionOptions(flush_rows=100, timeout_s=60)) as session:
            for minute in range(4000):
                if minute == 1500:
                    victim.kill()
                session.insert({"sensor": 2, "minute": minute})
        victim.start()
        found = table.scan(["minute"], of(2), order="key").to_arrow()
        assert found["minute"].to_pylist() == list(range(4000))


def test_a_scan_goes_on_at_another_replica_with_the_same_snapshot(cluster: LocalCluster) -> None:
    with connect(cluster.addresses) as client:
        table = client.table("readings")
        table.insert(frame(3, 40_000))
        found, victim = 0, leader_of(cluster)
        for number, batch in enumerate(table.scan(where=of(3))):
            found += batch.num_rows
            if number == 0:
                victim.kill()
                table.upsert({"sensor": 3, "minute": 99_999}, timeout_s=60)
        victim.start()
        assert found == 40_000
        assert table.scan(where=of(3)).count() == 40_001


def test_an_older_time_is_the_same_on_every_replica_that_serves_it(cluster: LocalCluster) -> None:
    with connect(cluster.addresses) as client:
        table = client.table("readings")
        before = table.insert(frame(4, 100)).timestamp
        after = table.delete([(4, n) for n in range(50)]).timestamp
        for _ in range(6):
            assert table.scan(where=of(4), at=before).count() == 100
            assert table.scan(where=of(4), at=after).count() == 50
            assert table.scan(where=of(4), at=table.now()).count() == 50
            assert table.scan(where=of(4), own_writes=True).count() == 50
            assert table.scan(where=of(4), staleness_s=0).count() == 50


def test_a_replica_that_is_cut_off_still_serves_what_it_has_applied_beyond(cluster: LocalCluster) -> None:
    with connect(cluster.addresses) as client:
        table = client.table("readings")
        before = table.insert(frame(8, 1000)).timestamp
        table.upsert({"sensor": 8, "minute": 5000})
        assert asyncio.run(agreed(cluster)).agree
        leader = leader_of(cluster)
        gone = [leader, next(node for node in cluster.nodes if node is not leader)]
        for node in gone:
            node.kill()
        assert table.scan(where=of(8), at=before, timeout_s=60).count() == 1000
        with pytest.raises(Unavailable):
            table.scan(where=of(8), timeout_s=0.5).count()
        for node in gone:
            node.start()
        assert table.scan(where=of(8), timeout_s=60).count() == 1001


async def agreed(cluster: LocalCluster) -> Agreement:
    """Whether the replicas agree, once all nodes answer: one may just have been started again."""
    wanted = {node.node_id for node in cluster.nodes}
    async with asyncio.timeout(60):
        while True:
            async with await connect_async(cluster.addresses) as client:
                if wanted <= set(client.connection.nodes):
                    replicas = {cluster.tablet_id: sorted(wanted)}
                    return await wait_for_agreement(client.connection, replicas, cluster.check)
            await asyncio.sleep(0.05)


def test_a_time_after_the_last_write_is_served_though_nobody_writes(client: Client) -> None:
    """A follower cannot say that nothing has come since; the leader can."""
    table = client.table("readings")
    table.insert(frame(5, 10))
    moment = table.now()
    assert table.scan(where=of(5), at=moment).count() == 10
    table.upsert({"sensor": 5, "minute": 77})
    assert table.scan(where=of(5), at=moment).count() == 10


def test_a_time_that_is_far_ahead_is_refused(client: Client) -> None:
    table = client.table("readings")
    with pytest.raises(StelaeError, match="ahead of this node's clock"):
        table.scan(at=table.now() + (3_600_000_000 << 12)).count()


def test_a_token_is_carried_out_by_another_process(client: Client) -> None:
    table = client.table("readings")
    table.insert(frame(6, 20))
    (token,) = table.scan(["minute"], of(6), at=table.now()).tokens()
    program = (
        "import pickle, sys\n"
        "from stelae.client import connect\n"
        "token = pickle.load(sys.stdin.buffer)\n"
        "with connect(token.addresses) as client:\n"
        "    print(client.open(token).count())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(token), capture_output=True, timeout=60)
    assert done.stdout == b"20\n", done.stderr.decode()


def test_threads_share_a_client(client: Client) -> None:
    table = client.table("readings")

    def write(sensor: int) -> None:
        for minute in range(20):
            table.insert({"sensor": sensor, "minute": minute})

    threads = [threading.Thread(target=write, args=(100 + n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table.scan(where=[("sensor", ">=", 100), ("sensor", "<", 108)]).count() == 160


def test_a_closed_client_says_so(cluster: LocalCluster) -> None:
    client = connect(cluster.addresses)
    table = client.table("readings")
    client.close()
    client.close()
    with pytest.raises(Unavailable, match="the client is closed"):
        table.get((1, 1))


def test_a_value_that_the_tablet_finds_too_large_fails_its_row_alone(client: Client) -> None:
    rows = [{"sensor": 7, "minute": n, "note": "x" * (70_000 if n == 3 else 7)} for n in range(5)]
    with pytest.raises(
        RowsFailed, match=r"row 3: BAD_VALUE: column 'note' has 70000 bytes; at most 65536 are accepted"
    ):
        client.table("readings").insert(rows)
    assert client.table("readings").scan(where=of(7)).count() == 4


def test_the_later_of_two_rows_of_a_large_call_wins(client: Client) -> None:
    """A request too large for what the link would take just then was overtaken by the small one behind it."""
    sizes = [2500] * 4096 + [6000] * 4096 + [1] * 8192
    rows = [{"sensor": 8, "minute": n, "note": "x" * size} for n, size in enumerate(sizes)]
    rows[8191] = {"sensor": 8, "minute": -1, "note": "first"}
    rows[-1] = {"sensor": 8, "minute": -1, "note": "second"}
    assert client.table("readings").upsert(rows, timeout_s=60).written == len(rows)
    last = client.table("readings").get((8, -1))
    assert last is not None and last["note"] == "second"


def test_rows_that_a_program_makes_while_they_are_written_are_made_in_its_own_thread(client: Client) -> None:
    """A generator that read with the same client met "a synchronous call from the client's own thread"."""
    table, made_by = client.table("readings"), set()
    table.upsert(frame(9, 500))

    def copied() -> Iterator[dict[str, object]]:
        for batch in table.scan(where=of(9)):
            made_by.add(threading.current_thread())
            yield from ({**row, "sensor": 10} for row in batch.to_pylist())

    assert table.upsert(copied()).written == 500
    assert table.scan(where=of(10)).count() == 500 and made_by == {threading.current_thread()}
    assert table.upsert(table.scan(where=of(9))).written == 500
    with pytest.raises(RowsFailed, match="row 501: BAD_VALUE") as failed:
        table.insert(row for row in [*({"sensor": 11, "minute": n} for n in range(501)), {"sensor": "?", "minute": 1}])
    assert failed.value.result.written == 501


# -- a table over several nodes ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[NodeProcess], Path]]:
    """Four nodes of one cluster, each with one tablet of the table, and the file that says so."""
    folder = tmp_path_factory.mktemp("spread")
    cluster_id = f"spread-{secrets.token_hex(4)}"
    nodes = []
    for number, port in enumerate(free_ports(4)):
        node = NodeProcess(f"n{number}", NodeId(secrets.token_hex(16)), f"127.0.0.1:{port}", folder / f"n{number}")
        node.directory.mkdir()
        node.config_path.write_text(node_toml(node, cluster_id, f"readings-{number}"))
        command = [sys.executable, "-m", "stelae", "fs", "format", "--config", str(node.config_path)]
        subprocess.run(command, check=True, capture_output=True)
        nodes.append(node)
    tables = folder / "tables.toml"
    tables.write_text(locations(nodes))
    try:
        for node in nodes:
            node.start()
        wait_until_answered(nodes)
        yield nodes, tables
    finally:
        for node in nodes:
            node.kill()


def node_toml(node: NodeProcess, cluster_id: str, tablet: str) -> str:
    columns = ", ".join(
        f'{{name = "{c["name"]}", type = "{c["type"]}", nullable = {str(c.get("nullable", False)).lower()}}}'
        for c in COLUMNS
    )
    return f"""
[node]
directory = "data"
listen = "{node.address}"
[cluster]
id = "{cluster_id}"
[tablet]
id = "{tablet}"
key = ["sensor", "minute"]
columns = [{columns}]
members = [{{uuid = "{node.node_id}", address = "{node.address}"}}]
"""


def locations(nodes: list[NodeProcess]) -> str:
    tablets = ",\n".join(
        f'    {{id = "readings-{n}", members = [{{uuid = "{node.node_id}", address = "{node.address}"}}]}}'
        for n, node in enumerate(nodes)
    )
    return f"""
[tables.readings]
partition.hash = [{{columns = ["sensor"], buckets = 2}}]
partition.range = {{columns = ["minute"], bounds = [[1000]]}}
tablets = [
{tablets}
]
"""


def test_a_table_over_several_nodes_is_one_table(spread: tuple[list[NodeProcess], Path]) -> None:
    nodes, tables = spread
    with connect(nodes[0].address, tables=tables) as client:
        assert client.tables() == ["readings"]
        table = client.table("readings")
        rows = [{"sensor": n % 7, "minute": n, "celsius": float(n)} for n in range(2000)]
        before = table.insert(rows).timestamp
        by_key = sorted(rows, key=lambda row: (row["sensor"], row["minute"]))
        assert table.scan(order="key").to_pylist() == by_key
        assert table.scan(order="key_descending", limit=500).to_pylist() == by_key[::-1][:500]
        table.delete([(row["sensor"], row["minute"]) for row in rows[:1500]])
        assert table.scan().count() == 500
        assert table.scan(at=before).count() == 2000
        assert table.scan(at=table.now()).count() == 500
        assert len(table.scan(where=[("sensor", "=", 3), ("minute", "<", 10)]).tokens()) == 1
        assert table.get((4, 1501)) is None and table.get((1502 % 7, 1502)) == rows[1502]
    with connect([node.address for node in nodes]) as client:
        assert client.tables() == [f"readings-{n}" for n in range(4)]
        held = [client.table(name).scan().count() for name in client.tables()]
        assert sum(held) == 500 and held[0] == held[1] == 0 and min(held[2:]) > 100


def test_a_node_that_is_away_fails_the_rows_of_its_tablet_alone(spread: tuple[list[NodeProcess], Path]) -> None:
    nodes, tables = spread
    with connect(nodes[0].address, tables=tables) as client:
        table = client.table("readings")
        nodes[3].kill()
        rows = [{"sensor": n, "minute": 5000} for n in range(20)]
        result = table.upsert(rows, errors="return", timeout_s=1.5)
        assert {failure.code for failure in result.failures} == {"UNKNOWN_OUTCOME"}
        assert 0 < result.written < 20
        nodes[3].start()
        assert table.upsert(rows, timeout_s=60).written == 20
        assert table.scan(where=("minute", "=", 5000)).count() == 20
