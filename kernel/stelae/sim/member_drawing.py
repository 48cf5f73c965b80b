"""Draws changes of members, and says which of them the runs can bear.

Witnesses vote without rows. If ``V`` members are voters with rows and ``K`` are witnesses, a majority has
``(V - K) // 2 + 1`` voters at least. Every acknowledged row is on at least that many replicas. In a run that loses a
replica permanently, they must be two, and a majority must remain without the lost one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from stelae.sim.draw import chance, pick
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.world import ObservedNode
from stelae.spi.ids import NodeId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, MemberType, RemoveServer, TabletConfig

VOTERS_MIN: Final = 3
"""Voters that remain in runs without witnesses: one of three replicas may be lost permanently."""

VOTING_MIN: Final = 3
"""Members with a vote that remain in runs with witnesses."""

STRANGER: Final = NodeId("f" * 32)
"""A node that does not exist. As a member it never answers, and is removed again."""

OF_WITNESSES: Final = 0.6
"""Share of the changes, in runs with witnesses, that concern witnesses or the voters that they stand in for."""

NEVER_HOSTED: Final = 0.8
"""Share of the new witnesses on a node that never had the tablet, as long as there is one."""


class MemberDrawing:
    """Draws changes from the config that some leader shows.

    Args:
        witnesses: whether there are witnesses in the run.
        loses_replica: whether a fault of the run's plan loses a replica permanently.
    """

    def __init__(
        self, nodes: Sequence[ObservedNode], rng: random.Random, *, witnesses: bool, loses_replica: bool
    ) -> None:
        self._nodes = nodes
        self._rng = rng
        self._witnesses = witnesses
        self._surplus_min = 2 if loses_replica else 0
        """The least number by which voters with rows exceed witnesses."""

    def draw(self, config: TabletConfig) -> MemberChange:
        """Draw a change. It may be one that ``may_leave`` forbids."""
        if self._witnesses and chance(self._rng, OF_WITNESSES):
            change = self._draw_of_witnesses(config)
            if change is not None:
                return change
        return self._draw_of_voters(config)

    def may_leave(self, config: TabletConfig, change: MemberChange) -> bool:
        """Return whether a change of ``config`` leaves enough voters with rows, or at least not fewer than before.

        Members that are about to become witnesses count as witnesses, those that are about to become voters do not."""
        if not self._witnesses:
            return True
        before, after = _counted(config.members), _counted(_changed(config, change))
        enough = after[0] - after[1] >= self._surplus_min and sum(after) >= VOTING_MIN
        return enough or (after[0] - after[1] >= before[0] - before[1] and sum(after) >= sum(before))

    # -- witnesses -------------------------------------------------------------------------------

    def _draw_of_witnesses(self, config: TabletConfig) -> MemberChange | None:
        """Draw a change as after a failure: a witness joins, a voter is demoted, returns, and the witness leaves."""
        joining, witnesses, voters, demoted = (
            [member for member in config.members if member.member_type is kind]
            for kind in (MemberType.PRE_WITNESS, MemberType.WITNESS, MemberType.VOTER, MemberType.NON_VOTER)
        )
        share = self._rng.random()
        if not joining and not witnesses:
            return self._new_witness(config) if share < 0.85 else None
        if share < 0.2 and witnesses:
            return ChangeRole(node_id=pick(self._rng, witnesses).node_id, member_type=MemberType.VOTER)
        if share < 0.3:
            return self._new_witness(config)
        if share < 0.6:
            return ChangeRole(node_id=pick(self._rng, voters).node_id, member_type=MemberType.NON_VOTER)
        if share < 0.87 and demoted:
            return ChangeRole(node_id=pick(self._rng, demoted).node_id, member_type=MemberType.VOTER)
        if share < 0.9 and joining:
            return ChangeRole(node_id=pick(self._rng, joining).node_id, member_type=MemberType.WITNESS)
        return RemoveServer(node_id=pick(self._rng, [*joining, *witnesses]).node_id)

    def _new_witness(self, config: TabletConfig) -> MemberChange | None:
        outside = [node for node in self._nodes if config.member(node.node_id) is None]
        new = [node for node in outside if node.on_disk is not ReplicaOnDisk.WHOLE]
        if not outside:
            return None
        chosen = pick(self._rng, new if new and chance(self._rng, NEVER_HOSTED) else outside)
        return _add(chosen.node_id, MemberType.PRE_WITNESS)

    # -- voters ----------------------------------------------------------------------------------

    def _draw_of_voters(self, config: TabletConfig) -> MemberChange:
        """Draw a change that leaves enough voters. With few of them, members are added or promoted."""
        members = {member.node_id: member for member in config.members}
        outside = [node for node in self._nodes if node.node_id not in members]
        learners = [m for m in config.members if m.member_type in (MemberType.PRE_VOTER, MemberType.NON_VOTER)]
        voters = [m for m in config.members if m.member_type is MemberType.VOTER]
        may_shrink = len(voters) > VOTERS_MIN
        share = self._rng.random()
        if share < 0.04:
            return _add(STRANGER, MemberType.PRE_VOTER)
        if outside and (share < 0.45 or not may_shrink):
            return self._new_voter(outside)
        if learners and share < 0.65:
            return self._change_of_learner(pick(self._rng, learners))
        chosen = pick(self._rng, voters if may_shrink or not learners else learners)
        if not may_shrink:
            return ChangeRole(node_id=chosen.node_id, member_type=MemberType.VOTER)
        if share < 0.8:
            return ChangeRole(node_id=chosen.node_id, member_type=MemberType.NON_VOTER)
        return RemoveServer(node_id=chosen.node_id)

    def _new_voter(self, outside: Sequence[ObservedNode]) -> MemberChange:
        """Draw a node. In runs with witnesses, mostly one that had the tablet: the others are for witnesses."""
        kind = MemberType.PRE_VOTER if chance(self._rng, 0.75) else MemberType.NON_VOTER
        if self._witnesses:
            # The creation of a replica without rows that was cut short is only repeated, not replaced.
            known = [node for node in outside if node.on_disk is ReplicaOnDisk.WHOLE]
            new = [node for node in outside if node.on_disk is ReplicaOnDisk.NOTHING]
            outside = known or (new if new and chance(self._rng, 1 - NEVER_HOSTED) else [])
            if not outside:
                return _add(STRANGER, MemberType.PRE_WITNESS)
        return _add(pick(self._rng, outside).node_id, kind)

    def _change_of_learner(self, member: Member) -> MemberChange:
        share = self._rng.random()
        if share < 0.3:
            return RemoveServer(node_id=member.node_id)
        if share < 0.6:
            return ChangeRole(node_id=member.node_id, member_type=MemberType.VOTER)
        other = MemberType.NON_VOTER if member.member_type is MemberType.PRE_VOTER else MemberType.PRE_VOTER
        return ChangeRole(node_id=member.node_id, member_type=other)


def _add(node_id: NodeId, member_type: MemberType) -> AddServer:
    return AddServer(node_id=node_id, address=f"{node_id[:8]}:1", member_type=member_type)


def _counted(members: Sequence[Member]) -> tuple[int, int]:
    """Return the number of voters with rows, and that of present and future witnesses."""
    types = [member.member_type for member in members]
    return types.count(MemberType.VOTER), types.count(MemberType.WITNESS) + types.count(MemberType.PRE_WITNESS)


def _changed(config: TabletConfig, change: MemberChange) -> list[Member]:
    """Return the members after a change, as far as their numbers matter."""
    known = config.member(change.node_id)
    others = [member for member in config.members if member is not known]
    if isinstance(change, RemoveServer) or (isinstance(change, AddServer) and known is not None):
        return others if isinstance(change, RemoveServer) else list(config.members)
    return [*others, Member(node_id=change.node_id, address="", member_type=change.member_type)]
