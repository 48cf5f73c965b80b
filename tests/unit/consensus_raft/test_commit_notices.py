"""How followers hear of the commit index: at once while idle, with the entries while busy."""

from __future__ import annotations

from stelae.spi.consensus_events import PeerAlive, Proposal, Propose, Tick
from stelae.spi.log import EntryKind
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendEntries
from stelae_consensus_raft.progress import COMMIT_ONLY_BURST_MAX
from tests.unit.consensus_raft.solo import A, B, Solo

NEWS_US = 50_000


def commit_one(solo: Solo) -> list[int]:
    """Commit an entry through A; return the commit indexes that A hears in words of their own."""
    solo.step(Propose((Proposal(1, EntryKind.WRITE, b"x"),)))
    solo.ack(A)
    return told(solo)


def told(solo: Solo) -> list[int]:
    return [m.commit for m in solo.to(A) if isinstance(m, AppendEntries) and m.quiet]


def pass_time(solo: Solo, to_us: int) -> None:
    solo.step(PeerAlive(A, 2, to_us), PeerAlive(B, 2, to_us), Tick(to_us))


def until_busy(solo: Solo) -> int:
    """Commit entries until A is not told of one by itself; return how many it was told of."""
    for count in range(100):
        if not commit_one(solo):
            return count
    raise AssertionError("A hears of every commit in a message of its own")


def test_an_idle_peer_hears_of_each_commit_at_once() -> None:
    solo = Solo().serve()
    for number in range(20):
        pass_time(solo, (number + 1) * NEWS_US)
        assert commit_one(solo) == [solo.core.status().commit]


def test_a_busy_peer_hears_with_the_entries_that_follow() -> None:
    solo = Solo().serve()
    assert until_busy(solo) <= COMMIT_ONLY_BURST_MAX
    commit = solo.core.status().commit
    solo.step(Propose((Proposal(1, EntryKind.WRITE, b"x"),)))
    (carried,) = [o.message for o in solo.outbound() if o.to == A]
    assert isinstance(carried, AppendEntries)
    assert carried.commit == commit


def test_the_last_commit_of_a_busy_time_is_told_within_the_interval() -> None:
    solo = Solo().serve()
    until_busy(solo)
    deadline = solo.core.next_deadline()
    assert deadline is not None
    assert 0 < deadline <= NEWS_US
    pass_time(solo, deadline - 1)
    assert told(solo) == []
    pass_time(solo, deadline)
    assert told(solo) == [solo.core.status().commit]


def test_what_was_told_is_not_told_again() -> None:
    solo = Solo().serve()
    until_busy(solo)
    pass_time(solo, NEWS_US)
    assert len(told(solo)) == 1
    pass_time(solo, 5 * NEWS_US)
    assert told(solo) == []


def test_a_peer_that_was_busy_long_ago_has_its_burst_again_and_no_more() -> None:
    solo = Solo().serve()
    until_busy(solo)
    pass_time(solo, NEWS_US)
    pass_time(solo, 20 * NEWS_US)
    assert until_busy(solo) == COMMIT_ONLY_BURST_MAX


def test_an_interval_of_zero_tells_every_commit_at_once() -> None:
    solo = Solo(settings=RaftConfig(commit_notice_ms=0)).serve()
    assert all(commit_one(solo) for _ in range(50))
