"""Votes, pre-votes and campaigns, from the side of one replica (behaviours C1, C4, C5)."""

from __future__ import annotations

import msgspec
import pytest

from stelae.spi.consensus import HardState, Role
from stelae.spi.consensus_events import Campaign, LeaderAlive, Persisted, PersistFailed, Received, StepDown, Tick
from stelae.spi.ids import OpId
from stelae_consensus_raft.messages import TimeoutNow, VoteRefusal, VoteReply, VoteRequest
from tests.unit.consensus_raft.solo import ME, T_US, A, B, C, Solo, log_of, members

LAST = OpId(1, 1)


def test_a_vote_is_durable_before_its_answer_leaves() -> None:
    solo = Solo()
    assert solo.vote(A, 2, LAST).refusal is None
    (ready,) = solo.fresh
    assert ready.hard_state == HardState(2, A)
    assert ready.after_persist and not ready.at_once


def test_a_repeated_request_of_the_same_candidate_is_granted_again_without_a_write() -> None:
    solo = Solo()
    solo.vote(A, 2, LAST)
    assert solo.vote(A, 2, LAST).refusal is None
    assert solo.fresh[0].hard_state is None


def test_another_candidate_of_that_term_is_refused_also_after_a_restart() -> None:
    for solo in (Solo(), Solo(term=2, voted_for=A)):
        if solo.core.status().voted_for is None:
            solo.vote(A, 2, LAST)
        assert solo.vote(B, 2, OpId(1, 9)).refusal is VoteRefusal.VOTED


def test_a_shorter_log_is_refused_but_its_term_is_taken() -> None:
    solo = Solo(log=log_of(1, 1, 2))
    assert solo.vote(A, 5, OpId(1, 9)).refusal is VoteRefusal.LOG_BEHIND
    assert solo.vote(B, 5, OpId(2, 2)).refusal is VoteRefusal.LOG_BEHIND
    assert solo.core.status().term == 5
    assert solo.core.status().voted_for is None


def test_an_old_term_is_refused_with_the_own_one() -> None:
    reply = Solo(term=4).vote(A, 3, OpId(2, 9))
    assert (reply.refusal, reply.term) == (VoteRefusal.STALE_TERM, 4)


@pytest.mark.parametrize("last", [LAST, OpId(0, 0)])
def test_a_pre_vote_changes_nothing(last: OpId) -> None:
    solo = Solo()
    before = solo.core.status()
    solo.vote(A, 9, last, pre=True)
    assert solo.core.status() == before
    assert all(ready.hard_state is None for ready in solo.readies)


@pytest.mark.parametrize("pre", [True, False])
def test_a_vote_is_withheld_while_a_leader_is_heard_and_even_the_term_stands(pre: bool) -> None:
    solo = Solo()
    solo.append(1, LAST)
    solo.step(Tick(T_US - 1))
    assert solo.vote(B, 9, OpId(1, 9), pre=pre).refusal is VoteRefusal.LEADER_ALIVE
    assert solo.core.status().term == 1


def test_a_vote_is_given_once_the_leader_has_been_silent_for_one_timeout() -> None:
    solo = Solo()
    solo.append(1, LAST)
    solo.step(Tick(T_US))
    assert solo.vote(B, 9, OpId(1, 9)).refusal is None


def test_a_transfer_is_not_withheld() -> None:
    solo = Solo()
    solo.append(1, LAST)
    assert solo.vote(B, 9, OpId(1, 9), transfer=True).refusal is None


def test_a_heartbeat_counts_as_hearing_from_the_leader_at_the_time_it_was_heard() -> None:
    solo = Solo()
    solo.append(1, LAST)
    # The driver delivers heartbeats before the Tick of its turn: they are ahead of the clock.
    solo.step(LeaderAlive(A, 1, 2 * T_US), Tick(2 * T_US + 1))
    assert solo.core.status().role is Role.FOLLOWER
    deadline = solo.core.next_deadline()
    assert deadline is not None and 3 * T_US <= deadline <= 4 * T_US
    assert solo.vote(B, 9, OpId(1, 9)).refusal is VoteRefusal.LEADER_ALIVE


def test_a_heartbeat_heard_before_does_not_end_a_campaign() -> None:
    solo = Solo()
    solo.append(1, LAST)
    solo.step(LeaderAlive(A, 1, 100), Tick(100))
    solo.step(LeaderAlive(A, 1, 100), Tick(3 * T_US))
    assert solo.core.status().role is Role.CANDIDATE
    solo.step(LeaderAlive(A, 1, 100))
    assert solo.core.status().role is Role.CANDIDATE
    solo.step(LeaderAlive(A, 1, 3 * T_US), Tick(3 * T_US))
    assert solo.core.status().role is Role.FOLLOWER
    assert solo.core.status().leader == A


def test_votes_of_one_voter_count_once_and_those_of_an_earlier_attempt_not_at_all() -> None:
    solo = Solo(config=members(ME, A, B, C, op_id=LAST))
    solo.step(Campaign(hinted=False))
    solo.grant(A)
    solo.grant(A)
    assert solo.core.status().term == 1, "two of four are no majority"
    old = VoteReply(term=1, campaign_term=2, attempt=1, pre=True)
    solo.step(Campaign(hinted=False))
    solo.step(Received(A, old), Received(B, old))
    assert solo.core.status().term == 1
    solo.grant(A)
    solo.grant(B)
    assert solo.core.status().term == 2


def test_the_own_vote_counts_only_once_it_is_durable() -> None:
    solo = Solo()
    solo.step(Campaign(hinted=False))
    solo.holds = True
    solo.grant(A)
    solo.grant(A)
    assert solo.core.status().role is Role.CANDIDATE


def waits(solo: Solo) -> list[float]:
    """Campaign in every way, and return the waits that follow, in election timeouts."""

    def wait() -> float:
        deadline = solo.core.next_deadline()
        assert deadline is not None
        return (deadline - solo.core._state.now_us) / T_US

    found = [wait()]
    solo.step(Campaign(hinted=False))
    found.append(wait())
    refused = VoteReply(term=1, campaign_term=2, attempt=1, pre=True, refusal=VoteRefusal.LOG_BEHIND)
    solo.step(Received(A, refused))
    found.append(wait())
    solo.step(Campaign(hinted=False))  # It was split.
    found.append(wait())
    solo.step(Received(A, TimeoutNow(term=1)))
    found.append(wait())
    solo.step(Received(A, VoteReply(term=9, campaign_term=2, attempt=3, pre=False, refusal=VoteRefusal.STALE_TERM)))
    found.append(wait())
    return found


def test_a_caretaker_waits_a_timeout_longer_than_a_voter_before_every_campaign() -> None:
    """It did so only before its first campaign. Then it competed with the voters as one of them."""
    own = members(ME, A, B, op_id=LAST)
    voter = Solo(config=own, log=log_of(1))
    caretaker = Solo(config=own, log=msgspec.structs.replace(log_of(1), log_only=True))
    assert waits(caretaker) == pytest.approx([wait + 1 for wait in waits(voter)], abs=1e-5)


def test_a_refused_campaign_is_repeated_soon_and_an_unanswered_one_late() -> None:
    solo = Solo()
    solo.step(Campaign(hinted=False))
    late = solo.core.next_deadline()
    assert late is not None and T_US <= late <= 2 * T_US
    refusal = VoteReply(term=1, campaign_term=2, attempt=1, pre=True, refusal=VoteRefusal.LEADER_ALIVE)
    solo.step(Received(A, refusal))
    soon = solo.core.next_deadline()
    assert soon is not None and T_US // 10 <= soon <= T_US // 2
    solo.step(Received(B, refusal))
    assert solo.core.status().role is Role.FOLLOWER
    solo.step(Tick(soon))
    again = solo.core.next_deadline()
    assert again is not None and soon + T_US <= again


def test_a_split_campaign_is_repeated_soon() -> None:
    solo = Solo(config=members(ME, A, B, C, op_id=LAST))
    solo.step(Campaign(hinted=False))
    solo.grant(A)
    deadline = solo.core.next_deadline()
    assert deadline is not None
    solo.step(Tick(deadline))
    again = solo.core.next_deadline()
    assert again is not None and again - deadline <= T_US // 2


def test_nobody_campaigns_while_the_last_vote_is_not_durable() -> None:
    """On a slow disk another campaign would make every vote void before anybody could count it."""
    solo = Solo()
    solo.step(Campaign(hinted=False))
    solo.holds = True
    solo.grant(A)
    for _ in range(100):
        solo.step(Tick(wait(solo)))
    assert solo.core.status().term == 2 and solo.core.status().role is Role.CANDIDATE
    slow_us = wait(solo)
    solo.holds = False
    solo.step(Tick(slow_us), Persisted(solo.readies[-1].id))
    assert solo.core.status().term == 2, "peers get as long to save their votes"
    assert wait(solo) >= slow_us + 4 * T_US
    solo.grant(A)
    assert solo.core.status().role is Role.LEADER


def test_who_voted_waits_for_the_vote_to_be_durable_before_it_campaigns() -> None:
    solo = Solo()
    solo.holds = True
    solo.step(Received(A, VoteRequest(term=2, last=LAST)))
    for _ in range(100):
        solo.step(Tick(wait(solo)))
    assert solo.core.status().term == 2 and solo.core.status().role is Role.FOLLOWER
    saved_us = wait(solo)
    solo.step(Tick(saved_us), Persisted(solo.readies[-1].id))
    assert wait(solo) >= saved_us + 4 * T_US, "the candidate needs time to hear of it"
    solo.step(Tick(wait(solo)))
    assert solo.core.status().role is Role.CANDIDATE


@pytest.mark.parametrize("first", ["refusal", "durable"])
def test_two_that_campaigned_side_by_side_on_a_slow_disk_try_again_soon(first: str) -> None:
    """With the third of them dead there is nobody to wait for."""
    solo = Solo()
    solo.step(Campaign(hinted=False))
    solo.holds = True
    solo.grant(A)
    slow_us = 10 * T_US
    refusal = Received(A, VoteReply(term=2, campaign_term=2, attempt=2, refusal=VoteRefusal.VOTED))
    saved = Persisted(solo.readies[-1].id)
    solo.step(Tick(slow_us), *((refusal, saved) if first == "refusal" else (saved, refusal)))
    assert solo.core.status().role is Role.CANDIDATE
    assert wait(solo) <= slow_us + T_US // 2


def test_a_disk_that_keeps_up_changes_no_wait() -> None:
    solo = Solo()
    solo.holds = True
    solo.step(Received(A, VoteRequest(term=2, last=LAST)))
    before = wait(solo)
    solo.step(Tick(T_US // 2), Persisted(solo.readies[-1].id))
    assert wait(solo) == before


def test_a_save_that_took_an_hour_does_not_cost_another() -> None:
    """The disk was full: the replica resumes when there is space, without a restart (behaviour W8)."""
    hour_us = 3_600 * T_US
    solo = Solo()
    solo.holds = True
    solo.step(Received(A, VoteRequest(term=2, last=LAST)))
    solo.step(Tick(hour_us), Persisted(solo.readies[-1].id))
    assert wait(solo) <= hour_us + 6 * T_US


def test_what_is_saved_again_after_a_failure_delays_nobody() -> None:
    solo, lone = Solo(), Solo(config=members(ME, op_id=LAST))
    for one in (solo, lone):
        one.holds = True
        one.step(PersistFailed(1, 1))
        one.step(Tick(100 * T_US))
        one.step(Persisted(one.readies[-1].id))
    assert wait(solo) <= 102 * T_US
    assert lone.core.status().role is Role.LEADER


def test_the_vote_of_a_lone_voter_is_waited_for_by_nobody_else() -> None:
    solo = Solo(config=members(ME, op_id=LAST))
    solo.holds = True
    solo.step(Campaign(hinted=False))
    for _ in range(30):
        solo.step(Tick(wait(solo)))
    solo.step(Persisted(solo.readies[-1].id))
    assert solo.core.status().role is Role.LEADER


def test_answers_that_come_after_the_campaign_was_given_up_make_the_next_waits_longer() -> None:
    solo, waits = Solo(config=members(ME, A, B, C, op_id=LAST)), []
    for number in range(1, 8):
        solo.step(Campaign(hinted=False))
        waits.append(wait(solo))
        late = VoteReply(term=1, campaign_term=2, attempt=number - 1, pre=True)
        solo.step(Received(A, late), Received(B, late), Received(C, late))
    expected = (1, 1, 2, 4, 8, 16, 16)
    assert all(factor * T_US <= found <= 2 * factor * T_US for factor, found in zip(expected, waits, strict=True)), (
        f"each campaign doubles the wait, however many answers are late: {waits}"
    )


def test_a_leader_ends_the_patience_of_an_overloaded_replica() -> None:
    solo = Solo()
    for number in range(1, 5):
        solo.step(Campaign(hinted=False))
        solo.step(Received(A, VoteReply(term=1, campaign_term=2, attempt=number - 1, pre=True)))
    assert wait(solo) > 2 * T_US
    solo.append(2, LAST)
    solo.vote(B, 9, OpId(1, 1))  # Years later, when that leader is forgotten.
    solo.step(Campaign(hinted=False))
    assert wait(solo) <= 2 * T_US


def test_the_second_answer_to_a_pre_vote_that_was_won_is_not_late() -> None:
    solo = Solo()
    solo.step(Campaign(hinted=False))
    before = wait(solo)
    request = next(m for m in solo.to(A) if isinstance(m, VoteRequest))
    yes = VoteReply(term=1, campaign_term=2, attempt=request.attempt, pre=True)
    solo.step(Received(A, yes))
    assert solo.core.status().term == 2
    solo.step(Received(B, yes))
    solo.step(Campaign(hinted=False))
    assert wait(solo) <= 2 * T_US and before <= 2 * T_US


def wait(solo: Solo) -> int:
    """How long the core waits from time 0 on, at which all of these tests stand."""
    deadline = solo.core.next_deadline()
    assert deadline is not None
    return deadline


def test_a_refusal_from_a_later_term_ends_the_campaign_and_takes_the_term() -> None:
    solo = Solo()
    solo.step(Campaign(hinted=False))
    reply = VoteReply(term=7, campaign_term=2, attempt=1, pre=True, refusal=VoteRefusal.STALE_TERM)
    solo.step(Received(A, reply))
    status = solo.core.status()
    assert (status.role, status.term) == (Role.FOLLOWER, 7)


def test_a_candidate_that_cannot_win_does_not_keep_others_from_trying() -> None:
    solo = Solo(log=log_of(1, 1))
    before = solo.core.next_deadline()
    solo.vote(A, 5, OpId(1, 1))
    assert solo.core.next_deadline() == before


def test_a_lone_voter_needs_nobody() -> None:
    solo = Solo(config=members(ME, op_id=LAST))
    solo.step(Campaign(hinted=False))
    assert solo.core.status().role is Role.LEADER
    assert solo.core.status().serving
    assert solo.core.next_deadline() is None


@pytest.mark.parametrize("config", [members(A, B, op_id=LAST), members(A, B, op_id=LAST, learners=[ME])])
def test_who_is_no_voter_never_campaigns_but_still_votes(config) -> None:
    solo = Solo(config=config)
    assert solo.core.next_deadline() is None
    solo.step(Campaign(hinted=False), Tick(10 * T_US), StepDown())
    assert not solo.readies
    assert solo.vote(A, 2, LAST).refusal is None


def test_a_candidate_asks_every_other_voter_and_no_learner() -> None:
    solo = Solo(config=members(ME, A, B, op_id=LAST, learners=[C]))
    solo.step(Campaign(hinted=False))
    assert [(o.to, type(o.message)) for o in solo.outbound()] == [(A, VoteRequest), (B, VoteRequest)]
