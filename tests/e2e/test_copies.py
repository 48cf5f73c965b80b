"""Real processes: a replica that fell behind the log of the others is copied and joins again, without a person."""

from __future__ import annotations

from pathlib import Path

from stelae.client import connect
from stelae.local.node_process import NodeProcess
from tests.e2e.test_lagging_replica import RUN_S, Servers, serving, until

BOUND = {"log": {"lagging_peer_bytes_max": 30000}}


def rows_of(servers: Servers) -> list[int]:
    with connect(servers.cluster.addresses[0]) as client:
        table = client.open_table("late")
        return sorted(row["id"] for row in table.scan(timeout_s=RUN_S).to_pylist())


def lag_beyond_the_log(servers: Servers) -> tuple[NodeProcess, int]:
    """Kill a follower, and write until the logs of the others begin behind its end. Return it, and where it ends."""
    late, ended = servers.kill_follower()
    servers.load(lambda: len(servers.bases()) == 2 and min(servers.bases().values()) > ended)
    for node in servers.cluster.servers:  # What they wrote themselves they still have in memory.
        if node is not late:
            node.kill()
            node.start()
    return late, ended


def test_a_server_that_lags_beyond_the_log_is_copied_joins_and_serves(tmp_path: Path) -> None:
    with serving(tmp_path / "cluster", BOUND) as servers:
        late, ended = lag_beyond_the_log(servers)
        late.start()
        until(lambda: len(servers.facts()) == 3 and len(servers.applied()) == 1)
        until(lambda: servers.verdict() == "HEALTHY: ")
        assert servers.bases()[late.node_id] > ended
        assert rows_of(servers) == list(range(servers.count))
