"""Text output of ``stelae policy explain``: the planned actions, and tablets that wait for something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stelae.cli.kit.name_lookup import shorten
from stelae.cli.kit.terminal_layout import print_facts, print_fitted, print_note
from stelae.cli.policy_explain import NO_PLACE
from stelae.client.counted import counted
from stelae.spi.policy import Action, ActionKind, NodeHealth, PolicySnapshot


def print_plan(snapshot: PolicySnapshot, actions: Sequence[Action], waits: Mapping[str, str], limit: int) -> None:
    """Print at most ``limit`` actions, and what tablets without an action wait for. Ids are shortened."""
    tablets = shorten([*snapshot.tablets, *(action.tablet_id for action in actions)])
    nodes = shorten([*snapshot.nodes, *(action.node_id for action in actions)])
    counts = Counter(action.kind for action in actions)
    print_facts(_summary(snapshot, counts, waits))
    if actions:
        print()
        shown = actions[:limit]
        rows = [(action.kind, tablets[action.tablet_id], nodes[action.node_id], action.reason) for action in shown]
        print_fitted(("KIND", "TABLET", "NODE", "REASON"), rows)
    if waits:
        print()
        print_fitted(("TABLET", "WAITS FOR"), [(tablets[name], why) for name, why in sorted(waits.items())])
    if len(actions) > limit:
        print_note(f"{len(actions) - limit} more actions; raise --limit")


def _summary(snapshot: PolicySnapshot, counts: Counter[ActionKind], waits: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of planned actions, and of tablets without a server."""
    planned = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return {
        "planned": planned or "nothing",
        "no place": _no_place(snapshot, sum(NO_PLACE in why for why in waits.values())),
    }


def _no_place(snapshot: PolicySnapshot, count: int) -> str:
    if not count:
        return ""
    short = shorten(snapshot.nodes)
    dead = [short[node_id] for node_id, node in sorted(snapshot.nodes.items()) if node.health is NodeHealth.DEAD]
    again = f"start {' and '.join(dead)} again, or add a tablet server" if dead else "add a tablet server"
    needs = "tablet needs" if count == 1 else "tablets need"
    return (
        f"{count} {needs} another server for a replica, and no server can take it: each live server with free space "
        f"already has a replica of these tablets ({counted(len(dead), 'server')} of {len(short)} dead); {again}"
    )
