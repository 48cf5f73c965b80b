"""How a tablet stands: which of its members count for what, judged from one view of it."""

from __future__ import annotations

from stelae.spi.consensus import MemberType
from stelae.spi.policy import NodeHealth
from stelae_placement_policy.survey import Survey, Tablet

_PRE_VOTER = MemberType.PRE_VOTER
_VOTING = (MemberType.VOTER, MemberType.WITNESS)


class Standing:
    """The members of a tablet, by numbers of nodes, in classes that do not overlap.

    Voters are ``lost`` (the node is dead, or the replica failed), ``leaving`` (on a node that retires), or ``steady``:
    the rest, those on nodes in maintenance included. ``arriving`` members are to become voters; ``useless`` ones will
    not, as their node is dead or retires; ``forgone`` are other members without a vote on such nodes."""

    def __init__(self, survey: Survey, tablet: Tablet) -> None:
        self.tablet = tablet
        self.wanted = tablet.view.replication_factor
        self.lost: list[int] = []
        self.leaving: list[int] = []
        self.steady: list[int] = []
        self.arriving: list[int] = []
        self.useless: list[int] = []
        self.forgone: list[int] = []
        self.healthy: set[int] = set()
        """Nodes of voters that answer."""
        self.able: set[int] = set()
        """Nodes of those that could lead."""
        for replica, number in zip(tablet.view.replicas, tablet.members, strict=True):
            health = survey.health(number)
            answers = replica.healthy and health is not NodeHealth.DEAD
            gone = not answers and health is not NodeHealth.MAINTENANCE
            if replica.member_type in _VOTING:
                self._voter(number, answers, gone, health)
                if answers and replica.member_type is MemberType.VOTER:
                    self.able.add(number)
            elif gone or health is NodeHealth.RETIRING:
                (self.useless if replica.member_type is _PRE_VOTER else self.forgone).append(number)
            elif replica.member_type is _PRE_VOTER:
                self.arriving.append(number)

    def _voter(self, number: int, answers: bool, gone: bool, health: NodeHealth | None) -> None:
        if answers:
            self.healthy.add(number)
        if gone:
            self.lost.append(number)
        elif health is NodeHealth.RETIRING:
            self.leaving.append(number)
        else:
            self.steady.append(number)

    @property
    def voters(self) -> int:
        """How many members count towards a majority."""
        return len(self.lost) + len(self.leaving) + len(self.steady)

    @property
    def spare_votes(self) -> int:
        """How many healthy voters there are above a majority; below 0 nothing can be changed."""
        return len(self.healthy) - (self.voters // 2 + 1)

    @property
    def surplus(self) -> int:
        """Members that stay or come, above what is wanted; below 0 some are missing."""
        return len(self.steady) + len(self.arriving) - self.wanted

    @property
    def has_spare(self) -> bool:
        """Whether more members arrive than are missing, and something can be done about it."""
        return bool(self.arriving) and self.surplus > 0 and self.can_change()

    @property
    def in_motion(self) -> bool:
        """Whether its members are about to be others."""
        return bool(self.arriving) or self.tablet.view.change_pending or self.voters > self.wanted

    def can_change(self) -> bool:
        """Whether its leader could carry out a change of config at all."""
        view = self.tablet.view
        settled = not view.change_pending and view.replication_factor > 0
        return settled and self.tablet.leader in self.able and self.spare_votes >= 0

    def may_evict(self, voter: int) -> bool:
        """Whether as many voters as wanted remain, a majority of them healthy."""
        remaining = self.voters - 1
        return remaining >= self.wanted and len(self.healthy - {voter}) >= remaining // 2 + 1
