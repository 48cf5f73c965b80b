"""What a leader knows of each peer, and how much it may send it.

States of a peer
    PROBE      the leader does not know where the peer's log agrees: one message, then wait.
    REPLICATE  it does: messages follow each other without waiting, within two windows.
    COPY       the peer needs what the log no longer has: no entries are sent, and none are read from the
               log. It ends when a copy ended, or when the peer accepts a message at the log's base or
               above: somebody has restored it. One that was away is asked once when it is back.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from stelae.spi.consensus import PeerProgress
from stelae.spi.ids import NodeId

RETRY_DOUBLINGS_MAX = 3
"""A silent peer is asked at intervals of up to eight times the retry interval."""


NEWS_BURST_MAX = 8
"""So many messages that only tell a commit index may follow each other without a pause."""


class PeerState(StrEnum):
    """How a leader treats a peer; see the module."""

    PROBE = "PROBE"
    REPLICATE = "REPLICATE"
    COPY = "COPY"


class Progress:
    """One peer, as its leader sees it.

    Attributes:
        match: highest index known to be durable there and equal to ours.
        next: first index to send; always above ``match``.
        waiting: PROBE and COPY: a message is under way.
        was_away: COPY only: the peer was unreachable, or did not run, since it was last asked.
        sent_at_us: when something that asks for an answer was last sent, or progress was made.
        heard_at_us: when the peer last showed that it follows us in this term.
        commit_known: the peer's commit index, as it said; ``commit_sent``: as it will hear.
        all_replicated_sent: up to where the peer will hear that all members hold the log.
        news_paid_us: up to when messages that only told a commit index have used its due.
        round_acked: newest read round that the peer confirmed.
    """

    __slots__ = (
        "_in_flight",
        "all_replicated_sent",
        "commit_known",
        "commit_sent",
        "heard_at_us",
        "in_flight_bytes",
        "match",
        "news_paid_us",
        "next",
        "node_id",
        "retries",
        "round_acked",
        "sent_at_us",
        "state",
        "waiting",
        "was_away",
    )

    def __init__(self, node_id: NodeId, next_index: int, now_us: int) -> None:
        self.node_id = node_id
        self.state = PeerState.PROBE
        self.match = 0
        self.next = next_index
        self.waiting = False
        self.sent_at_us = now_us
        self.heard_at_us = now_us
        self.commit_known = 0
        self.commit_sent = 0
        self.all_replicated_sent = 0
        self.was_away = False
        self.news_paid_us = 0
        self.round_acked = 0
        self.retries = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        self.in_flight_bytes = 0

    @property
    def in_flight_count(self) -> int:
        """Appends with entries that are not answered yet."""
        return len(self._in_flight)

    def sent(self, last_index: int, size_bytes: int, now_us: int) -> None:
        """Note entries up to ``last_index`` as under way."""
        if not self._in_flight:
            self.sent_at_us = now_us
        self._in_flight.append((last_index, size_bytes))
        self.in_flight_bytes += size_bytes
        self.next = last_index + 1

    def news_from_us(self, interval_us: int) -> int:
        """From when on the peer may hear of a commit index in a message of its own.

        One such message per interval is its due; up to a burst of them may come early."""
        return self.news_paid_us - (NEWS_BURST_MAX - 1) * interval_us

    def told(self, interval_us: int, now_us: int) -> None:
        """Note such a message."""
        self.news_paid_us = max(self.news_paid_us, now_us) + interval_us

    def acknowledged(self, match: int, now_us: int) -> bool:
        """Take an acknowledgement; false if it says nothing new."""
        if match <= self.match:
            return False
        self.match = match
        self.next = max(self.next, match + 1)
        self.sent_at_us = now_us
        while self._in_flight and self._in_flight[0][0] <= match:
            self.in_flight_bytes -= self._in_flight.popleft()[1]
        return True

    def shortened(self, asked_index: int, through_index: int) -> bool:
        """A range that ended at ``asked_index`` was sent only up to ``through_index``.

        What was sent behind it cannot fit its gap and will be refused, so it is to be sent again.
        False if no such range is under way."""
        if all(last != asked_index for last, _ in self._in_flight):
            return False
        while self._in_flight and self._in_flight[-1][0] >= asked_index:
            self.in_flight_bytes -= self._in_flight.pop()[1]
        # Two ranges may have asked for the same end; then the first answer has settled this one.
        end = self._in_flight[-1][0] if self._in_flight else self.match
        if through_index > end:
            self._in_flight.append((through_index, 0))
        self.next = max(end, through_index) + 1
        return True

    def to_probe(self, next_index: int, *, waiting: bool = False) -> None:
        """What is under way may be lost: find out where the peer is, from ``next_index``."""
        self._reset(PeerState.PROBE)
        self.next = max(next_index, self.match + 1)
        self.waiting = waiting

    def to_replicate(self) -> None:
        """The peer agrees up to ``match``: send without waiting."""
        self._reset(PeerState.REPLICATE)
        self.next = self.match + 1

    def to_copy(self) -> None:
        """The peer cannot be caught up from the log."""
        self._reset(PeerState.COPY)

    def _reset(self, state: PeerState) -> None:
        self.state = state
        self.waiting = self.was_away = False
        self.commit_sent = 0
        self.all_replicated_sent = 0
        self._in_flight.clear()
        self.in_flight_bytes = 0

    def retry_at_us(self, interval_us: int) -> int:
        """When an unanswered message is to be repeated."""
        return self.sent_at_us + (interval_us << min(self.retries, RETRY_DOUBLINGS_MAX))

    def snapshot(self) -> PeerProgress:
        """For people and checkers."""
        return PeerProgress(
            node_id=self.node_id,
            match_index=self.match,
            next_index=self.next,
            state=self.state,
            in_flight=len(self._in_flight) + self.waiting,
        )

    def validate(self) -> None:
        """Check the invariants; raises ``AssertionError``."""
        assert self.next > self.match or self.state is PeerState.COPY
        assert self.in_flight_bytes == sum(size for _, size in self._in_flight) >= 0
        ends = [last for last, _ in self._in_flight]
        assert ends == sorted(set(ends))
        assert not ends or (self.match < ends[0] and ends[-1] < self.next)
        assert not ends or self.state is PeerState.REPLICATE
        assert not self.was_away or self.state is PeerState.COPY
