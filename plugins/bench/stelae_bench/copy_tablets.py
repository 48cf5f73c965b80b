"""The part ``tablets``: many empty tablets leave a server that is retired, for a new one.

The tablets have three replicas on three servers. A fourth server is added, and the masters move one replica of each
tablet there: add, promote, remove."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stelae.client import connect_async
from stelae.client.async_client import AsyncClient
from stelae.client.retirement import Retirement, retirement_of
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import StelaeError, Unavailable
from stelae_bench.copy_nodes import SERVERS, CopyNodes
from stelae_bench.copy_report import TabletsRound
from stelae_bench.process_cpu import spent

CREATE_TIMEOUT_S = 300.0
MOVE_TIMEOUT_S = 3600.0
CONNECT_TIMEOUT_S = 30.0
COMMAND_TIMEOUT_S = 120.0
POLL_S = 0.25
NOTE_S = 10.0
"""How often the progress is shown, in seconds."""


class RetireFailed(StelaeError):
    """``stelae tserver retire`` failed."""

    code = "BENCH_RETIRE_FAILED"


async def move_empty_tablets(directory: Path, tablets: int, note: Callable[[str], None]) -> TabletsRound:
    """Create tablets, add a server, retire another one, and wait until the retired server has no tablets.

    Ends all processes.

    Raises:
        StelaeError: the nodes do not start, a table cannot be created, or the replicas do not move.
    """
    nodes = CopyNodes(directory, {})
    try:
        note(f"tablets: starting 1 master and {SERVERS} tablet servers")
        await nodes.start()
        async with await connect_async(nodes.cluster.addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
            note(f"tablets: creating {tablets} empty tablets with three replicas")
            hashed = {"hash": [{"columns": ["id"], "buckets": tablets}]} if tablets > 1 else None
            await client.create_table("empty", {"id": "int64"}, "id", partition=hashed, timeout_s=CREATE_TIMEOUT_S)
            target = await nodes.new_server()
            note(f"tablets: moving {tablets} replicas to a new server")
            return await _timed(nodes, client, tablets, target, note)
    finally:
        nodes.cluster.kill()


async def _timed(
    nodes: CopyNodes, client: AsyncClient, tablets: int, target: NodeProcess, note: Callable[[str], None]
) -> TabletsRound:
    retired = nodes.cluster.servers[0]
    watched = (retired, target, nodes.cluster.masters[0])
    before = [nodes.cpu_s(node) for node in watched]
    await asyncio.to_thread(_retire, nodes, retired)
    began = time.monotonic()  # The command has taken a second to start, and the masters have taken its order just now.
    await _until_moved(nodes, client, retired, note)
    seconds = time.monotonic() - began
    source_s, target_s, master_s = (
        spent([cpu_s], [nodes.cpu_s(node)]) for node, cpu_s in zip(watched, before, strict=True)
    )
    return TabletsRound(
        tablets=tablets, seconds=seconds, source_cpu_s=source_s, target_cpu_s=target_s, master_cpu_s=master_s
    )


def _retire(nodes: CopyNodes, server: NodeProcess) -> None:
    command = [sys.executable, "-m", "stelae", "tserver", "retire", server.address]
    command += ["--connect", ",".join(nodes.cluster.addresses), "--timeout-s", f"{CONNECT_TIMEOUT_S:g}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode:
        raise RetireFailed(f"stelae tserver retire failed: {done.stderr.strip()[-300:]}")


async def _until_moved(
    nodes: CopyNodes, client: AsyncClient, retired: NodeProcess, note: Callable[[str], None]
) -> None:
    began = noted = time.monotonic()
    while (left := await _left(client, retired)).replicas:
        nodes.cluster.check()
        now = time.monotonic()
        if now - began > MOVE_TIMEOUT_S:
            raise Unavailable(f"the replicas do not leave {retired.name}: {left}")
        if now - noted > NOTE_S:
            noted = now
            note(f"tablets: {left}")
        await asyncio.sleep(POLL_S)


async def _left(client: AsyncClient, retired: NodeProcess) -> Retirement:
    assert client.catalog is not None, "there is a master"
    return retirement_of(retired.node_id, await client.catalog.policy_snapshot())
