"""What a leader changes about its members: on request, only what was asked; by itself, only what has a reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Ready, Role, Status
from stelae.spi.consensus_events import BeatException, ChangeMembers, Event, PeerAlive
from stelae.spi.ids import NodeId
from stelae.spi.members import PROMOTED, Member, TabletConfig

CATCH_UP_TIMEOUTS: Final = 3
"""Number of election timeouts. A new voter has what its leader's log held that long ago. Two rounds of catching up take
less than two timeouts, and a message that was lost is repeated within a part of one."""


class _LeaderChanges(Invariant):
    """Base class: knows which changes the core of each node was asked for in its present turn."""

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._asked: dict[int, list[ChangeMembers]] = {}

    def on_step(self, node: ObservedNode, events: Sequence[Event]) -> None:
        """Record the requests of a turn."""
        self._asked[node.position] = [event for event in events if isinstance(event, ChangeMembers)]

    def _request(
        self, node: ObservedNode, ready: Ready, before: TabletConfig, config: TabletConfig
    ) -> ChangeMembers | None:
        """Return the request of this turn that a config carries out, or ``None`` if it is the leader's own change."""
        rejected = {rejection.token for rejection in ready.rejections}
        for asked in self._asked.get(node.position, ()):
            member = asked.change.node_id
            if asked.token not in rejected and before.member(member) != config.member(member):
                return asked
        return None


class ChangesAreFenced(_LeaderChanges):
    """A change with a compare-and-set id is appended only while the config with that id is the committed one."""

    name: ClassVar[str] = "changes_are_fenced"
    source: ClassVar[str] = "durability.md rules 11 and 27; behaviours.md C9"

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Compare the id of a request with the committed config. ``one_change_pending`` sees what it changes."""
        committed = None if node.status is None else node.status.committed_config.op_id
        for before, config in self.world.appended_by_leader(node, ready):
            asked = self._request(node, ready, before, config)
            if asked is not None and asked.committed_config_id not in (None, before.op_id, committed):
                fact = f"node {node.position} appends config {config.op_id} after {before.op_id}"
                self.fail(f"{fact}, for a request that is meant for {asked.committed_config_id}")


class NoNeedlessRemoval(_LeaderChanges):
    """A leader removes a member by itself only if the member has never acknowledged anything to it, or joins and dies.

    A member joins from the config with which it is to get a vote until it has it. It has died if no heartbeat was
    answered for most of the timeout since then."""

    name: ClassVar[str] = "no_needless_removal"
    source: ClassVar[str] = "durability.md rule 11; behaviours.md C12"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        #: By the position of a leader and the peer: the time of its last answer by the leader's clock, and the true
        #: time at which the leader's core got that. Heartbeats are delivered late, but before each deadline.
        self._answers: dict[tuple[int, NodeId], tuple[int, int]] = {}
        #: The true time at which a leader appended the config with which a member is to get a vote.
        self._joined_us: dict[tuple[int, NodeId], int] = {}

    def on_step(self, node: ObservedNode, events: Sequence[Event]) -> None:
        """Record the requests of a turn, and the answers to heartbeats."""
        super().on_step(node, events)
        for event in events:
            if isinstance(event, PeerAlive | BeatException):
                at_us = event.heard_at_us if isinstance(event, PeerAlive) else self.world.now_us()
                key = (node.position, event.peer)
                if at_us != self._answers.get(key, (0, 0))[0]:
                    self._answers[key] = (at_us, self.world.now_us())

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Look for members that are gone without a request."""
        peers = {} if node.status is None else {peer.node_id: peer for peer in node.status.peers}
        for before, config in self.world.appended_by_leader(node, ready):
            for member in config.members:
                earlier = before.member(member.node_id)
                if member.member_type in PROMOTED and (earlier is None or earlier.member_type not in PROMOTED):
                    self._joined_us[node.position, member.node_id] = self.world.now_us()
            if self._request(node, ready, before, config) is not None:
                continue
            for member in before.members:
                peer = peers.get(member.node_id)
                gone = config.member(member.node_id) is None
                if gone and peer is not None and peer.match_index and not self._has_died(node, member):
                    fact = f"node {node.position} removes node {member.node_id} by itself in config {config.op_id}"
                    self.fail(f"{fact}, although it has acknowledged its log up to {peer.match_index}")

    def _has_died(self, node: ObservedNode, member: Member) -> bool:
        key = (node.position, member.node_id)
        _, answered_us = self._answers.get(key, (0, 0))
        silent_us = self.world.now_us() - max(answered_us, self._joined_us.get(key, 0))
        return member.member_type in PROMOTED and silent_us >= self.world.member_join_timeout_us * 3 // 4


class VotersHaveCaughtUp(Invariant):
    """A leader gives a vote only to a member that has acknowledged all but the newest part of its log.

    Otherwise commits could wait for the member until it has got the rest. The number of entries does not matter, but
    how long ago they were appended: see ``CATCH_UP_TIMEOUTS``."""

    name: ClassVar[str] = "voters_have_caught_up"
    source: ClassVar[str] = "Raft thesis section 4.2.1; durability.md rule 11; behaviours.md C10"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._ends: dict[int, deque[tuple[int, int]]] = {}  # Times, and the last index of the log from then on.
        self._new_voters: dict[int, set[NodeId]] = {}

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Begin with the log that was found."""
        self._ends[node.position] = deque([(self.world.now_us(), log.last.index)])

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Record where the log ends, and who gets a vote."""
        for before, config in self.world.appended_by_leader(node, ready):
            self._new_voters[node.position] = set(config.voters()) - set(before.voters())
        if ready.append is not None:
            self._ends[node.position].append((self.world.now_us(), node.last_after(ready).index))

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Compare what the new voters have acknowledged with what the log held some time ago."""
        voters = self._new_voters.pop(node.position, None)
        if not voters or status.role is not Role.LEADER:
            return
        needed = self._held_for_long(node)
        for peer in status.peers:
            if peer.node_id in voters and peer.match_index < needed:
                fact = f"node {node.position} gives node {peer.node_id} a vote, which has acknowledged its log up to"
                self.fail(f"{fact} {peer.match_index}; {needed} is older than {CATCH_UP_TIMEOUTS} election timeouts")

    def _held_for_long(self, node: ObservedNode) -> int:
        """Return up to which index the log was there some timeouts ago, and has been since."""
        ends = self._ends[node.position]
        since_us = self.world.now_us() - CATCH_UP_TIMEOUTS * self.world.election_timeout_us
        while len(ends) > 1 and ends[1][0] <= since_us:
            ends.popleft()
        return min(index for _, index in ends) if ends[0][0] <= since_us else 0
