"""Carries out ``stelae copy list``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stelae.cli.asked_copies import ASK_MS, ask_copies
from stelae.cli.copy_amount import amount_of, phase_text
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import age_text, bytes_text, print_fitted
from stelae.cli.masters_target import MastersTarget
from stelae.cli.run_copy_orders import plain_limits, rate_text
from stelae.protocol.copy_list_messages import CopiesReply, CopyLimits, CopyLine
from stelae.protocol.master_messages import ServerLine


@dataclass(frozen=True, slots=True)
class _Found:
    """The copies to each server that answers, the servers that do not, and the names of tables and servers."""

    answers: Sequence[tuple[ServerLine, CopiesReply]]
    silent: Sequence[ServerLine]
    tables: dict[str, str]
    addresses: dict[str, str]


def run_list(cluster: MastersTarget, *, as_json: bool) -> int:
    """Print the copies and return the exit code."""
    found = asyncio.run(_find(cluster))
    plain = [_plain(found, server, copy) for server, answer in found.answers for copy in answer.copies]
    if as_json:
        servers = [_plain_server(server, answer) for server, answer in found.answers]
        print_json({"copies": plain, "servers": servers, "silent": [server.address for server in found.silent]})
        return EXIT_OK
    if plain:
        rows = [
            (one["tablet_id"], one["table"] or "-", one["to"], one["from"] or "-", _what(one), _done(one), _eta(one))
            for one in plain
        ]
        print_fitted(("TABLET", "TABLE", "TO", "FROM", "WHAT", "DONE", "ENDS IN"), rows)
    else:
        note("no copy is in progress")
    for server, answer in found.answers:
        for line in remarks(server, answer):
            note(f"{server.address}: {line}")
    for server in found.silent:
        note(f"tablet server {server.address} does not answer: copies to it are not shown")
    return EXIT_OK


async def _find(cluster: MastersTarget) -> _Found:
    async with cluster.masters() as (client, catalog):
        servers = (await catalog.list_servers(timeout_s=cluster.timeout_s)).servers
        tables = (await catalog.list_tables(soft_deleted=True, timeout_s=cluster.timeout_s)).tables
        deadline_ms = min(ASK_MS, int(cluster.timeout_s * 1000))
        asked = (ask_copies(client.connection, one.address, one.node_id, deadline_ms) for one in servers)
        answers = await asyncio.gather(*asked)
    told = list(zip(servers, answers, strict=True))
    return _Found(
        answers=[(server, answer) for server, answer in told if answer is not None],
        silent=[server for server, answer in told if answer is None],
        tables={table.table_id: table.name for table in tables},
        addresses={server.node_id: server.address for server in servers},
    )


def _plain(found: _Found, server: ServerLine, copy: CopyLine) -> dict[str, Any]:
    source = None if copy.source is None else found.addresses.get(copy.source, copy.source)
    return {
        "tablet_id": copy.tablet_id,
        "table": found.tables.get(copy.table_id, ""),
        "to": server.address,
        "from": source,
        "leader": found.addresses.get(copy.leader, copy.leader),
        "rows_only": copy.rows_only,
        "bytes_done": copy.bytes_done,
        "bytes_total": copy.bytes_total,
        "bytes_fetched": copy.bytes_fetched,
        "bytes_per_s": amount_of([copy]).bytes_per_s,
        "eta_ms": copy.eta_ms,
        "phase": None if copy.phase is None else copy.phase.value,
        "waits": copy.waits,
        "paused": copy.paused,
    }


def _plain_server(server: ServerLine, answer: CopiesReply) -> dict[str, Any]:
    limits = answer.limits or CopyLimits(fetch_bytes_per_s_max=None, serve_bytes_per_s_max=None)
    return {"address": server.address, "paused": answer.paused, "cancelled": answer.cancelled, **plain_limits(limits)}


def remarks(server: ServerLine, answer: CopiesReply) -> Iterator[str]:
    """Say what holds copies of a server back, beside its disks and its network."""
    if answer.paused:
        yield f"all copies to it are paused; go on with: stelae copy resume --all --to {server.address}"
    for tablet in answer.cancelled:
        yield f"the copy of tablet {tablet} was cancelled, and does not begin again yet"
    if answer.limits is not None:
        for what, limit in (("to", answer.limits.fetch_bytes_per_s_max), ("from", answer.limits.serve_bytes_per_s_max)):
            if limit:
                yield f"copies {what} it have {rate_text(limit)}"


def _what(one: dict[str, Any]) -> str:
    return "rows" if one["rows_only"] else "log and rows"


def _done(one: dict[str, Any]) -> str:
    if one["waits"]:
        return "paused, not begun" if one["paused"] else "waits for a slot"
    if not one["bytes_total"]:
        return "begins"
    percent = 100 * one["bytes_done"] // one["bytes_total"]
    more = phase_text(one["phase"]) + (", paused" if one["paused"] else "")
    return f"{bytes_text(one['bytes_done'])} of {bytes_text(one['bytes_total'])}, {percent} %{more}"


def _eta(one: dict[str, Any]) -> str:
    return "-" if one["eta_ms"] is None else age_text(one["eta_ms"])
