"""Carries out ``stelae cluster``."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from stelae.cli.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.output import note, print_json, print_table
from stelae.client import AsyncClient, connect_async
from stelae.local.cluster import CLUSTER_FILE, ClusterOptions
from stelae.local.mastered import MasteredCluster
from stelae.spi.errors import StelaeError, Unavailable

POLL_S = 0.1


def run_up(
    directory: Path, masters: int, servers: int, engines: dict[str, str], timeout_s: float, *, as_json: bool
) -> int:
    """Make the cluster unless it is there, start it, and wait until it serves."""
    if (directory / CLUSTER_FILE).exists():
        cluster = MasteredCluster.open(directory)
    else:
        note(f"making {masters} masters and {servers} tablet servers in {directory}")
        options = ClusterOptions(node_count=servers, engines=engines or None)
        cluster = MasteredCluster.create(directory, options, masters=masters)
    cluster.start(outlive=True)
    note("waiting for the masters to hear of every tablet server")
    asyncio.run(_until_served(cluster, time.monotonic() + timeout_s))
    if as_json:
        print_json({"directory": str(directory), "addresses": cluster.addresses, "nodes": _processes(cluster)})
    else:
        print(f"connect to {','.join(cluster.addresses)}")
        note(f"stop it with: stelae cluster down {directory}")
    return EXIT_OK


def run_status(directory: Path, *, as_json: bool) -> int:
    """Say what runs and what the masters know."""
    cluster = MasteredCluster.open(directory)
    found = asyncio.run(_look(cluster))
    well = all(node["pid"] for node in found["nodes"]) and found["problem"] is None
    if as_json:
        print_json({**found, "ok": well})
    else:
        rows = [(n["name"], n["address"], n["pid"] or "down", n["role"]) for n in found["nodes"]]
        print_table(("NODE", "ADDRESS", "PID", "ROLE"), rows)
        if found["problem"] is not None:
            note(f"the masters do not serve: {found['problem']}")
        else:
            print(f"\ntables: {', '.join(found['tables']) or 'none'}")
    return EXIT_OK if well else EXIT_FAILED


def run_down(directory: Path, timeout_s: float, *, as_json: bool) -> int:
    """Stop every process, tablet servers first."""
    cluster = MasteredCluster.open(directory)
    stopped, killed = [], []
    deadline = time.monotonic() + timeout_s
    for group in (cluster.servers, cluster.masters):
        running = {node: pid for node in group if (pid := node.running_pid()) is not None}
        for pid in running.values():
            _signal(pid, signal.SIGTERM)
        for node, pid in running.items():
            while node.running_pid() == pid and time.monotonic() < deadline:
                time.sleep(POLL_S)
            if node.running_pid() == pid:
                _signal(pid, signal.SIGKILL)
                killed.append(node.name)
            stopped.append(node.name)
    if as_json:
        print_json({"directory": str(directory), "stopped": stopped, "killed": killed})
    else:
        note(f"stopped {', '.join(stopped) or 'nothing: no process ran'}")
        if killed:
            note(f"killed, since they did not stop in time: {', '.join(killed)}")
    return EXIT_OK


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


async def _until_served(cluster: MasteredCluster, deadline: float) -> None:
    """Wait until a leading master has heard of every tablet server; ``NodeExited``: a process has ended."""
    problem: object = "nobody answered"
    while time.monotonic() < deadline:
        cluster.check()
        try:
            async with await connect_async(cluster.addresses, timeout_s=2.0) as client:
                heard = await _heard(client)
                missing = [node.name for node in cluster.servers if node.node_id not in heard]
                if not missing:
                    return
                problem = f"not heard of: {', '.join(missing)}"
        except StelaeError as error:
            problem = error
        await asyncio.sleep(POLL_S)
    logs = cluster.masters[0].log_path
    raise Unavailable(f"the cluster does not serve yet ({problem}); see the logs, for example {logs}")


async def _heard(client: AsyncClient) -> set[str]:
    """Tablet servers that the leading master has heard from since it leads."""
    if client.catalog is None:
        return set()
    servers = (await client.catalog.list_servers(timeout_s=2.0)).servers
    return {server.node_id for server in servers if server.silent_ms is not None}


async def _look(cluster: MasteredCluster) -> dict[str, Any]:
    tables: list[str] = []
    problem: str | None = None
    try:
        async with await connect_async(cluster.addresses, timeout_s=3.0) as client:
            tables = await client.tables()
    except StelaeError as error:
        problem = str(error)
    nodes = _processes(cluster)
    return {"directory": str(cluster.directory), "nodes": nodes, "tables": tables, "problem": problem}


def _processes(cluster: MasteredCluster) -> list[dict[str, Any]]:
    return [
        {"name": n.name, "node_id": n.node_id, "address": n.address, "role": n.role, "pid": n.running_pid()}
        for n in cluster.nodes
    ]
