"""Repair: what to change about a tablet whose members are not what is wanted. At most one thing at a time.

The order within a tablet is the order of danger: bring in what is missing, then remove what can never help, then evict
what there is too much of. Evictions leave as many voters as wanted, and a majority of them healthy; where a majority is
down nothing is changed at all. A leader is never evicted: it hands over first."""

from __future__ import annotations

from stelae.spi.consensus import MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth
from stelae_placement_policy.picking import Picker
from stelae_placement_policy.standing import Standing
from stelae_placement_policy.surplus import keeps, victim
from stelae_placement_policy.survey import Survey
from stelae_placement_policy.words import Words

_PRE_VOTER = MemberType.PRE_VOTER


class Repair:
    """Goes through the tablets that are not whole; ``busy`` are the nodes that are part of a change under way."""

    def __init__(self, survey: Survey, picker: Picker, words: Words) -> None:
        self._survey = survey
        self._picker = picker
        self._words = words
        self.busy: set[int] = set()

    def plan(self) -> list[Action]:
        """Return the actions, of the tablets with the least to spare first, and enter them into the ledger."""
        standings = [Standing(self._survey, tablet) for tablet in self._survey.others]
        spares = [standing for standing in standings if standing.has_spare]
        for standing in spares:
            self._enter(standing, standing.arriving, -1)
        urgent = [standing for standing in standings if not standing.has_spare]
        urgent.sort(key=lambda standing: (standing.spare_votes, standing.tablet.tablet_id))
        actions: list[Action] = []
        for standing in (*urgent, *spares):
            action = self._decide(standing) if standing.can_change() else None
            if action is not None and len(actions) < self._survey.config.repairs_max:
                actions.append(action)
            if action is not None or standing.in_motion:
                self.busy.update(standing.tablet.members)
        return actions

    def _decide(self, standing: Standing) -> Action | None:
        crowded = standing.voters > standing.wanted
        found = None
        if crowded and standing.lost:
            found = self._evict(standing)
        if found is None and standing.surplus < 0:
            found = self._add(standing)
        if found is None:
            found = self._clean(standing)
        if standing.has_spare:
            if found is None:
                found = self._spare(standing)
            else:
                self._enter(standing, standing.arriving, 1)
        if found is None and crowded and not standing.lost:
            found = self._evict(standing)
        return self._leave(standing) if found is None else found

    def _clean(self, standing: Standing) -> Action | None:
        """Remove a member that will never vote; one that might come back only once all is well."""
        complete = not standing.arriving and standing.surplus >= 0
        gone = [*standing.useless, *(standing.forgone if complete else ())]
        if not gone:
            return None
        self._enter(standing, gone[:1], -1)
        return self._action(ActionKind.REMOVE, standing, gone[0], self._words.useless(standing, gone[0]))

    def _enter(self, standing: Standing, nodes: list[int], sign: int) -> None:
        ledger, size = self._survey.ledger, standing.tablet.size
        for node in nodes:
            if sign > 0:
                ledger.restore(node, size)
            else:
                ledger.drop(node, size)

    def _add(self, standing: Standing) -> Action | None:
        tablet = standing.tablet
        near = [*standing.steady, *standing.arriving]
        target = self._picker.pick(tablet.size, near, tablet.members, copied=True)
        if target < 0:
            return None
        reason = self._words.add(standing, target)
        self._survey.ledger.add(target, tablet.size)
        self._survey.ledger.arriving[target] += 1
        return self._action(ActionKind.ADD, standing, target, reason, _PRE_VOTER)

    def _spare(self, standing: Standing) -> Action | None:
        """Give up a copy that nothing needs, and keep one that is worth a move. The ledger has none of them yet."""
        survey, tablet, arriving = self._survey, standing.tablet, standing.arriving
        if standing.voters == standing.wanted == len(standing.steady):
            kept = next((n for n in arriving if keeps(survey, survey.ledger, standing.steady, tablet.size, n)), -1)
            given_up = [node for node in arriving if node != kept]
            if not given_up:
                return None
            number = given_up[0]
            self._enter(standing, given_up[1:], 1)
        else:
            self._enter(standing, arriving, 1)
            members = [*standing.steady, *arriving]
            number = victim(survey.topology, survey.ledger, tablet, members, arriving)
            self._enter(standing, [number], -1)
        return self._action(ActionKind.REMOVE, standing, number, self._words.spare(standing, number))

    def _evict(self, standing: Standing) -> Action | None:
        """Remove the voter that is needed least, or have it hand over first if it leads."""
        survey, tablet = self._survey, standing.tablet
        away = [node for node in standing.steady if node not in standing.healthy]
        among = standing.lost or standing.leaving or away or standing.steady
        number = victim(survey.topology, survey.ledger, tablet, tablet.members, among)
        if not standing.may_evict(number):
            return None
        reason = self._words.evict(standing, number)
        self._enter(standing, [number], -1)
        if number == tablet.leader:
            return self._step_aside(standing, number, "is to be removed from the config")
        return self._action(ActionKind.REMOVE, standing, number, reason)

    def _leave(self, standing: Standing) -> Action | None:
        """Have a leader hand over whose node is down for maintenance soon."""
        leader = standing.tablet.leader
        if self._survey.health(leader) is not NodeHealth.MAINTENANCE:
            return None
        return self._step_aside(standing, leader, "is in maintenance")

    def _step_aside(self, standing: Standing, leader: int, cause: str) -> Action | None:
        survey = self._survey
        able = [node for node in standing.steady if node in standing.able and node != leader and survey.live[node]]
        if not able:
            return None
        target = min(able, key=lambda node: (survey.hot[node], survey.led_of(node), node))
        reason = self._words.step_aside(leader, target, cause)
        survey.leaders[leader] -= 1
        survey.leaders[target] += 1
        return self._action(ActionKind.TRANSFER, standing, target, reason)

    def _action(
        self, kind: ActionKind, standing: Standing, node: int, reason: str, member_type: MemberType | None = None
    ) -> Action:
        view = standing.tablet.view
        return Action(
            kind=kind,
            tablet_id=view.tablet_id,
            node_id=self._survey.ids[node],
            cas=view.config_op_id,
            reason=reason,
            member_type=member_type,
        )
