"""To whom a leader hands over (behaviour C8). The conformance suite has the rest."""

from __future__ import annotations

import pytest

from stelae.spi.consensus_events import DAMAGED, UNKNOWN, BeatException, Received, Transfer
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendReply, TimeoutNow
from tests.unit.consensus_raft.solo import A, B, Solo
from tests.unit.consensus_raft.test_leader import peer_of, propose


def test_a_leader_hands_over_to_no_voter_without_rows() -> None:
    """It would be a caretaker. Without a name it was passed over; with its name, it was asked to take over."""
    solo = Solo().serve()
    solo.step(Received(A, AppendReply(term=2, match=2, log_only=True)))
    solo.step(Transfer(1, A), Transfer(2, None))
    rejections = [one for ready in solo.readies for one in ready.rejections]
    assert [(one.token, one.reason) for one in rejections] == [(1, "NO_SUCCESSOR"), (2, "NO_SUCCESSOR")]
    assert A in rejections[0].detail and "log only" in rejections[0].detail


def test_a_voter_that_catches_up_gets_no_leadership_and_no_write_waits_for_it() -> None:
    """The policy names it as soon as its node is back, because it leads too little, and writes stopped each time."""
    solo = Solo(settings=RaftConfig(append_bytes_max=1000, in_flight_messages_max=1)).serve()
    solo.ack(B)
    for _ in range(4):
        propose(solo, size=800)
        solo.ack(A)
    solo.step(Transfer(9, B))
    rejection = next(one for ready in solo.fresh for one in ready.rejections)
    assert (rejection.token, rejection.reason) == (9, "NO_SUCCESSOR") and "ends at 2 of 6" in rejection.detail
    propose(solo, size=1)
    assert not any(ready.rejections for ready in solo.fresh), "writes go on"
    solo.ack(A)
    for match in (3, 4, 5):
        solo.ack(B, match)
    solo.step(Transfer(10, B))
    solo.ack(B)
    assert any(isinstance(message, TimeoutNow) for message in solo.to(B)), "what is on its way is no lag"


@pytest.mark.parametrize("damaged", [True, False])
def test_a_voter_that_needs_a_copy_gets_no_leadership(damaged: bool) -> None:
    solo = Solo().serve()
    solo.ack(B)
    solo.step(BeatException(B, 2, DAMAGED if damaged else UNKNOWN))
    assert peer_of(solo, B).state == "COPY"
    solo.step(Transfer(9, B))
    rejection = next(one for ready in solo.fresh for one in ready.rejections)
    assert rejection.reason == "NO_SUCCESSOR" and "copy of the rows" in rejection.detail
