"""The reasons of actions: each is a sentence with the figures that decided."""

from __future__ import annotations

from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.member_states import MemberStates
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot

NAME_LENGTH = 8
"""Characters of a node's id that are shown in a sentence."""


class Reasons:
    """Makes sentences about nodes, with the figures of the ledger at that moment."""

    def __init__(self, cluster: NumberedSnapshot) -> None:
        self._cluster = cluster
        self._ledger: Ledger = cluster.ledger
        self._names: dict[int, str] = {}

    def name(self, number: int) -> str:
        """Return a node's short name, with its location if it has one."""
        found = self._names.get(number)
        if found is None:
            location = self._cluster.location(number)
            short = self._cluster.ids[number][:NAME_LENGTH]
            found = self._names[number] = f"{short} ({location})" if location else short
        return found

    def fill(self, number: int) -> str:
        """Return how full a node is: replicas and bytes, compared with its share."""
        ledger = self._ledger
        ideal, in_bytes = ledger.replicas * ledger.shares[number], 100 * ledger.by_bytes[number]
        return f"{ledger.count[number]} replicas of an ideal {ideal:.1f}, and {in_bytes:.0f} % of its share in bytes"

    def failure(self, states: MemberStates, number: int) -> str:
        """Return what is wrong with a member, or which one takes its place."""
        health = self._cluster.health(number)
        if number in states.replaced:
            return f"{self.name(number)} is replaced by {self.name(states.replaced[number])}"
        return f"{self.name(number)} {'failed' if health is None or health == 'LIVE' else f'is {health}'}"

    def add(self, states: MemberStates, target: int) -> str:
        """Return why a missing member is added."""
        away = [self.failure(states, number) for number in (*states.lost, *states.leaving)]
        cause = "; ".join(away) or "its replication factor was raised, or a member is missing"
        have = f"{len(states.steady)} steady and {len(states.arriving)} arriving of {states.wanted} voters"
        return f"{have}: {cause}; a copy goes to {self.name(target)}, which has {self.fill(target)}"

    def evict(self, states: MemberStates, number: int) -> str:
        """Return why a voter is removed, and what remains."""
        healthy, left = len(states.healthy - {number}), states.voters - 1
        if number in states.lost or number in states.leaving:
            cause = self.failure(states, number)
        else:
            cause = f"{self.name(number)} is the one to remove, with {self.fill(number)}"
        what = f"{states.voters} voters where {states.wanted} are wanted"
        return f"{what}; {cause}; {healthy} of the {left} that stay are healthy, {left // 2 + 1} are a majority"

    def spare(self, states: MemberStates, number: int) -> str:
        """Return why a copy under way is removed."""
        have = f"{len(states.steady)} of {states.wanted} voters are steady"
        return f"{have}; the copy on {self.name(number)} is not needed any more and closes no gap"

    def remove(self, states: MemberStates, number: int) -> str:
        """Return why a member that is not a voter is removed."""
        have = f"{len(states.steady)} steady and {len(states.arriving)} arriving of {states.wanted} voters"
        return f"{self.failure(states, number)}, and its member is not a voter; there are {have}"

    def hand_over(self, number: int, target: int, cause: str) -> str:
        """Return why a leader hands over."""
        led = f"which leads {self._cluster.leaders[target]} tablets"
        return f"{self.name(number)} {cause}; {self.name(target)} takes over, {led}"

    def move(self, source: int, target: int, closed: float) -> str:
        """Return why a replica moves for balance."""
        ends = f"{self.name(source)} has {self.fill(source)}; {self.name(target)} {self.fill(target)}"
        return f"{ends}: a move closes {100 * closed:.0f} % of a share"

    def apart(self, source: int, target: int, pairs: tuple[int, int]) -> str:
        """Return why a replica moves for its location.

        ``pairs`` are those before and after, at the coarsest level that differs."""
        way = f"from {self.name(source)} to {self.name(target)}"
        return f"{pairs[0]} pairs of its replicas share a location, and {pairs[1]} will if one moves {way}"

    def lead(self, source: int, target: int) -> str:
        """Return why leadership is transferred for balance."""
        cluster = self._cluster
        ends = (
            f"{self.name(n)} leads {cluster.leaders[n]} tablets, its share is {cluster.leader_share[n]:.1f}"
            for n in (source, target)
        )
        return "; ".join(ends)
