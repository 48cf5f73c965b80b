"""Carries out ``stelae cluster``."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import print_fitted, print_note
from stelae.cli.node_formatting import format_here
from stelae.client import AsyncClient, connect_async
from stelae.client.counted import counted
from stelae.local.cluster import CLUSTER_FILE, ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import unhealthy_nodes, until_served
from stelae.local.node_process import NodeProcess
from stelae.protocol.masters_messages import MastersView
from stelae.spi.consensus import Role
from stelae.spi.errors import StelaeError
from stelae.telemetry.target_file import read_target

POLL_S = 0.1

COUNT_DEFAULT = 3
"""The number of masters, and of tablet servers, of a new cluster for which none is given."""

KILL_TIMEOUT_S = 10.0
"""Longest wait for the end of a process after SIGKILL. One that waits for a broken disk does not end before that."""

SPACE_BYTES = 8 << 20
"""Below this free space, a full disk is the likely reason why a cluster does not serve."""

OK, DOWN, SILENT = "ok", "down", "silent"
"""States of a node. The process of a silent node runs, but it does not answer or the masters do not hear from it."""


def run_up(
    directory: Path, masters: int, servers: int, engines: dict[str, str], timeout_s: float, *, as_json: bool
) -> int:
    """Create the cluster if it does not exist, start it, and wait until it serves."""
    if (directory / CLUSTER_FILE).exists():
        cluster = ClusterWithMasters.open(directory)
        _name_ignored(cluster, directory, masters, servers, engines)
    else:
        options = ClusterOptions(node_count=servers, engines=engines or None)
        cluster = ClusterWithMasters.create(directory, options, masters=masters, formatted=format_here)
        note(f"created {counted(masters, 'master')} and {counted(servers, 'tablet server')} in {directory}")
    with _named_leftovers(cluster):
        cluster.start(outlive=True)
        note("waiting until the masters have heard from every tablet server")
        asyncio.run(until_served(cluster, timeout_s))
    if as_json:
        print_json({"directory": str(directory), "addresses": cluster.addresses, "nodes": _processes(cluster, {})})
    else:
        print(f"connect to {','.join(cluster.addresses)}")
        note(f"stop it with: stelae cluster down {directory}")
    return EXIT_OK


@contextmanager
def _named_leftovers(cluster: ClusterWithMasters) -> Iterator[None]:
    """After an error or Ctrl-C, say which processes keep running, and what to do with them."""
    try:
        yield
    except (KeyboardInterrupt, StelaeError, OSError):
        if running := [node.name for node in cluster.nodes if node.running_pid() is not None]:
            where = cluster.directory
            note(f"{', '.join(running)} keep running: look with `stelae cluster status {where}`, stop them with")
            note(f"`stelae cluster down {where}`, or start the others with `stelae cluster up {where}`")
        note_full_disk(cluster.directory)
        raise


def note_full_disk(directory: Path) -> None:
    """After an error, say that the disk is full if it is. The nodes perhaps could not even write that to their logs."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < SPACE_BYTES:
        note(f"note: the disk of {directory} is full: {free_bytes >> 10:,} KiB are free")


def _name_ignored(
    cluster: ClusterWithMasters, directory: Path, masters: int, servers: int, engines: dict[str, str]
) -> None:
    """Name the options that are for a new cluster, and differ from this one. A default was perhaps not asked for."""
    other_count = servers not in (len(cluster.servers), COUNT_DEFAULT)
    ignored = [counted(servers, "tablet server")] if other_count else []
    if masters not in (len(cluster.masters), COUNT_DEFAULT):
        ignored.append(counted(masters, "master"))
    ignored += [f"--{kind} {name}" for kind, name in engines.items()]
    if ignored:
        note(f"the cluster exists, and is started as it is; for a new one only: {', '.join(ignored)}")
    if other_count and servers > len(cluster.servers):
        note(f"add a tablet server to it with: stelae cluster add-server {directory}")


def run_add_server(directory: Path, timeout_s: float, *, as_json: bool) -> int:
    """Format and start one more tablet server, and wait until the masters have heard from it."""
    cluster = ClusterWithMasters.open(directory, formatted=format_here)
    node = cluster.add_server()
    note(f"waiting until the masters have heard from {node.name}")
    with _named_leftovers(cluster):
        node.start(outlive=True)
        asyncio.run(until_served(cluster, timeout_s, server=node))
    if as_json:
        print_json({"directory": str(directory), "name": node.name, "node_id": node.node_id, "address": node.address})
    else:
        note(f"added {node.name} at {node.address}")
    return EXIT_OK


def run_status(directory: Path, *, as_json: bool) -> int:
    """Print the state of the nodes and the tables, and return the exit code."""
    cluster = ClusterWithMasters.open(directory)
    found = asyncio.run(_cluster_status(cluster))
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
    for name in found["removed"]:
        note(f"{name} is none of the masters of the cluster any more; see: stelae master list")


def run_down(directory: Path, timeout_s: float, *, as_json: bool) -> int:
    """Stop every process, the tablet servers first, and return the exit code. Each group has ``timeout_s``."""
    cluster = ClusterWithMasters.open(directory)
    parts = [_stop(group, timeout_s) for group in (cluster.servers, cluster.masters)]
    stopped, killed, running = ([name for names in found for name in names] for found in zip(*parts, strict=True))
    if as_json:
        print_json({"directory": str(directory), "stopped": stopped, "killed": killed, "running": running})
    else:
        if stopped or not running:
            note(f"stopped {', '.join(stopped)}" if stopped else "no node was running")
        if killed:
            note(f"killed because they did not stop in time: {', '.join(killed)}")
        if running:
            note(f"still run after SIGKILL: {', '.join(running)}; their processes may be waiting for the disk")
    return EXIT_FAILED if running else EXIT_OK


def _stop(nodes: Sequence[NodeProcess], timeout_s: float) -> tuple[list[str], list[str], list[str]]:
    """Stop nodes at once. Return the names of those that have ended, that got SIGKILL, and that run nevertheless."""
    pids = {node: pid for node in nodes if (pid := node.running_pid()) is not None}
    for pid in pids.values():
        _signal(pid, signal.SIGTERM)
    late = _still_running(pids, timeout_s)
    for pid in late.values():
        _signal(pid, signal.SIGKILL)
    # Otherwise `stelae cluster up` would take the process for a running node, and not start it again.
    running = _still_running(late, KILL_TIMEOUT_S)
    ended = [node.name for node in pids if node not in running]
    return ended, [node.name for node in late], [node.name for node in running]


def _still_running(pids: Mapping[NodeProcess, int], timeout_s: float) -> dict[NodeProcess, int]:
    """Wait until these processes have ended. Return those that still run after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    running = dict(pids)
    while True:
        running = {node: pid for node, pid in running.items() if node.running_pid() == pid}
        if not running or time.monotonic() >= deadline:
            return running
        time.sleep(POLL_S)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


async def _cluster_status(cluster: ClusterWithMasters) -> dict[str, Any]:
    catalog_state, ailing = await asyncio.gather(_catalog_state(cluster), unhealthy_nodes(cluster))
    return {"directory": str(cluster.directory), "nodes": _processes(cluster, ailing), **catalog_state}


async def _catalog_state(cluster: ClusterWithMasters) -> dict[str, Any]:
    """Return what the masters report: the leading master, masters of the folder that were removed, and the tables."""
    tables: list[str] = []
    problem: str | None = None
    leader: str | None = None
    removed: list[str] = []
    try:
        async with await connect_async(cluster.addresses, contacts=cluster.contacts, timeout_s=3.0) as client:
            tables = await client.tables()
            view = await client.masters.view(timeout_s=3.0)
            leader = await _leader(view, client, cluster)
            members = {node_id for node_id, _ in view.members}
            removed = [node.name for node in cluster.masters if node.node_id not in members]
    except StelaeError as error:
        problem = str(error)
    return {"leader": leader, "removed": removed, "tables": tables, "problem": problem}


async def _leader(view: MastersView, client: AsyncClient, cluster: ClusterWithMasters) -> str | None:
    """Return the name of the leading master: the one that leads in the latest term. ``None``: no master leads.

    A master outside of the folder has its address for a name."""
    names = {node.node_id: node.name for node in cluster.masters}
    found: dict[int, str] = {}
    for node_id, address in view.members:
        with suppress(StelaeError):
            reports = await client.connection.status(node_id)
            found |= {report.term: names.get(node_id, address) for report in reports if report.role == Role.LEADER}
    return found[max(found)] if found else None


def _processes(cluster: ClusterWithMasters, problems: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for node in cluster.nodes:
        pid = node.running_pid()
        metrics = read_target(str(node.directory / "data")) if pid is not None else None
        identity = {"name": node.name, "node_id": node.node_id, "address": node.address, "role": node.role}
        problem = problems.get(node.name, "") if pid is not None else _data_in_use(node)
        state = DOWN if pid is None else SILENT if problem else OK
        found.append({**identity, "pid": pid, "state": state, "problem": problem, "metrics": metrics})
    return found


def _data_in_use(node: NodeProcess) -> str:
    """Return why a node that does not run cannot start now; empty if it can."""
    pid = node.offline_pid()
    return "" if pid is None else f"process {pid}, a command for a stopped node, uses its data; wait for its end"
