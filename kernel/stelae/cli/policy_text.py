"""The plan of a policy in words: what is planned, what of it is carried out, and what to do where nothing can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stelae.cli.kit.name_lookup import shorten
from stelae.cli.kit.terminal_layout import counted, print_facts, print_fitted, print_note
from stelae.cli.policy_explain import NO_PLACE
from stelae.spi.policy import Action, ActionKind, NodeHealth, PolicySnapshot

CARRIED_OUT = (ActionKind.PLACE, ActionKind.TRANSFER)
"""What masters of this release do themselves; every other kind changes a tablet's members."""


def print_plan(snapshot: PolicySnapshot, actions: Sequence[Action], waits: Mapping[str, str], limit: int) -> None:
    """Print actions, so many at most, and what tablets wait for that get none; ids are shortened."""
    tablets = shorten([*snapshot.tablets, *(action.tablet_id for action in actions)])
    nodes = shorten([*snapshot.nodes, *(action.node_id for action in actions)])
    counts = Counter(action.kind for action in actions)
    print_facts(_summary(snapshot, counts, waits))
    if actions:
        print()
        shown = actions[:limit]
        rows = [(one.kind, tablets[one.tablet_id], nodes[one.node_id], one.reason) for one in shown]
        print_fitted(("KIND", "TABLET", "NODE", "REASON"), rows)
    if waits:
        print()
        print_fitted(("TABLET", "WAITS FOR"), [(tablets[name], why) for name, why in sorted(waits.items())])
    if len(actions) > limit:
        print_note(f"{len(actions) - limit} more actions; raise --limit")


def _summary(snapshot: PolicySnapshot, counts: Counter[ActionKind], waits: Mapping[str, str]) -> dict[str, str]:
    """What is planned, what of it is not carried out, and what nothing can be planned for."""
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    held = sum(count for kind, count in counts.items() if kind not in CARRIED_OUT)
    return {
        "planned": told or ("nothing" if waits else "nothing: the policy would change nothing"),
        "not done": f"{held} of these: re-replication, and every change of a tablet's members, is planned and not "
        "carried out in this release; PLACE and TRANSFER are carried out"
        if held
        else "",
        "no place": _no_place(snapshot, sum(NO_PLACE in why for why in waits.values())),
    }


def _no_place(snapshot: PolicySnapshot, count: int) -> str:
    if not count:
        return ""
    short = shorten(snapshot.nodes)
    dead = [short[node_id] for node_id, node in sorted(snapshot.nodes.items()) if node.health is NodeHealth.DEAD]
    again = f"start {' and '.join(dead)} again, or add a tablet server" if dead else "add a tablet server"
    has = "tablet has" if count == 1 else "tablets have"
    return (
        f"{count} {has} too few replicas, and there is nowhere to put more: each live server that has room has one of "
        f"theirs already ({counted(len(dead), 'server')} of {len(short)} dead); {again}"
    )
