"""Carries out ``stelae tserver retire``, ``maintenance`` and ``activate``."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from stelae.cli.asked_copies import CopyLooks
from stelae.cli.copy_amount import CopyAmount, left_text
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.pace import Pace
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.kit.terminal_layout import bytes_text
from stelae.cli.masters_target import MastersTarget
from stelae.cli.named_servers import named_server
from stelae.client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.client.counted import counted
from stelae.client.retirement import Leaderships, Retirement, leaderships_of, retirement_of
from stelae.protocol.catalog_names import ServerMode
from stelae.protocol.master_messages import ServerLine, SetServerMode
from stelae.spi.errors import DeadlineExceeded, RetryableError, Unavailable
from stelae.spi.policy import NodeHealth, PolicySnapshot

POLL_S = 0.5
"""Pause between two looks at a server that retires, in seconds."""

POLL_TABLET_S = 0.000_1
"""Addition to the pause for each tablet of the cluster: the larger the answer, the more it costs the masters."""

STUCK_S = 20.0
"""After this time without a replica on the move, in seconds, the command says where to look."""

_SAID = {
    ServerMode.NORMAL: "gets replicas again",
    ServerMode.MAINTENANCE: "is in maintenance: its replicas are not replaced while it is down",
}


def run_mode(cluster: MastersTarget, name: str, mode: ServerMode, *, as_json: bool) -> int:
    """Set the mode of a tablet server and return the exit code."""

    async def run() -> tuple[ServerLine, bool]:
        async with cluster.masters() as (_, catalog):
            return await _set(cluster, catalog, name, mode)

    server, changed = asyncio.run(run())
    if as_json:
        print_json({"changed": changed, **_plain(server, mode)})
    else:
        note(f"{'done' if changed else 'nothing to do'}: {server.address} {_SAID[mode]}")
    return EXIT_OK


def run_maintenance(
    cluster: MastersTarget, name: str, *, wait_s: float | None, progress: bool | None, as_json: bool
) -> int:
    """Put a tablet server into maintenance and return the exit code.

    ``wait_s`` is the longest wait until it leads nothing that others could lead; ``None``: none."""

    async def run() -> tuple[ServerLine, bool, Leaderships]:
        async with cluster.masters() as (_, catalog):
            server, changed = await _set(cluster, catalog, name, ServerMode.MAINTENANCE)
            with StatusLine(progress) as line:
                return server, changed, await _until_led_by_others(catalog, server, line, wait_s)

    server, changed, led = asyncio.run(run())
    if as_json:
        leads = {"leads": led.left + led.alone, "leads_alone": led.alone}
        print_json({"changed": changed, **_plain(server, ServerMode.MAINTENANCE), **leads})
        return EXIT_OK
    note(f"{'done' if changed else 'nothing to do'}: {server.address} {_SAID[ServerMode.MAINTENANCE]}")
    if led.left:
        note(f"{led} now; wait until they do with: stelae tserver maintenance {name} --wait")
    if led.alone:
        note(f"it has the only full voter of {counted(led.alone, 'tablet')}, offline while it is down")
    return EXIT_OK


async def _until_led_by_others(
    catalog: CatalogClient, server: ServerLine, line: StatusLine, wait_s: float | None
) -> Leaderships:
    """Wait until other replicas lead the tablets of a server, for ``wait_s`` seconds at most, or not at all.

    Raises:
        DeadlineExceeded: it still leads some that others could lead.
    """
    loop = asyncio.get_running_loop()
    begun, most, before, pace = loop.time(), 0, 0, Pace(loop.time())
    while True:
        snapshot = await catalog.policy_snapshot()
        led = leaderships_of(server.node_id, snapshot)
        if not led.left or wait_s is None:
            return led
        now, most = loop.time(), max(most, led.left)
        pace.note(now, most - led.left, (most - led.left) / most)
        left_ms = None if pace.left_s is None else int(pace.left_s * 1000)
        line.show(f"{server.address}: {led}{left_text(left_ms)}", at_once=led.left != before)
        before = led.left
        if now - begun > wait_s:
            fact = f"{server.address} is in maintenance, and after {wait_s:.0f} s {led}"
            why = "the masters go on, and see why they wait: stelae policy explain"
            raise DeadlineExceeded(f"{fact}; {why}. Repeat the command to wait on")
        await asyncio.sleep(_pause_s(snapshot))


def run_retire(cluster: MastersTarget, name: str, *, wait_s: float | None, progress: bool | None, as_json: bool) -> int:
    """Retire a tablet server and return the exit code. ``wait_s`` is the longest wait for its end; ``None``: none."""

    async def run() -> tuple[ServerLine, bool, Retirement, CopyAmount]:
        async with cluster.masters() as (client, catalog):
            server, changed = await _set(cluster, catalog, name, ServerMode.RETIRING)
            with StatusLine(progress) as line:
                return server, changed, *(await _until_empty(client, catalog, server, line, wait_s, name))

    server, changed, left, copies = asyncio.run(run())
    if as_json:
        more = {"replicas": left.replicas, "size_bytes": left.size_bytes, "moving": left.moving}
        times = {"copying": copies.document(), "eta_ms": _eta_ms(left, copies)}
        print_json({"changed": changed, **_plain(server, ServerMode.RETIRING), **more, **times})
    elif left.replicas:
        note(f"{server.address} retires: {_progress(left, copies)}")
        if wait_s is None and (why := why_impossible(name, left)):
            note(why)
        note(f"wait for the end with: stelae tserver retire {name} --wait")
    else:
        note(f"done: {server.address} has no replicas; it can be stopped")
    return EXIT_OK


async def _set(cluster: MastersTarget, catalog: CatalogClient, name: str, mode: ServerMode) -> tuple[ServerLine, bool]:
    """Set the mode of the server that the user names. Return the server, and whether its mode was another one."""
    server = await named_server(cluster, catalog, name)
    if server.mode is mode:
        return server, False
    await catalog.change(SetServerMode(node_id=server.node_id, mode=mode), timeout_s=cluster.timeout_s)
    return server, True


async def _until_empty(
    client: AsyncClient, catalog: CatalogClient, server: ServerLine, line: StatusLine, wait_s: float | None, name: str
) -> tuple[Retirement, CopyAmount]:
    """Wait until a server has no replicas, for ``wait_s`` seconds at most, or not at all if that is ``None``.

    Return what is left, and how far the copies of its tablets to other servers are.

    Raises:
        DeadlineExceeded: it still has some after the wait.
    """
    loop = asyncio.get_running_loop()
    begun = moved_at = loop.time()
    told, before, looks = False, -1, CopyLooks(client.connection, catalog)
    while True:
        snapshot = await catalog.policy_snapshot()
        left = retirement_of(server.node_id, snapshot)
        if not left.replicas and snapshot.nodes[server.node_id].health is not NodeHealth.DEAD:
            left = replace(left, replicas=await _held(client, server))
        if not left.replicas or wait_s is None:
            return left, await looks.amount(snapshot, server.node_id)
        now = loop.time()
        if left.moving or left.replicas != before:
            moved_at, before = now, left.replicas
        if line.is_due:
            line.show(f"{server.address}: {_progress(left, await looks.amount(snapshot, server.node_id))}")
        why = why_impossible(name, left)
        if not told and (why or now - moved_at > STUCK_S):
            told = True
            note(why or _stuck(server, left))
        if now - begun > wait_s:
            fact = f"{server.address} still has {left.replicas} replicas after {wait_s:.0f} s, and goes on retiring"
            raise DeadlineExceeded(f"{fact}; repeat the command to wait on")
        await asyncio.sleep(_pause_s(snapshot))


async def _held(client: AsyncClient, server: ServerLine) -> int:
    """Return the number of replicas that a server says it has: the masters do not show those of tablets that begin.

    ``Unavailable``: it does not answer, and the masters have not given it up yet."""
    try:
        await client.connection.reach(server.address)
        return len(await client.connection.status(server.node_id))
    except RetryableError as error:
        fact = f"{server.address} retires and does not answer, so it may have replicas that the masters do not show yet"
        raise Unavailable(f"{fact} ({error}); repeat the command to look again") from error


def _pause_s(snapshot: PolicySnapshot) -> float:
    return POLL_S + POLL_TABLET_S * len(snapshot.tablets)


def _progress(left: Retirement, copies: CopyAmount) -> str:
    text = f"{left}, {bytes_text(left.size_bytes)} in all"
    return f"{text}; copying {copies.without_end()}{left_text(_eta_ms(left, copies))}" if copies.is_known else text


def _eta_ms(left: Retirement, copies: CopyAmount) -> int | None:
    """Return the time to the end of all copies of a retirement at their present rate; ``None`` if that is unknown."""
    return copies.time_ms(max(0, left.size_bytes - (copies.bytes_done or 0))) if left.replicas else None


def why_impossible(name: str, left: Retirement) -> str | None:
    """Return why a server cannot give its replicas away, and what to do, or ``None`` if enough servers are live."""
    if left.others >= left.needed:
        return None
    live = f"only {left.others} others are live" if left.others > 1 else "only 1 other is live"
    fact = f"its tablets need {counted(left.needed, 'server')}, and {live if left.others else 'no other is live'}"
    ways = "add or start a tablet server"
    if left.needed > 1 and left.others:
        fewer = left.others - (left.others + 1) % 2
        ways += f", or keep fewer replicas: stelae table alter TABLE --replicas {fewer}"
    return f"it cannot give them away yet: {fact}; {ways}. To end the retirement: stelae tserver activate {name}"


def _stuck(server: ServerLine, left: Retirement) -> str:
    where = f"{left.others} other servers are live; see why with: stelae policy explain"
    return f"no replica of {server.address} is on the move; {where}"


def _plain(server: ServerLine, mode: ServerMode) -> dict[str, Any]:
    return {"node_id": server.node_id, "address": server.address, "mode": mode.value}
