"""``stelae policy explain``: read or fetch a snapshot of a cluster, compute a plan, find tablets without an action."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stelae.cli.masters_target import MastersTarget
from stelae.client.counted import counted
from stelae.spi.consensus import Role
from stelae.spi.errors import CallerError
from stelae.spi.members import VOTING, MemberType
from stelae.spi.policy import Action, MasterPolicy, NodeHealth, PolicySnapshot, TabletView

FILE_BYTES_MAX = 1 << 30
"""Greatest size of a snapshot file. A cluster of 100,000 tablets needs about 100 MB."""
NO_PLACE = "that can take"
"""A part of the text for a tablet that needs a server for a replica."""


def read_snapshot(path: Path) -> PolicySnapshot:
    """Return the snapshot in a JSON file.

    Raises:
        CallerError: the file cannot be read, or is not a snapshot; with the place of the error."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CallerError(f"cannot read {path}: {error.strerror}; pass a file with a snapshot") from error
    if len(data) > FILE_BYTES_MAX:
        raise CallerError(f"{path} is too large for a snapshot; the limit is {FILE_BYTES_MAX} bytes")
    try:
        snapshot = msgspec.json.decode(data, type=PolicySnapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CallerError(f"{path} is not a snapshot of a cluster: {error}") from error
    for kind, keyed in (("node", snapshot.nodes), ("tablet", snapshot.tablets)):
        for name, view in keyed.items():
            found = getattr(view, f"{kind}_id")
            if found != name:
                raise CallerError(f"{path}: the {kind} under {name!r} has the id {found!r}; correct one of them")
    return snapshot


def fetch_snapshot(cluster: MastersTarget, save: Path | None) -> PolicySnapshot:
    """Fetch a snapshot of a cluster from its leading master.

    Args:
        cluster: the masters.
        save: a file to write the snapshot to, for ``read_snapshot``; ``None``: none.

    Raises:
        BadTarget, Unavailable: there are no masters, or there is no leading master.
        CallerError: the file cannot be written."""

    async def ask() -> PolicySnapshot:
        async with cluster.masters() as (_, catalog):
            return await catalog.policy_snapshot(timeout_s=cluster.timeout_s)

    found = asyncio.run(ask())
    if save is not None:
        try:
            save.write_bytes(msgspec.json.encode(found))
        except OSError as error:
            raise CallerError(f"cannot write {save}: {error.strerror}; choose another file with --save") from error
    return found


def plan_for(policy: type[MasterPolicy], snapshot: PolicySnapshot, seed: int) -> list[Action]:
    """Return the plan of a policy that runs with its default settings."""
    return list(policy.plan(snapshot, policy.Config(), random.Random(seed)))


def action_document(action: Action) -> dict[str, Any]:
    """Return an action as plain values."""
    document: dict[str, Any] = msgspec.to_builtins(action)
    return {**document, "cas": str(action.cas)}


def unmet_needs(snapshot: PolicySnapshot, actions: Sequence[Action]) -> dict[str, str]:
    """Return what each tablet waits for that lacks something and has no action, by tablet id."""
    helped = {action.tablet_id for action in actions}
    found = {}
    for tablet_id, tablet in snapshot.tablets.items():
        if tablet_id not in helped:
            why = _waits_for(snapshot, tablet)
            if why:
                found[str(tablet_id)] = why
    return found


def _waits_for(snapshot: PolicySnapshot, tablet: TabletView) -> str:
    wanted = tablet.replication_factor
    if not tablet.replicas:
        return f"{wanted} servers {NO_PLACE} it"
    if tablet.change_pending:
        return "a pending change of its members"
    voters = [replica for replica in tablet.replicas if replica.member_type in VOTING]
    down = {node_id for node_id, node in snapshot.nodes.items() if node.health is NodeHealth.DEAD}
    healthy = [replica for replica in voters if replica.healthy and replica.node_id not in down]
    if len(healthy) < len(voters) // 2 + 1:
        return f"a majority: {len(healthy)} of {len(voters)} voters are healthy"
    if not any(replica.role is Role.LEADER for replica in healthy):
        return "a leader"
    arriving = sum(replica.member_type is MemberType.PRE_VOTER for replica in tablet.replicas)
    if arriving:
        return f"{counted(arriving, 'replica')} being copied"
    away = {node_id for node_id, node in snapshot.nodes.items() if node.health is NodeHealth.MAINTENANCE}
    absent = sum(replica.node_id in away for replica in voters)
    staying = len([replica for replica in healthy if replica.node_id not in away]) + absent - _replaced(tablet)
    if staying < wanted:
        return f"a server {NO_PLACE} a replica: it has {staying} of {wanted} voters"
    return f"{counted(absent, 'server')} in maintenance or briefly silent" if absent else _retires(snapshot, tablet)


def _replaced(tablet: TabletView) -> int:
    """Return the number of voters that are to go because another voter takes their place."""
    voters = {replica.node_id for replica in tablet.replicas if replica.member_type in VOTING}
    taken = (r.replaces for r in tablet.replicas if r.healthy and r.member_type is MemberType.VOTER)
    return len(voters.intersection(taken))


def _retires(snapshot: PolicySnapshot, tablet: TabletView) -> str:
    """Return what a tablet waits for that has a replica on a server that retires. Empty: it has none."""
    holders = {replica.node_id for replica in tablet.replicas}
    if all(snapshot.nodes[one].health is not NodeHealth.RETIRING for one in holders & snapshot.nodes.keys()):
        return ""
    live = {node_id for node_id, node in snapshot.nodes.items() if node.health is NodeHealth.LIVE}
    if live - holders - set(tablet.barred):
        return "its turn to give away the replica of a server that retires"
    return f"a server {NO_PLACE} the replica of one that retires"
