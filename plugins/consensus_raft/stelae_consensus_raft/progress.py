"""The progress of each peer as its leader knows it, and the limits on what is in flight to it.

States of a peer:

- PROBE: the leader does not know at which index the logs agree. It sends one message and waits for the answer.
- REPLICATE: the leader knows it. It sends appends without waiting, within a window of messages and one of bytes.
- COPY: the peer needs entries that the log no longer has. The leader neither reads nor sends entries. The state ends
  when the peer accepts a message at the log's base or above, because it has a copy. It is probed with each request for
  a copy, and one that was unreachable once when it is reachable again.

The *session* of a peer tells the times apart at which it was a member. Answers repeat it. A late answer of a node that
was removed, has lost its log, and was added again, does not count.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from stelae.spi.consensus import PeerProgress
from stelae.spi.ids import NodeId
from stelae_consensus_raft.catch_up import CatchUp

RETRY_DOUBLINGS_MAX = 3
"""How often the retry interval of a silent peer doubles: up to eight times ``append_retry_ms``."""

COMMIT_ONLY_BURST_MAX = 8
"""How many messages that carry only a commit index may follow each other without a pause."""


class PeerState(StrEnum):
    """How a leader sends to a peer; see the module's docstring."""

    PROBE = "PROBE"
    REPLICATE = "REPLICATE"
    COPY = "COPY"


class Progress:
    """One peer as its leader knows it."""

    __slots__ = (
        "_in_flight",
        "all_replicated_sent",
        "answered",
        "answered_at_us",
        "asked_at_us",
        "catch_up",
        "commit_known",
        "commit_only_paid_us",
        "commit_sent",
        "has_followed",
        "heard_at_us",
        "in_flight_bytes",
        "joining",
        "log_only",
        "match",
        "next",
        "node_id",
        "retries",
        "round_acked",
        "round_promised",
        "sent_at_us",
        "session",
        "state",
        "waiting",
        "was_unreachable",
    )

    def __init__(self, node_id: NodeId, next_index: int, now_us: int, session: int = 0) -> None:
        self.node_id = node_id
        #: The index of the config entry by which this leader added the peer; 0 for those that it found.
        self.session = session
        self._init_answers(now_us)
        #: Of a member without a vote: whether it has caught up.
        self.catch_up: CatchUp | None = None
        self.state = PeerState.PROBE
        #: Highest index that is durable on the peer and equal to the leader's log, as far as the peer has acknowledged.
        self.match = 0
        #: First index to send. It is always above ``match``, except in COPY.
        self.next = next_index
        #: PROBE and COPY: a message is in flight.
        self.waiting = False
        #: When the leader last sent a message that asks for an answer, or the peer last made progress.
        self.sent_at_us = now_us
        #: The peer's commit index, as its last answer said.
        self.commit_known = 0
        #: The commit index that the peer will have from the messages that are in flight.
        self.commit_sent = 0
        #: The all-replicated index that was last sent to the peer.
        self.all_replicated_sent = 0
        self._init_member()
        #: Time up to which the sent messages that carried only a commit index have used the peer's allowance.
        self.commit_only_paid_us = 0
        #: Newest read rounds that the peer confirmed, and that it confirmed with the promise that a lease needs.
        self.round_acked = self.round_promised = 0
        #: Retries since the peer last answered.
        self.retries = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        self.in_flight_bytes = 0

    def _init_answers(self, now_us: int) -> None:
        """Set what the answers of the peer show: nothing yet."""
        #: True once the node has answered this leader, also by a refusal.
        self.answered = False
        #: When the node last answered; before that, since when it is a peer of this leader, or joins.
        self.answered_at_us = now_us
        #: True if it is a member that is to be promoted.
        self.joining = False
        #: True once the peer has shown that it follows this leader in this term.
        self.has_followed = False
        #: When the peer last showed it; before that, since when it is a peer of this leader.
        self.heard_at_us = now_us

    def _init_member(self) -> None:
        """Set what is not known yet of the node as a member, and what is known only in COPY."""
        #: True if the peer has no rows, as its last answer said; ``None`` before its first answer.
        self.log_only: bool | None = None
        #: COPY only: the peer was unreachable, or did not run, since it was last probed.
        self.was_unreachable = False
        #: COPY only: when a copy, or a replica, was last requested for the peer.
        self.asked_at_us = 0

    @property
    def in_flight_count(self) -> int:
        """Number of appends with entries that the peer has not answered yet."""
        return len(self._in_flight)

    def add_in_flight(self, last_index: int, size_bytes: int, now_us: int) -> None:
        """Note an append in flight that ends at ``last_index``."""
        if not self._in_flight:
            self.sent_at_us = now_us
        self._in_flight.append((last_index, size_bytes))
        self.in_flight_bytes += size_bytes
        self.next = last_index + 1

    def commit_only_from_us(self, interval_us: int) -> int:
        """Return the time from which the leader may send the peer a message that carries only a commit index.

        The allowance is one such message per interval. Up to ``COMMIT_ONLY_BURST_MAX`` of them may be sent early."""
        return self.commit_only_paid_us - (COMMIT_ONLY_BURST_MAX - 1) * interval_us

    def add_commit_only(self, interval_us: int, now_us: int) -> None:
        """Note that such a message was sent."""
        self.commit_only_paid_us = max(self.commit_only_paid_us, now_us) + interval_us

    def acknowledged(self, match: int, now_us: int) -> bool:
        """Note an acknowledgement. Returns false if ``match`` does not rise."""
        if match <= self.match:
            return False
        self.match = match
        self.next = max(self.next, match + 1)
        self.sent_at_us = now_us
        while self._in_flight and self._in_flight[0][0] <= match:
            self.in_flight_bytes -= self._in_flight.popleft()[1]
        return True

    def range_shortened(self, asked_index: int, through_index: int) -> bool:
        """Note that a range that should end at ``asked_index`` was sent only up to ``through_index``.

        The peer will refuse the ranges that were sent after it, because of the gap. So they are sent again. Returns
        false if no such range is in flight."""
        if all(last != asked_index for last, _ in self._in_flight):
            return False
        while self._in_flight and self._in_flight[-1][0] >= asked_index:
            self.in_flight_bytes -= self._in_flight.pop()[1]
        # Two ranges may have had the same end. Then the first answer has covered this one.
        end = self._in_flight[-1][0] if self._in_flight else self.match
        if through_index > end:
            self._in_flight.append((through_index, 0))
        self.next = max(end, through_index) + 1
        return True

    def to_probe(self, next_index: int, *, waiting: bool = False) -> None:
        """Change to PROBE: messages in flight may be lost, and the next message starts at ``next_index``."""
        self._reset(PeerState.PROBE)
        self.next = max(next_index, self.match + 1)
        self.waiting = waiting

    def to_replicate(self) -> None:
        """Change to REPLICATE: the logs agree up to ``match``."""
        self._reset(PeerState.REPLICATE)
        self.next = self.match + 1

    def to_copy(self) -> None:
        """Change to COPY: the log no longer has the entries that the peer needs."""
        self._reset(PeerState.COPY)

    def _reset(self, state: PeerState) -> None:
        self.state = state
        self.waiting = self.was_unreachable = False
        self.commit_sent = 0
        self.all_replicated_sent = 0
        self._in_flight.clear()
        self.in_flight_bytes = 0
        if self.catch_up is not None and state is not PeerState.REPLICATE:
            self.catch_up.interrupted()

    def log_lost(self) -> None:
        """Note that the replica of a peer without a vote was lost, with what it has acknowledged."""
        self.match = self.commit_known = 0

    def retry_at_us(self, interval_us: int) -> int:
        """Return when the leader repeats an unanswered message."""
        return self.sent_at_us + self._retry_after_us(interval_us)

    def ask_again_at_us(self, interval_us: int) -> int:
        """COPY only: return when the leader repeats its request for a copy.

        Messages that are sent meanwhile do not count: each read of a busy tablet sends one."""
        return self.asked_at_us + self._retry_after_us(interval_us)

    def _retry_after_us(self, interval_us: int) -> int:
        return interval_us << min(self.retries, RETRY_DOUBLINGS_MAX)

    def followed_since(self, since_us: int) -> bool:
        """Return true if the peer has shown since then that it follows this leader."""
        return self.has_followed and self.heard_at_us >= since_us

    def has_answered(self, at_us: int) -> None:
        """Note that the node answered this leader at that time."""
        self.answered, self.answered_at_us = True, max(self.answered_at_us, at_us)

    def leader_was_suspended(self, duration_us: int, now_us: int) -> None:
        """Do not count the time in which the leader was suspended as silence of the node."""
        self.answered_at_us = min(self.answered_at_us + duration_us, now_us)

    def set_joining(self, joining: bool, now_us: int) -> None:
        """Note whether it is to be promoted now. From then on it has the whole timeout to answer."""
        if joining and not self.joining:
            self.answered_at_us = now_us
        self.joining = joining

    def follows(self, at_us: int) -> None:
        """Note that the peer answered at that time, and that it follows this leader."""
        self.has_answered(at_us)
        self.has_followed, self.heard_at_us = True, max(self.heard_at_us, at_us)

    def snapshot(self) -> PeerProgress:
        """Return the progress for ``Status``."""
        return PeerProgress(
            node_id=self.node_id,
            match_index=self.match,
            next_index=self.next,
            state=self.state,
            in_flight=len(self._in_flight) + self.waiting,
            log_only=self.log_only is True,
        )

    def validate(self) -> None:
        """Check the invariants.

        Raises:
            AssertionError: one does not hold.
        """
        assert self.next > self.match or self.state is PeerState.COPY
        assert self.in_flight_bytes == sum(size for _, size in self._in_flight) >= 0
        ends = [last for last, _ in self._in_flight]
        assert ends == sorted(set(ends))
        assert not ends or (self.match < ends[0] and ends[-1] < self.next)
        assert not ends or self.state is PeerState.REPLICATE
        assert not self.was_unreachable or self.state is PeerState.COPY
