"""Carries out ``stelae copy pause``, ``resume``, ``cancel`` and ``limit``: each is one request to one tablet server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from stelae.cli.kit.byte_sizes import byte_limit
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import pick
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import age_text, bytes_text
from stelae.cli.masters_target import MastersTarget
from stelae.cli.named_servers import named_server
from stelae.client.connection import Connection
from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_list_messages import (
    COPIES,
    LIMIT_COPIES,
    ORDER_COPIES,
    CopiesReply,
    CopiesRequest,
    CopyLimits,
    CopyOrder,
    LimitCopies,
    OrderCopies,
    OrderedCopies,
)
from stelae.protocol.master_messages import ServerLine
from stelae.spi.errors import CallerError, Unavailable
from stelae.spi.ids import TabletId

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


def run_pause(
    cluster: MastersTarget, to: str, tablet: str | None, *, everything: bool, for_s: float, as_json: bool
) -> int:
    """Pause copies and return the exit code."""
    for_ms = int(for_s * 1000)
    server, done = asyncio.run(_order(cluster, to, tablet, CopyOrder.PAUSE, everything=everything, for_ms=for_ms))
    if as_json:
        _print_json(server, "paused", done, everything=everything, for_s=for_s)
        return EXIT_OK
    span = age_text(for_ms)
    for one in (*done.changed, *done.same):
        note(f"paused: the copy of tablet {one} to {server.address}, for {span}")
    if everything:
        note(f"paused: all copies to {server.address}, also those that have not begun, for {span}")
    note(f"they go on by themselves after that, when the server restarts, or with: {_resume_command(to, tablet)}")
    return EXIT_OK


def run_resume(cluster: MastersTarget, to: str, tablet: str | None, *, everything: bool, as_json: bool) -> int:
    """Resume copies and return the exit code."""
    server, done, all_paused = asyncio.run(_resume(cluster, to, tablet, everything=everything))
    if as_json:
        _print_json(server, "resumed", done, everything=everything)
        return EXIT_OK
    for one in done.changed:
        note(f"resumed: the copy of tablet {one} to {server.address}")
    if all_paused:
        note(f"resumed: all copies to {server.address}, also those that have not begun")
    elif not done.changed:
        what = f"the copy of tablet {done.same[0]}" if done.same else "no copy"
        note(f"nothing to do: {what} to {server.address} {'was not' if done.same else 'was'} paused or cancelled")
    return EXIT_OK


def run_cancel(
    cluster: MastersTarget, to: str, tablet: str | None, *, everything: bool, not_for_s: float, as_json: bool
) -> int:
    """Cancel copies and return the exit code."""
    bar_ms = int(not_for_s * 1000)
    server, done = asyncio.run(_order(cluster, to, tablet, CopyOrder.CANCEL, everything=everything, for_ms=bar_ms))
    if as_json:
        _print_json(server, "cancelled", done, everything=everything, not_for_s=not_for_s)
        return EXIT_OK
    for one in done.changed:
        note(f"cancelled: the copy of tablet {one} to {server.address}; what it had fetched is removed")
    for one in done.same:
        note(f"nothing to do: the copy of tablet {one} to {server.address} was cancelled before")
    for one in done.complete:
        note(f"too late: the copy of tablet {one} to {server.address} is complete, and the replica stays")
    if done.changed or done.same:
        note(
            f"{server.address} refuses them for {age_text(bar_ms)}; meanwhile the masters place the replicas on another"
        )
        note(f"server if there is one. Let them begin again at once with: {_resume_command(to, tablet)}")
    elif not done.complete:
        note(f"nothing to do: no copy to {server.address} is in progress or waits")
    return EXIT_OK


def run_limit(cluster: MastersTarget, name: str, incoming: str | None, outgoing: str | None, *, as_json: bool) -> int:
    """Change or show the limits of a server and return the exit code."""
    asked = LimitCopies(
        fetch_bytes_per_s_max=None if incoming is None else byte_limit("--in", incoming),
        serve_bytes_per_s_max=None if outgoing is None else byte_limit("--out", outgoing),
    )

    async def run() -> tuple[ServerLine, CopyLimits]:
        async with cluster.masters() as (client, catalog):
            server = await named_server(cluster, catalog, name)
            return server, await _ask(client.connection, cluster, server, LIMIT_COPIES, asked, CopyLimits)

    server, limits = asyncio.run(run())
    if as_json:
        print_json({"node_id": server.node_id, "address": server.address, **plain_limits(limits)})
        return EXIT_OK
    note(f"copies to {server.address}: {rate_text(limits.fetch_bytes_per_s_max)}")
    note(f"copies from {server.address}: {rate_text(limits.serve_bytes_per_s_max)}")
    if incoming is not None or outgoing is not None:
        note("the limits in its node.toml apply again when the server restarts")
    return EXIT_OK


def plain_limits(limits: CopyLimits) -> dict[str, int | None]:
    """Return limits as fields of a JSON document. 0: no limit. ``None``: it is unknown."""
    return {
        "fetch_bytes_per_s_max": limits.fetch_bytes_per_s_max,
        "serve_bytes_per_s_max": limits.serve_bytes_per_s_max,
    }


def rate_text(bytes_per_s: int | None) -> str:
    """Return a limit in words."""
    if bytes_per_s is None:
        return "its transport has no limit that can be changed"
    return f"at most {bytes_text(bytes_per_s)} per second" if bytes_per_s else "no limit"


def _resume_command(to: str, tablet: str | None) -> str:
    return f"stelae copy resume {'--all' if tablet is None else tablet} --to {to}"


async def _resume(
    cluster: MastersTarget, to: str, tablet: str | None, *, everything: bool
) -> tuple[ServerLine, OrderedCopies, bool]:
    """Resume copies. Return also whether a pause of all copies has ended: it may have held copies that had not begun,
    which the answer does not name."""
    async with cluster.masters() as (client, catalog):
        server = await named_server(cluster, catalog, to)
        before = await _ask(client.connection, cluster, server, COPIES, CopiesRequest(), CopiesReply)
    return *await _order(cluster, to, tablet, CopyOrder.RESUME, everything=everything), before.paused and everything


async def _order(
    cluster: MastersTarget, to: str, tablet: str | None, order: CopyOrder, *, everything: bool, for_ms: int = 1_000
) -> tuple[ServerLine, OrderedCopies]:
    if (tablet is None) is not everything:
        raise CallerError("pass either the id of a tablet, or --all for every copy to the server")
    async with cluster.masters() as (client, catalog):
        server = await named_server(cluster, catalog, to)
        chosen = None if tablet is None else await _tablet(client.connection, cluster, server, tablet)
        asked = OrderCopies(order=order, tablet_id=chosen, for_ms=for_ms)
        return server, await _ask(client.connection, cluster, server, ORDER_COPIES, asked, OrderedCopies)


async def _tablet(connection: Connection, cluster: MastersTarget, server: ServerLine, given: str) -> TabletId:
    """Return the id of the tablet that the user names, among those with a copy to the server."""
    found = await _ask(connection, cluster, server, COPIES, CopiesRequest(), CopiesReply)
    known: Sequence[str] = [*(copy.tablet_id for copy in found.copies), *found.cancelled]
    what = f"tablet with a copy to {server.address}"
    return TabletId(pick(what, given, {one: one for one in known}, "stelae copy list"))


async def _ask(
    connection: Connection, cluster: MastersTarget, server: ServerLine, kind: str, asked: Any, answer: type[_Answer]
) -> _Answer:
    deadline_ms = int(cluster.timeout_s * 1000)
    if (there := await connection.reach(server.address, deadline_ms=deadline_ms)) != server.node_id:
        fact = f"node {there} is at {server.address}, and not tablet server {server.node_id}"
        raise Unavailable(f"{fact}; repeat the command when the masters know its new address")
    found = await connection.ask(server.node_id, kind, encode(asked), deadline_ms=deadline_ms)
    return decode(found.body[0], answer)


def _print_json(server: ServerLine, verb: str, done: OrderedCopies, **more: Any) -> None:
    changed = {verb: done.changed, "unchanged": done.same, "complete": done.complete}
    print_json({"node_id": server.node_id, "address": server.address, **changed, **more})
