"""Where a node had more entries before, its replica votes as the earlier one until its log has reached it (rule 18)."""

from __future__ import annotations

import msgspec
import pytest

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Received, Tick
from stelae.spi.ids import OpId
from stelae_consensus_raft.messages import TimeoutNow, VoteRefusal
from tests.unit.consensus_raft.solo import A, B, Solo, entries, log_of

HAD = OpId(2, 8)


def witness(*terms: int) -> Solo:
    """A log that begins at 1.4, on a node that had entries up to 2.8."""
    return Solo(log=msgspec.structs.replace(log_of(*terms, base=OpId(1, 4)), log_only=True, vote_floor=HAD), term=3)


@pytest.mark.parametrize("pre", [True, False])
def test_it_grants_no_vote_to_a_log_that_ends_before_what_the_node_had(pre: bool) -> None:
    solo = witness(1, 1)
    for last in (OpId(1, 4), OpId(1, 6), OpId(1, 99), OpId(2, 7)):
        assert solo.vote(A, 4, last, pre=pre).refusal is VoteRefusal.LOG_BEHIND


def test_it_grants_its_vote_to_a_log_that_has_all_of_it() -> None:
    assert witness(1).vote(A, 4, HAD).refusal is None
    assert witness(1).vote(A, 4, OpId(3, 5)).refusal is None


def test_once_its_log_has_reached_it_the_end_of_the_log_counts() -> None:
    solo = witness()
    reply = solo.append(3, OpId(1, 4), *entries(5, 2, 2, 2, 2, 3, 3))
    assert reply is not None and reply.refusal is None
    solo.core.validate_state()
    assert solo.vote(B, 4, HAD, transfer=True).refusal is VoteRefusal.LOG_BEHIND
    assert solo.vote(B, 5, OpId(3, 10), transfer=True).refusal is None


@pytest.mark.parametrize("transfer", [True, False])
def test_it_does_not_lead_before_its_log_has_reached_it(transfer: bool) -> None:
    """The log may have a config in which the node has a vote, older than the one that makes it a witness again."""
    solo = witness(1)

    def campaign() -> int:
        now_us = solo.core.next_deadline() or 0
        if transfer:
            solo.step(Received(A, TimeoutNow(term=solo.core.status().term)))
        else:
            solo.step(Tick(now_us))
        return now_us

    asked_us = campaign()
    assert solo.core.status().role is Role.FOLLOWER
    solo.core.validate_state()
    assert transfer or (solo.core.next_deadline() or 0) > asked_us, "it tries again later"
    solo.append(3, OpId(1, 5), *entries(6, 2, 2, 2, 3))
    campaign()
    assert solo.core.status().role is Role.CANDIDATE
