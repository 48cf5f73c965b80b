"""The states of a tablet's members: which of them count as lost, leaving, steady or arriving, from one snapshot."""

from __future__ import annotations

from stelae.spi.members import VOTING, MemberType
from stelae.spi.policy import NodeHealth, ReplicaView
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot, NumberedTablet

_PRE_VOTER = MemberType.PRE_VOTER


class MemberStates:
    """The members of a tablet as numbers of nodes, in classes that do not overlap."""

    def __init__(self, cluster: NumberedSnapshot, tablet: NumberedTablet) -> None:
        self.tablet = tablet
        self.wanted = tablet.view.replication_factor
        #: Voters whose node is dead, or whose replica failed.
        self.lost: list[int] = []
        #: Voters on a retiring node, and voters that are replaced.
        self.leaving: list[int] = []
        #: All other voters, also those on nodes in maintenance.
        self.steady: list[int] = []
        #: Members that will become voters.
        self.arriving: list[int] = []
        #: Members that were to become voters, but whose node is down or retires, or whose replica failed.
        self.failed_copies: list[int] = []
        #: Other members without a vote on such nodes.
        self.failed_non_voters: list[int] = []
        #: Nodes of voters that answer.
        self.healthy: set[int] = set()
        #: Nodes of voters that answer and could lead.
        self.able: set[int] = set()
        #: Nodes of members besides the wanted number, which an operator added, or which take the place of another one.
        self.pinned: set[int] = set()
        #: Members that are to go because another voter takes their place, and those voters.
        self.replaced = taken_places(cluster, tablet)
        #: Voters that have the log only. Each gets the rows of a member whose node is down, unless that one returns.
        self.witnesses: set[int] = set()
        for replica, number in zip(tablet.view.replicas, tablet.members, strict=True):
            health = cluster.health(number)
            leaves = number in self.replaced and health is not NodeHealth.DEAD
            self._take(replica, number, NodeHealth.RETIRING if leaves else health)

    def _take(self, replica: ReplicaView, number: int, health: NodeHealth | None) -> None:
        """Put a member into its class.

        A copy to a node that is stopped for maintenance is not waited for: it has nothing that others lack."""
        answers = replica.healthy and health is not NodeHealth.DEAD
        returns = health is NodeHealth.MAINTENANCE and replica.member_type is not _PRE_VOTER
        waits = returns or (replica.copying and health is not NodeHealth.DEAD)
        failed = not answers and not waits
        if (
            (replica.pinned or self._waits_for_place(replica))
            and not failed
            and replica.member_type in (*VOTING, _PRE_VOTER)
        ):
            self.pinned.add(number)
        if replica.member_type in VOTING:
            self._voter(number, answers, failed, health)
            if answers and replica.member_type is MemberType.VOTER:
                self.able.add(number)
            if replica.member_type is MemberType.WITNESS:
                self.witnesses.add(number)
        elif failed or health is NodeHealth.RETIRING:
            (self.failed_copies if replica.member_type is _PRE_VOTER else self.failed_non_voters).append(number)
        elif replica.member_type is _PRE_VOTER:
            self.arriving.append(number)

    def _waits_for_place(self, replica: ReplicaView) -> bool:
        """Return true if a member takes the place of another one, which is not to go yet."""
        place = place_of(self.tablet, replica)
        return place >= 0 and place not in self.replaced

    def _voter(self, number: int, answers: bool, failed: bool, health: NodeHealth | None) -> None:
        if answers:
            self.healthy.add(number)
        if failed:
            self.lost.append(number)
        elif health is NodeHealth.RETIRING:
            self.leaving.append(number)
        else:
            self.steady.append(number)

    @property
    def voters(self) -> int:
        """Number of members that count towards a majority."""
        return len(self.lost) + len(self.leaving) + len(self.steady)

    @property
    def spare_votes(self) -> int:
        """Number of healthy voters above a majority. Below 0 nothing can be changed."""
        return len(self.healthy) - (self.voters // 2 + 1)

    @property
    def surplus(self) -> int:
        """Number of members that stay or arrive, above the wanted number. Below 0 some are missing."""
        return len(self.steady) + len(self.arriving) - self.wanted

    @property
    def spares(self) -> list[int]:
        """Members that will become voters, and may be removed before that."""
        return [number for number in self.arriving if number not in self.pinned]

    @property
    def has_spare(self) -> bool:
        """True if more members arrive than are missing, and the config can be changed."""
        return bool(self.spares) and self.surplus > len(self.pinned) and self.can_change()

    @property
    def crowded(self) -> bool:
        """True if there are more voters than are wanted.

        While all are well, those that an operator added do not count."""
        kept = 0 if self.lost or self.leaving else len(self.pinned.intersection(self.steady))
        return self.voters - kept > self.wanted

    @property
    def in_motion(self) -> bool:
        """True if a change of the members is under way or needed."""
        return bool(self.arriving) or self.tablet.view.change_pending or self.crowded

    def can_change(self) -> bool:
        """Return true if the leader can carry out a change of the config now."""
        view = self.tablet.view
        may_change = not view.change_pending and view.replication_factor > 0
        return may_change and self.tablet.leader in self.able and self.spare_votes >= 0

    def may_evict(self, voter: int) -> bool:
        """Return true if the wanted number of voters remains without ``voter``, and a majority of them is healthy."""
        remaining = self.voters - 1
        return remaining >= self.wanted and len(self.healthy - {voter}) >= remaining // 2 + 1


def place_of(tablet: NumberedTablet, replica: ReplicaView) -> int:
    """Return the number of the other member whose place a member takes, or -1."""
    if replica.replaces in (None, replica.node_id):
        return -1
    pairs = zip(tablet.view.replicas, tablet.members, strict=True)
    return next((number for other, number in pairs if other.node_id == replica.replaces), -1)


def taken_places(cluster: NumberedSnapshot, tablet: NumberedTablet) -> dict[int, int]:
    """Return the members whose place another member takes that votes and answers, and those others."""
    found = {}
    for replica, number in zip(tablet.view.replicas, tablet.members, strict=True):
        answers = replica.healthy and cluster.health(number) is not NodeHealth.DEAD
        place = place_of(tablet, replica)
        if place >= 0 and answers and replica.member_type is MemberType.VOTER:
            found[place] = number
    return found
