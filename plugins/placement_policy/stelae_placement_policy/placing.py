"""Placing: the initial members of tablets that have none."""

from __future__ import annotations

from stelae.spi.policy import TabletView
from stelae_placement_policy.picking import Picker
from stelae_placement_policy.survey import Survey


def initial_members(survey: Survey, picker: Picker, view: TabletView, size: int) -> list[int]:
    """Return the nodes of a new tablet, the one that is to lead first; empty when there are too few.

    They are entered into the ledger as replicas of ``size`` bytes: what a tablet may be expected to grow to."""
    members: list[int] = []
    for _ in range(view.replication_factor):
        node = picker.pick(0, members, members, copied=False)
        if node < 0:
            return []
        members.append(node)
    if not members:
        return []
    for node in members:
        survey.ledger.add(node, size)
    leader = min(members, key=lambda node: (survey.hot[node], survey.led_of(node), node))
    survey.leaders[leader] += 1
    return [leader, *(node for node in members if node != leader)]
