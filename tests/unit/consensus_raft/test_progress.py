"""What a leader knows of one peer: ranges under way, shortened and answered."""

from __future__ import annotations

from stelae.spi.ids import NodeId
from stelae_consensus_raft.progress import Progress


def replicating(match: int) -> Progress:
    peer = Progress(NodeId("a" * 32), match + 1, 0)
    peer.acknowledged(match, 0)
    peer.to_replicate()
    return peer


def test_a_range_that_was_sent_short_is_continued_behind_its_end() -> None:
    peer = replicating(match=10)
    peer.add_in_flight(20, 1_000, 1)
    assert peer.range_shortened(20, 14)
    assert (peer.next, peer.in_flight_count, peer.in_flight_bytes) == (15, 1, 0)
    peer.validate()


def test_a_second_report_of_a_shortened_range_leaves_no_range_twice() -> None:
    """Found by simulation: two reads of the log under way for ranges with the same end, the first
    report had been acted upon when the second, equal one arrived."""
    peer = replicating(match=10)
    peer.add_in_flight(20, 1_000, 1)
    peer.range_shortened(20, 14)
    peer.add_in_flight(20, 500, 2)
    assert peer.range_shortened(20, 14)
    peer.validate()
    assert (peer.next, peer.in_flight_count) == (15, 1)


def test_a_late_report_does_not_fall_back_behind_what_is_under_way() -> None:
    peer = replicating(match=10)
    peer.add_in_flight(14, 100, 1)
    peer.add_in_flight(20, 1_000, 1)
    assert peer.range_shortened(20, 12)
    peer.validate()
    assert peer.next == 15
    assert not peer.range_shortened(20, 13)
