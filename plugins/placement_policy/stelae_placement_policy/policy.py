"""The policy ``placement``. The README beside this file says how it works."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind, MasterPolicy, PolicySnapshot
from stelae_placement_policy.config import PlacementConfig
from stelae_placement_policy.initial_placement import initial_members
from stelae_placement_policy.leaders import Leaders
from stelae_placement_policy.moves import Moves
from stelae_placement_policy.node_picker import Picker
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot
from stelae_placement_policy.reasons import Reasons
from stelae_placement_policy.repair import Repair


class PlacementPolicy(MasterPolicy):
    """Distributes replicas over locations, nodes and disks, replaces lost ones, and balances leaders."""

    name: ClassVar[str] = "placement"
    Config: ClassVar[type[Any]] = PlacementConfig

    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> tuple[Action, ...]:
        cluster = NumberedSnapshot(snapshot, config)
        picker, reasons = Picker(cluster, rng), Reasons(cluster)
        repair = Repair(cluster, picker, reasons)
        repairs = repair.plan()
        placed = _place(cluster, picker, reasons)
        moves = Moves(cluster, picker, reasons, repair.busy, rng.random()).plan()
        transfers = Leaders(cluster, reasons, {move.tablet.tablet_id for move in moves}).plan()
        return (
            *placed,
            *repairs,
            *(_add(cluster, move.tablet.view, move.target, move.reason) for move in moves),
            *(_transfer(cluster, found.tablet.view, found.target, found.reason) for found in transfers),
        )


def _place(cluster: NumberedSnapshot, picker: Picker, reasons: Reasons) -> list[Action]:
    """Place new tablets, up to the limit. A tablet gets all of its members or none."""
    ledger = cluster.ledger
    size = sum(ledger.bytes) // max(1, sum(ledger.count))
    actions: list[Action] = []
    for view in cluster.unplaced[: cluster.config.placements_max]:
        for at, node in enumerate(initial_members(cluster, picker, view, size)):
            role = "should lead it" if at == 0 else f"is replica {at + 1} of {view.replication_factor}"
            actions.append(
                Action(
                    kind=ActionKind.PLACE,
                    tablet_id=view.tablet_id,
                    node_id=cluster.ids[node],
                    cas=view.config_op_id,
                    reason=f"a new tablet: {reasons.name(node)} {role}, with {reasons.fill(node)}",
                )
            )
    return actions


def _add(cluster: NumberedSnapshot, view: Any, node: int, reason: str) -> Action:
    return Action(
        kind=ActionKind.ADD,
        tablet_id=view.tablet_id,
        node_id=cluster.ids[node],
        cas=view.config_op_id,
        reason=reason,
        member_type=MemberType.PRE_VOTER,
    )


def _transfer(cluster: NumberedSnapshot, view: Any, node: int, reason: str) -> Action:
    return Action(
        kind=ActionKind.TRANSFER,
        tablet_id=view.tablet_id,
        node_id=cluster.ids[node],
        cas=view.config_op_id,
        reason=reason,
    )
