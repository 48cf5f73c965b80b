"""Repairs: the next change of a tablet whose members are not as wanted. A plan changes a tablet at most once.

The changes of a tablet come in the order of danger: first missing members are added, then members that can never help
are removed, then surplus members are evicted. After an eviction at least the wanted number of voters remain, and a
majority of them is healthy. If a majority is down, nothing is changed. A leader is never evicted: it hands over
first."""

from __future__ import annotations

from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth
from stelae_placement_policy.member_states import MemberStates
from stelae_placement_policy.node_picker import Picker
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot
from stelae_placement_policy.reasons import Reasons
from stelae_placement_policy.surplus import keeps_copy, member_to_remove

_PRE_VOTER = MemberType.PRE_VOTER


class Repair:
    """Repairs the incomplete tablets. ``busy`` are the nodes of tablets with a change under way."""

    def __init__(self, cluster: NumberedSnapshot, picker: Picker, reasons: Reasons) -> None:
        self._cluster = cluster
        self._picker = picker
        self._reasons = reasons
        self.busy: set[int] = set()

    def plan(self) -> list[Action]:
        """Return the actions, and enter them into the ledger. The tablets with the fewest spare votes come first."""
        all_states = [MemberStates(self._cluster, tablet) for tablet in self._cluster.incomplete]
        spares = [states for states in all_states if states.has_spare]
        for states in spares:
            self._enter(states, states.spares, -1)
        urgent = [states for states in all_states if not states.has_spare]
        urgent.sort(key=lambda states: (states.spare_votes, states.tablet.tablet_id))
        actions: list[Action] = []
        for states in (*urgent, *spares):
            action = self._decide(states) if states.can_change() else None
            if action is not None and len(actions) < self._cluster.config.repairs_max:
                actions.append(action)
            if action is not None or states.in_motion:
                self.busy.update(states.tablet.members)
        return actions

    def _decide(self, states: MemberStates) -> Action | None:
        found = None
        if states.crowded and states.lost:
            found = self._evict(states)
        if found is None and states.surplus < 0:
            found = self._add(states)
        if found is None:
            found = self._remove_failed(states)
        if states.has_spare:
            if found is None:
                found = self._spare(states)
            else:
                self._enter(states, states.spares, 1)
        if found is None and states.crowded and not states.lost:
            found = self._evict(states)
        return self._hand_over_before_maintenance(states) if found is None else found

    def _remove_failed(self, states: MemberStates) -> Action | None:
        """Remove a member that will never vote.

        A member that might come back is removed only if all others are well, and have the rows."""
        complete = not states.arriving and states.surplus >= 0 and not states.witnesses
        failed = [*states.failed_copies, *(states.failed_non_voters if complete else ())]
        if not failed:
            return None
        self._enter(states, failed[:1], -1)
        return self._action(ActionKind.REMOVE, states, failed[0], self._reasons.remove(states, failed[0]))

    def _enter(self, states: MemberStates, nodes: list[int], sign: int) -> None:
        ledger, size = self._cluster.ledger, states.tablet.size
        for node in nodes:
            if sign > 0:
                ledger.restore(node, size)
            else:
                ledger.drop(node, size)

    def _add(self, states: MemberStates) -> Action | None:
        tablet = states.tablet
        near = [*states.steady, *states.arriving]
        target = self._picker.pick(tablet.size, near, tablet.shunned, copied=True)
        if target < 0 and tablet.shunned is not tablet.closed:
            target = self._picker.pick(tablet.size, near, tablet.closed, copied=True)
        if target < 0:
            return None
        reason = self._reasons.add(states, target)
        self._cluster.ledger.add(target, tablet.size)
        self._cluster.ledger.arrive(target, tablet.size)
        return self._action(ActionKind.ADD, states, target, reason, _PRE_VOTER)

    def _spare(self, states: MemberStates) -> Action | None:
        """Remove a copy that is not needed, and keep one that is worth a move. The ledger has none of them yet."""
        cluster, tablet, spares = self._cluster, states.tablet, states.spares
        if states.voters == states.wanted == len(states.steady):
            keep = next((n for n in spares if keeps_copy(cluster, cluster.ledger, states.steady, tablet.size, n)), -1)
            unneeded = [node for node in spares if node != keep]
            if not unneeded:
                return None
            number = unneeded[0]
            self._enter(states, unneeded[1:], 1)
        else:
            self._enter(states, spares, 1)
            members = [*states.steady, *states.arriving]
            number = member_to_remove(cluster.topology, cluster.ledger, tablet, members, spares)
            self._enter(states, [number], -1)
        return self._action(ActionKind.REMOVE, states, number, self._reasons.spare(states, number))

    def _evict(self, states: MemberStates) -> Action | None:
        """Remove the voter that is needed least. If it leads, it hands over first."""
        cluster, tablet = self._cluster, states.tablet
        for among in self._evictable(states):
            number = member_to_remove(cluster.topology, cluster.ledger, tablet, tablet.members, among)
            if not states.may_evict(number):
                continue
            reason = self._reasons.evict(states, number)
            self._enter(states, [number], -1)
            if number == tablet.leader:
                return self._hand_over(states, number, "will be removed from the config")
            return self._action(ActionKind.REMOVE, states, number, reason)
        return None

    def _evictable(self, states: MemberStates) -> list[list[int]]:
        """Return the voters that may be evicted, in classes of which the first one is to go first.

        A later class may have a voter that can go while none of an earlier class can: if one that serves went, the
        rest might be no majority. Steady voters go only if there are too many of them. While a voter has the log only,
        those with rows stay: one that is down may come back with them. Only a witness that is lost goes, because it has
        no rows."""
        if states.witnesses:
            classes = [[node for node in states.lost if node in states.witnesses]]
        else:
            classes = [states.lost, states.leaving]
            unpinned = [node for node in states.steady if node not in states.pinned]
            if len(unpinned) > states.wanted or not (states.lost or states.leaving):
                away = [node for node in states.steady if node not in states.healthy]
                classes += [away, unpinned or states.steady]
        return [among for among in classes if among]

    def _hand_over_before_maintenance(self, states: MemberStates) -> Action | None:
        """Make a leader hand over if its node is in maintenance."""
        leader = states.tablet.leader
        if self._cluster.health(leader) is not NodeHealth.MAINTENANCE:
            return None
        return self._hand_over(states, leader, "is in maintenance")

    def _hand_over(self, states: MemberStates, leader: int, cause: str) -> Action | None:
        cluster = self._cluster
        able = [node for node in states.steady if node in states.able and node != leader and cluster.live[node]]
        if not able:
            return None
        target = min(able, key=lambda node: (cluster.hot[node], cluster.led_of(node), node))
        reason = self._reasons.hand_over(leader, target, cause)
        cluster.leaders[leader] -= 1
        cluster.leaders[target] += 1
        return self._action(ActionKind.TRANSFER, states, target, reason)

    def _action(
        self, kind: ActionKind, states: MemberStates, node: int, reason: str, member_type: MemberType | None = None
    ) -> Action:
        view = states.tablet.view
        return Action(
            kind=kind,
            tablet_id=view.tablet_id,
            node_id=self._cluster.ids[node],
            cas=view.config_op_id,
            reason=reason,
            member_type=member_type,
        )
