"""The policy ``placement``; see the README beside it for how it works."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from stelae.spi.consensus import MemberType
from stelae.spi.policy import Action, ActionKind, MasterPolicy, PolicySnapshot
from stelae_placement_policy.config import Config
from stelae_placement_policy.leaders import Leaders
from stelae_placement_policy.moves import Moves
from stelae_placement_policy.picking import Picker
from stelae_placement_policy.placing import initial_members
from stelae_placement_policy.repair import Repair
from stelae_placement_policy.survey import Survey
from stelae_placement_policy.words import Words


class PlacementPolicy(MasterPolicy):
    """Spreads replicas over locations, nodes and disks, replaces lost ones, and balances leaders."""

    name: ClassVar[str] = "placement"
    Config: ClassVar[type[Any]] = Config

    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> tuple[Action, ...]:
        survey = Survey(snapshot, config)
        picker, words = Picker(survey, rng), Words(survey)
        repair = Repair(survey, picker, words)
        repairs = repair.plan()
        placed = _place(survey, picker, words)
        moves = Moves(survey, picker, words, repair.busy, rng.random()).plan()
        transfers = Leaders(survey, words, {move.tablet.tablet_id for move in moves}).plan()
        return (
            *placed,
            *repairs,
            *(_add(survey, move.tablet.view, move.target, move.reason) for move in moves),
            *(_transfer(survey, found.tablet.view, found.target, found.reason) for found in transfers),
        )


def _place(survey: Survey, picker: Picker, words: Words) -> list[Action]:
    """The initial members of new tablets, up to the limit, all of a tablet or none."""
    ledger = survey.ledger
    size = sum(ledger.bytes) // max(1, sum(ledger.count))
    actions: list[Action] = []
    for view in survey.fresh[: survey.config.placements_max]:
        for at, node in enumerate(initial_members(survey, picker, view, size)):
            role = "is to lead it" if at == 0 else f"is replica {at + 1} of {view.replication_factor}"
            actions.append(
                Action(
                    kind=ActionKind.PLACE,
                    tablet_id=view.tablet_id,
                    node_id=survey.ids[node],
                    cas=view.config_op_id,
                    reason=f"a new tablet: {words.name(node)} {role}, with {words.fill(node)}",
                )
            )
    return actions


def _add(survey: Survey, view: Any, node: int, reason: str) -> Action:
    return Action(
        kind=ActionKind.ADD,
        tablet_id=view.tablet_id,
        node_id=survey.ids[node],
        cas=view.config_op_id,
        reason=reason,
        member_type=MemberType.PRE_VOTER,
    )


def _transfer(survey: Survey, view: Any, node: int, reason: str) -> Action:
    return Action(
        kind=ActionKind.TRANSFER,
        tablet_id=view.tablet_id,
        node_id=survey.ids[node],
        cas=view.config_op_id,
        reason=reason,
    )
