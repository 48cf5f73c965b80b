"""The initial placement: the members of new tablets."""

from __future__ import annotations

from stelae.spi.policy import TabletView
from stelae_placement_policy.node_picker import Picker
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot


def initial_members(cluster: NumberedSnapshot, picker: Picker, view: TabletView, size: int) -> list[int]:
    """Return the nodes of a new tablet, first the one that should lead. Empty if there are too few nodes.

    They are entered into the ledger as replicas of ``size`` bytes, the size to which a tablet is expected to grow."""
    members: list[int] = []
    for _ in range(view.replication_factor):
        node = picker.pick(0, members, members, copied=False)
        if node < 0:
            return []
        members.append(node)
    if not members:
        return []
    for node in members:
        cluster.ledger.add(node, size)
    leader = min(members, key=lambda node: (cluster.hot[node], cluster.led_of(node), node))
    cluster.leaders[leader] += 1
    return [leader, *(node for node in members if node != leader)]
