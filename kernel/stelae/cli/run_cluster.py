"""Carries out ``stelae cluster``."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import counted, print_fitted, print_note
from stelae.cli.node_formatting import format_here
from stelae.client import AsyncClient, connect_async
from stelae.local.cluster import CLUSTER_FILE, ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import troubles, until_served
from stelae.spi.consensus import Role
from stelae.spi.errors import StelaeError
from stelae.telemetry.target import read_target

POLL_S = 0.1

OK, DOWN, SILENT = "ok", "down", "silent"
"""States of a node: of one that is silent a process runs, and it does not do its part."""


def run_up(
    directory: Path, masters: int, servers: int, engines: dict[str, str], timeout_s: float, *, as_json: bool
) -> int:
    """Make the cluster unless it is there, start it, and wait until it serves."""
    if (directory / CLUSTER_FILE).exists():
        cluster = ClusterWithMasters.open(directory)
    else:
        options = ClusterOptions(node_count=servers, engines=engines or None)
        cluster = ClusterWithMasters.create(directory, options, masters=masters, formatted=format_here)
        note(f"made {counted(masters, 'master')} and {counted(servers, 'tablet server')} in {directory}")
    cluster.start(outlive=True)
    note("waiting for the masters to hear of every tablet server")
    asyncio.run(until_served(cluster, timeout_s))
    if as_json:
        print_json({"directory": str(directory), "addresses": cluster.addresses, "nodes": _processes(cluster, {})})
    else:
        print(f"connect to {','.join(cluster.addresses)}")
        note(f"stop it with: stelae cluster down {directory}")
    return EXIT_OK


def run_status(directory: Path, *, as_json: bool) -> int:
    """Say what runs and what the masters know."""
    cluster = ClusterWithMasters.open(directory)
    found = asyncio.run(_look(cluster))
    well = all(node["state"] == OK for node in found["nodes"]) and found["problem"] is None
    if as_json:
        print_json({**found, "ok": well})
    else:
        _print(found)
    return EXIT_OK if well else EXIT_FAILED


def _print(found: dict[str, Any]) -> None:
    rows = [
        (n["name"], n["address"], n["pid"] or "-", n["role"], n["state"], n["metrics"] or "-") for n in found["nodes"]
    ]
    print_fitted(("NODE", "ADDRESS", "PID", "ROLE", "STATE", "METRICS"), rows)
    for node in found["nodes"]:
        if node["problem"]:
            print_note(f"{node['name']} is {node['state']}: {node['problem']}")
    if found["problem"] is not None:
        note(f"the masters do not serve: {found['problem']}")
    else:
        print(f"\nleading master: {found['leader'] or 'none'}")
        print(f"tables: {', '.join(found['tables']) or 'none'}")


def run_down(directory: Path, timeout_s: float, *, as_json: bool) -> int:
    """Stop every process, tablet servers first."""
    cluster = ClusterWithMasters.open(directory)
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


async def _look(cluster: ClusterWithMasters) -> dict[str, Any]:
    known, ailing = await asyncio.gather(_known(cluster), troubles(cluster))
    return {"directory": str(cluster.directory), "nodes": _processes(cluster, ailing), **known}


async def _known(cluster: ClusterWithMasters) -> dict[str, Any]:
    """What the masters say."""
    tables: list[str] = []
    problem: str | None = None
    leader: str | None = None
    try:
        async with await connect_async(cluster.addresses, timeout_s=3.0) as client:
            tables = await client.tables()
            leader = await _leader(client, cluster)
    except StelaeError as error:
        problem = str(error)
    return {"leader": leader, "tables": tables, "problem": problem}


async def _leader(client: AsyncClient, cluster: ClusterWithMasters) -> str | None:
    """The name of the master that leads, by the latest term of those that say so."""
    found: dict[int, str] = {}
    for master in cluster.masters:
        with suppress(StelaeError):
            reports = await client.connection.status(master.node_id)
            found |= {report.term: master.name for report in reports if report.role == Role.LEADER}
    return found[max(found)] if found else None


def _processes(cluster: ClusterWithMasters, ailing: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for node in cluster.nodes:
        pid = node.running_pid()
        metrics = read_target(str(node.directory / "data")) if pid is not None else None
        told = {"name": node.name, "node_id": node.node_id, "address": node.address, "role": node.role}
        problem = ailing.get(node.name, "") if pid is not None else ""
        state = DOWN if pid is None else SILENT if problem else OK
        found.append({**told, "pid": pid, "state": state, "problem": problem, "metrics": metrics})
    return found
