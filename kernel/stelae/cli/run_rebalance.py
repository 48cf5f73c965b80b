"""Carries out ``stelae cluster rebalance``."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stelae.check.cluster_state import ask_nodes
from stelae.cli.asked_copies import CopyLooks, ask_copies
from stelae.cli.copy_amount import CopyAmount
from stelae.cli.kit.byte_sizes import byte_size
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import shorten
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.kit.terminal_layout import age_text, bytes_text, print_fitted
from stelae.cli.masters_target import MastersTarget
from stelae.cli.policy_explain import action_document
from stelae.cli.rebalance_plan import Rebalance, rebalance_of
from stelae.client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.client.counted import counted
from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.protocol.master_messages import ServerLine
from stelae.spi.errors import CallerError, DeadlineExceeded, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.policy import MasterPolicy, PolicySnapshot

POLL_S = 0.5
QUIET_LOOKS = 3
"""Number of checks in a row that must find nothing to do. Between two steps of a move there may be nothing to do."""

ACTIONS_SHOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The policy that the masters run, with their settings, and the names and limits of tablet servers."""

    policy: type[MasterPolicy]
    config: Any
    addresses: Mapping[NodeId, str]
    limits: Mapping[NodeId, int]

    def left(self, snapshot: PolicySnapshot) -> Rebalance:
        return rebalance_of(self.policy, self.config, snapshot, 0)


def run_rebalance(
    target: MastersTarget, *, plan: bool, wait_s: float | None, rate: str, progress: bool | None, as_json: bool
) -> int:
    """Show what the masters still move, or wait for it, and return the exit code. ``wait_s``: ``None``: do not wait."""
    if plan and wait_s is not None:
        raise CallerError("--plan shows what would be done now, and --wait waits for its end; pass one of them")
    if (rate_bytes_per_s := byte_size("--rate", rate)) < 1:
        raise CallerError("--rate must be at least one byte per second")

    async def run() -> tuple[_Cluster, PolicySnapshot, Rebalance, CopyAmount]:
        async with target.masters() as (client, catalog):
            cluster = await _cluster(client, catalog, target.timeout_s)
            looks = CopyLooks(client.connection, catalog)
            with StatusLine(progress) as line:
                snapshot, left = await _until_done(cluster, catalog, looks, line, wait_s)
            return cluster, snapshot, left, await looks.amount(snapshot)

    cluster, snapshot, left, copies = asyncio.run(run())
    time_s = left.time_s(cluster.limits, rate_bytes_per_s)
    if as_json:
        found = _document(cluster, left, time_s, rate_bytes_per_s, plan=plan)
        print_json({**found, "copying": copies.document()})
        return EXIT_OK
    if plan:
        _print_actions(cluster, snapshot, left)
    if copies.is_known:
        note(f"copying {copies}")
    for text in _summary(cluster, left, time_s, rate_bytes_per_s):
        note(text)
    return EXIT_OK


async def _until_done(
    cluster: _Cluster, catalog: CatalogClient, looks: CopyLooks, line: StatusLine, wait_s: float | None
) -> tuple[PolicySnapshot, Rebalance]:
    """Return the first look, or with ``wait_s`` the last one of a wait. ``DeadlineExceeded``: not done in that time."""
    loop = asyncio.get_running_loop()
    begun, quiet = loop.time(), 0
    while True:
        snapshot = await catalog.policy_snapshot()
        left = cluster.left(snapshot)
        quiet = quiet + 1 if left.is_done else 0
        if wait_s is None or quiet >= QUIET_LOOKS:
            return snapshot, left
        if line.is_due:
            copies = await looks.amount(snapshot)
            line.show(f"{_progress(left)}; copying {copies}" if copies.is_known else _progress(left))
        if loop.time() - begun > wait_s:
            fact = f"{_progress(left)} after {wait_s:.0f} s, and the masters go on"
            raise DeadlineExceeded(f"{fact}; repeat the command to wait on, and see the copies with: stelae copy list")
        await asyncio.sleep(POLL_S)


async def _cluster(client: AsyncClient, catalog: CatalogClient, timeout_s: float) -> _Cluster:
    """Ask the masters for their policy, and the tablet servers for their limits of copies."""
    masters = (await catalog.masters_view(timeout_s=timeout_s)).members
    told = [one.info.settings for one in (await ask_nodes(client.connection, masters)).values() if one.info is not None]
    if not told:
        raise Unavailable("no master answers which policy it runs; see why with: stelae check")
    settings = told[0]
    name = str(settings.get("engines.policy", "placement"))
    policy: Any = Registry.installed().engine(EngineKind.POLICY, name)
    known = {field.name for field in dataclasses.fields(policy.Config)}
    prefix = f"policy.{name}."
    values = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    config = policy.Config(**{key: value for key, value in values.items() if key in known})
    servers = (await catalog.list_servers(timeout_s=timeout_s)).servers
    limits = await asyncio.gather(*(_limit(client, server) for server in servers))
    return _Cluster(
        policy,
        config,
        {server.node_id: server.address for server in servers},
        {server.node_id: limit for server, limit in zip(servers, limits, strict=True)},
    )


async def _limit(client: AsyncClient, server: ServerLine) -> int:
    """Return the limit of the copies to a server; 0 if it has none, or does not answer."""
    answer = await ask_copies(client.connection, server.address, server.node_id)
    limits = answer.limits if answer is not None else None
    return (limits.fetch_bytes_per_s_max or 0) if limits is not None else 0


def _progress(left: Rebalance) -> str:
    under_way = f"{counted(len(left.moving), 'tablet')} on the move"
    least = "" if left.to_the_end else "at least "
    return f"{under_way}, {least}{counted(left.copies, 'replica')} still to copy, {bytes_text(left.bytes_left)} in all"


def _summary(cluster: _Cluster, left: Rebalance, time_s: float, rate_bytes_per_s: int) -> list[str]:
    off = getattr(cluster.config, "moves_max", None) == 0
    balance = "balancing is off: [policy.placement] moves_max of the masters is 0; repairs go on. To balance, raise it "
    balance += "and restart the masters"
    waits = _waits(left)
    if left.is_done and (off or waits):
        return [*waits, *([balance] if off else [])]
    if left.is_done:
        return ["nothing to do: every tablet is where the policy wants it"]
    texts = [_progress(left), *waits]
    if left.bytes_left:
        rate = f"{bytes_text(rate_bytes_per_s)} per second (--rate)"
        about = "about" if left.to_the_end else "more than"
        texts.append(f"{about} {age_text(int(time_s * 1000))}, if a server without a limit gets {rate}")
    texts.append("the masters do it by themselves; wait for the end with: stelae cluster rebalance --wait")
    return [*texts, balance] if off else texts


def _waits(left: Rebalance) -> list[str]:
    """Return a line about tablets that lack something which no plan can give them now, or none."""
    if not left.waiting:
        return []
    shown, why = min(left.waiting.items())
    count = counted(len(left.waiting), "tablet")
    fact = f"{count} cannot be helped by the masters now: {shown} waits for {why}"
    return [f"{fact}; see all with: stelae policy explain"]


def _print_actions(cluster: _Cluster, snapshot: PolicySnapshot, left: Rebalance) -> None:
    tablets = shorten(snapshot.tablets)
    rows = []
    for action in left.now[:ACTIONS_SHOWN_MAX]:
        size_bytes = max((one.size_bytes for one in snapshot.tablets[action.tablet_id].replicas), default=0)
        copied = bytes_text(size_bytes) if action.kind.value == "ADD" else "-"
        server = cluster.addresses.get(action.node_id, action.node_id)
        rows.append((action.kind.value, tablets[action.tablet_id], server, copied, action.reason))
    if rows:
        print_fitted(("KIND", "TABLET", "SERVER", "COPIES", "REASON"), rows)
    if len(left.now) > ACTIONS_SHOWN_MAX:
        note(f"{len(left.now) - ACTIONS_SHOWN_MAX} more; --json has all of them")


def _document(
    cluster: _Cluster, left: Rebalance, time_s: float, rate_bytes_per_s: int, *, plan: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "done": left.is_done,
        "policy": cluster.policy.name,
        "balances": getattr(cluster.config, "moves_max", None) != 0,
        "moving": left.moving,
        "waiting": left.waiting,
        "plans": left.plans,
        "to_the_end": left.to_the_end,
        "counts": {kind.value: count for kind, count in sorted(left.counts.items())},
        "bytes_left": left.bytes_left,
        "estimate_s": round(time_s, 1),
        "assumed_bytes_per_s": rate_bytes_per_s,
    }
    return {**found, "actions": [action_document(action) for action in left.now]} if plan else found
