"""What a leader proposes, sends, commits and repeats (behaviours C2, C6, C7, C15)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stelae.spi.consensus import CopyRequest, Role
from stelae.spi.consensus_events import (
    DAMAGED,
    UNKNOWN,
    BeatException,
    Campaign,
    PeerAlive,
    PeerUnreachable,
    Persisted,
    PersistFailed,
    Proposal,
    Propose,
    RangeCompacted,
    RangeSent,
    Received,
    StepDown,
    Tick,
)
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import EntryKind
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendEntries, AppendRefusal, AppendReply
from tests.unit.consensus_raft.solo import ME, T_US, A, B, Solo, entries, log_of, members

RETRY_US = 250_000


def propose(solo: Solo, count: int = 1, size: int = 1) -> None:
    proposals = tuple(Proposal(token, EntryKind.WRITE, bytes(size)) for token in range(count))
    solo.step(Propose(proposals))


def refused(solo: Solo, peer: NodeId, rejected: int, hint: OpId, term: int = 2) -> None:
    reply = AppendReply(term=term, refusal=AppendRefusal.MISMATCH, rejected=rejected, hint=hint)
    solo.step(Received(peer, reply))


def peer_of(solo: Solo, node: NodeId):
    return next(peer for peer in solo.core.status().peers if peer.node_id == node)


def test_the_first_message_of_a_term_carries_its_first_entry_to_everyone() -> None:
    solo = Solo().lead()
    assert solo.ranges(A) == solo.ranges(B) == [(OpId(1, 1), OpId(2, 2))]
    assert [r.beats.peers for r in solo.readies if r.beats is not None] == [(A, B)]


def test_proposals_of_one_step_travel_in_one_message_per_peer() -> None:
    solo = Solo().serve()
    propose(solo, 64)
    assert solo.ranges(A) == [(OpId(2, 2), OpId(2, 66))]
    assert solo.ranges(B) == [], "B has not answered its probe yet"


def test_a_peer_in_doubt_gets_one_message_until_it_answers() -> None:
    solo = Solo().lead()
    assert peer_of(solo, A).state == "PROBE"
    solo.ack(A)
    assert peer_of(solo, A).state == "REPLICATE"
    for _ in range(3):
        propose(solo)
    assert peer_of(solo, A).in_flight == 3
    assert peer_of(solo, B).in_flight == 1


def test_the_window_in_messages_holds_and_an_answer_opens_it() -> None:
    solo = Solo(settings=RaftConfig(in_flight_messages_max=2)).serve()
    for _ in range(4):
        propose(solo)
    assert peer_of(solo, A).in_flight == 2
    solo.ack(A, match=4)
    assert solo.ranges(A) == [(OpId(2, 4), OpId(2, 6))]


def test_the_window_in_bytes_holds_and_an_answer_opens_it() -> None:
    solo = Solo(settings=RaftConfig(in_flight_bytes_max=1000)).serve()
    for _ in range(4):
        propose(solo, size=600)
    assert peer_of(solo, A).in_flight == 2
    solo.ack(A, match=3)
    assert solo.ranges(A) == [(OpId(2, 4), OpId(2, 6))]


def test_a_message_is_bounded_in_bytes_and_in_entries() -> None:
    by_bytes = Solo(settings=RaftConfig(append_bytes_max=2 * 164)).serve()
    propose(by_bytes, 5, size=100)
    assert [last.index for _, last in by_bytes.ranges(A)] == [4, 6, 7]
    by_count = Solo(settings=RaftConfig(append_entries_max=2)).serve()
    propose(by_count, 5)
    assert [last.index for _, last in by_count.ranges(A)] == [4, 6, 7]


def test_an_entry_above_the_message_limit_still_travels_alone() -> None:
    solo = Solo(settings=RaftConfig(append_bytes_max=10)).serve()
    propose(solo, 2, size=100)
    assert [last.index for _, last in solo.ranges(A)] == [3, 4]


def test_too_many_pending_bytes_push_back_but_one_entry_always_passes() -> None:
    solo = Solo(settings=RaftConfig(proposals_pending_bytes_max=500)).serve()
    propose(solo, 1, size=1000)
    assert [a.token for a in solo.fresh[0].accepted] == [0]
    propose(solo, 1, size=1)
    assert [r.reason for r in solo.fresh[0].rejections] == ["OVERLOADED"]
    solo.ack(A)
    propose(solo, 1, size=1)
    assert solo.fresh[0].accepted


def test_no_proposal_overtakes_one_that_found_no_room() -> None:
    """A client whose first operation was refused sent it again, behind its second one, which had been accepted."""
    solo = Solo(settings=RaftConfig(proposals_pending_bytes_max=1000)).serve()
    propose(solo, 1, size=500)
    large, small = (Proposal(token, EntryKind.WRITE, bytes(size)) for token, size in ((7, 600), (8, 1)))
    solo.step(Propose((large, small)))
    assert [(r.token, r.reason) for r in solo.fresh[0].rejections] == [(7, "OVERLOADED"), (8, "OVERLOADED")]
    solo.step(Propose((small,)))
    assert [a.token for a in solo.fresh[0].accepted] == [8]


@pytest.mark.parametrize("kind", [EntryKind.NOOP, EntryKind.CONFIG])
def test_entries_that_belong_to_the_core_cannot_be_proposed(kind: EntryKind) -> None:
    solo = Solo().serve()
    solo.step(Propose((Proposal(7, kind, b""),)))
    assert [(r.token, r.reason) for r in solo.fresh[0].rejections] == [(7, "UNSUPPORTED")]


def test_a_mismatch_jumps_to_the_place_of_agreement_in_one_step() -> None:
    """Figure 7 of the Raft paper: the leader of term 8 meets followers (a) to (f)."""
    leader_log = log_of(1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    cases = {
        "a": ((1, 1, 1, 4, 4, 5, 5, 6, 6), 10),
        "b": ((1, 1, 1, 4), 5),
        "c": ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6), None),
        "d": ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7), None),
        "e": ((1, 1, 1, 4, 4, 4, 4), 6),
        "f": ((1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3), 4),
    }
    for name, (terms, first_sent) in cases.items():
        leader = Solo(log=leader_log, term=7).lead()
        follower = Solo(log=log_of(*terms), term=7)
        probe = leader.to(A)[-1]
        assert isinstance(probe, AppendEntries)
        first = follower.hear(A, probe, entries(11, 8))
        assert isinstance(first[0], AppendReply)
        leader.step(Received(A, first[0]))
        if first_sent is None:
            assert first[0].refusal is None, name
        else:
            ((prev, _),) = leader.ranges(A)
            assert prev.index + 1 == first_sent, f"{name}: first message after the refusal"
            log = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 8)
            sent = entries(first_sent, *log[first_sent - 1 :])
            follower.hear(A, leader.to(A)[-1], sent)
        assert follower.core.status().last == OpId(8, 11), name


def test_refusals_that_are_late_change_nothing() -> None:
    solo = Solo().serve()
    propose(solo)
    before = peer_of(solo, A)
    refused(solo, A, rejected=2, hint=OpId(1, 1))
    refused(solo, A, rejected=99, hint=OpId(1, 1))
    assert peer_of(solo, A) == before
    refused(solo, B, rejected=0, hint=ZERO)
    assert peer_of(solo, B).next_index == 2


def test_a_refusal_that_a_later_acknowledgement_overtook_asks_for_no_copy() -> None:
    """Regression story: a follower refused an append that arrived before its predecessor, then acknowledged more. The
    refusal came last, spoke of an index that the leader had collected since, and the leader asked for a copy."""
    solo = Solo(log=log_of(2, base=OpId(2, 5)), commit=5).lead()
    solo.ack(A, match=7)
    propose(solo, 3)
    refused(solo, A, rejected=8, hint=OpId(1, 3), term=3)
    assert [r for ready in solo.readies for r in ready.copy_requests] == []
    assert (peer_of(solo, A).state, peer_of(solo, A).next_index) == ("PROBE", 8)


def test_a_hint_that_is_no_help_still_makes_progress() -> None:
    solo = Solo(log=log_of(1, 1, 1)).lead()
    refused(solo, A, rejected=3, hint=OpId(1, 3))
    assert peer_of(solo, A).next_index == 3


def test_a_peer_that_needs_collected_entries_is_asked_to_copy_once() -> None:
    solo = Solo(log=log_of(2, base=OpId(2, 5)), commit=5).lead()
    for _ in range(2):
        refused(solo, A, rejected=6, hint=OpId(1, 3), term=3)
    requests = [r for ready in solo.readies for r in ready.copy_requests]
    assert [(r.peer, r.first_index) for r in requests] == [(A, 4)]
    assert peer_of(solo, A).state == "COPY"
    solo.ack(A, match=6)
    assert peer_of(solo, A).state == "REPLICATE" and solo.ranges(A) == [(OpId(2, 6), OpId(3, 7))]


def test_an_answer_that_was_lost_is_asked_for_again_at_doubling_intervals() -> None:
    solo = Solo().lead()
    sent_at = []
    for _ in range(6):
        deadline = solo.core.next_deadline()
        assert deadline is not None
        solo.step(PeerAlive(A, 2, deadline), PeerAlive(B, 2, deadline), Tick(deadline))
        if solo.ranges(A):
            sent_at.append(deadline)
    gaps = [b - a for a, b in pairwise(sent_at)]
    assert sent_at[0] == RETRY_US
    assert gaps[:3] == [2 * RETRY_US, 4 * RETRY_US, 8 * RETRY_US]
    assert set(gaps[3:]) <= {8 * RETRY_US}


def test_what_was_in_flight_is_sent_again_from_the_last_answer() -> None:
    solo = Solo().serve()
    propose(solo)
    propose(solo)
    solo.step(Tick(RETRY_US))
    assert solo.ranges(A) == [(OpId(2, 2), OpId(2, 4))]
    assert peer_of(solo, A).state == "PROBE"


def test_a_lost_word_of_the_commit_index_is_repeated_and_then_confirmed() -> None:
    solo = Solo().serve()
    solo.step(Received(B, AppendReply(term=2, match=2)))
    told = [m for m in solo.to(B) if isinstance(m, AppendEntries)]
    assert [m.quiet for m in told] == [True]
    solo.step(PeerAlive(A, 2, RETRY_US), Tick(RETRY_US))
    (asked,) = solo.to(B)
    assert isinstance(asked, AppendEntries)
    assert (asked.quiet, asked.commit) == (False, 2)
    solo.ack(B)
    solo.step(Tick(RETRY_US * 3))
    assert solo.to(B) == []


def test_an_unreachable_peer_is_probed_again_after_a_while() -> None:
    solo = Solo().serve()
    propose(solo)
    solo.step(PeerUnreachable(A))
    assert peer_of(solo, A).state == "PROBE"
    assert solo.ranges(A) == []
    solo.step(Tick(RETRY_US))
    assert solo.ranges(A) == [(OpId(2, 2), OpId(2, 3))]


def test_a_lost_probe_of_a_peer_that_lacks_nothing_is_repeated_once_the_peer_is_heard() -> None:
    solo = Solo().serve()
    for peer in (A, B):
        solo.ack(peer)
    solo.step(PeerUnreachable(A))
    solo.step(Tick(RETRY_US * 4))
    assert solo.to(A) == [], "a dead peer is not asked about an idle tablet again and again"
    solo.step(PeerAlive(A, 2, RETRY_US - 1))
    assert solo.to(A) == [], "the probe may still be answered"
    solo.step(PeerAlive(A, 2, RETRY_US))
    (asked,) = solo.to(A)
    assert isinstance(asked, AppendEntries)
    assert (asked.prev, asked.commit, asked.quiet) == (OpId(2, 2), 2, False)
    solo.ack(A)
    assert peer_of(solo, A).state == "REPLICATE"


def test_a_range_that_was_shortened_is_continued_from_where_it_ended() -> None:
    solo = Solo().serve()
    propose(solo, 8)
    solo.step(RangeSent(A, OpId(2, 10), OpId(2, 5)))
    assert solo.ranges(A) == [(OpId(2, 5), OpId(2, 10))]


def test_a_range_that_was_not_sent_is_not_repeated_at_once() -> None:
    solo = Solo().serve()
    propose(solo)
    solo.step(RangeSent(A, OpId(2, 3), None))
    assert solo.ranges(A) == []
    solo.step(Tick(RETRY_US))
    assert solo.ranges(A) == [(OpId(2, 2), OpId(2, 3))]


def test_collected_entries_put_every_peer_that_lacks_them_into_copy() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1, 1, 1), commit=6).lead()
    for peer, last_index in ((A, 2), (B, 4)):
        refused(solo, peer, rejected=6, hint=OpId(1, last_index))
    solo.step(RangeCompacted(A, OpId(2, 7), OpId(1, 5)))
    requests = [(r.peer, r.first_index) for ready in solo.readies for r in ready.copy_requests]
    assert requests == [(A, 3)] and peer_of(solo, A).state == "COPY"
    solo.step(Tick(RETRY_US))
    requests = [(r.peer, r.first_index) for ready in solo.readies for r in ready.copy_requests]
    assert requests == [(A, 3), (B, 5)], "no range is asked for: the core knows the base by now"
    assert solo.ranges(B) == []


def test_a_late_word_that_entries_were_collected_does_not_stop_a_peer_that_has_them() -> None:
    solo = Solo().serve()
    propose(solo, 8)
    solo.ack(A)
    before = peer_of(solo, A)
    assert before.match_index == 10
    solo.step(RangeCompacted(A, OpId(2, 5), OpId(2, 4)))
    assert peer_of(solo, A) == before


def test_a_base_that_the_log_does_not_hold_breaks_an_invariant() -> None:
    solo = Solo().serve()
    (ready,) = solo.step(RangeCompacted(A, OpId(2, 2), OpId(1, 2)))
    assert ready.fatal is not None and "which is not in it; it ends at" in ready.fatal.reason


def test_a_beat_exception_makes_the_leader_send_a_real_append() -> None:
    solo = Solo().serve()
    solo.step(BeatException(A, 1, "term"))
    assert solo.to(A)
    solo.step(BeatException(A, 1, "term"))
    assert solo.to(A) == [], "one is under way"


def test_a_peer_that_does_not_host_the_tablet_is_sent_no_entries_and_a_replica_is_requested_until_it_has_one() -> None:
    solo = Solo().serve()
    propose(solo, 3)

    def requests() -> list[CopyRequest]:
        return [request for ready in solo.readies for request in ready.copy_requests]

    solo.step(BeatException(B, 0, UNKNOWN))
    assert requests() == [CopyRequest(B, 1, hosted=False)] and peer_of(solo, B).state == "COPY"
    assert solo.to(B) == []
    solo.step(BeatException(B, 0, UNKNOWN))
    assert len(requests()) == 1, "not with every heartbeat"
    for times, now_us in ((2, RETRY_US), (3, 3 * RETRY_US)):
        solo.step(PeerAlive(A, 2, now_us), Tick(now_us - 1), BeatException(B, 0, UNKNOWN))
        assert len(requests()) == times - 1, "not before the pause has passed, which grows"
        solo.step(Tick(now_us), BeatException(B, 0, UNKNOWN))
        assert len(requests()) == times, "the message may have been lost"
    solo.step(BeatException(B, 0, "term"))
    (probe,) = solo.to(B)
    assert probe.prev == ZERO, "it has a replica now, and is asked what is in its log"
    solo.ack(B, 0)
    assert peer_of(solo, B).state == "REPLICATE" and solo.readies[-1].ranges[0].prev == ZERO


def test_a_peer_that_has_got_its_new_replica_is_probed_and_not_copied_while_the_log_has_every_entry() -> None:
    """A late refusal counts as a sign that it was reachable, so it was taken for one that needs collected entries."""
    solo = Solo().serve()
    solo.step(BeatException(B, 0, UNKNOWN))
    asked = [request for ready in solo.readies for request in ready.copy_requests]
    refused(solo, B, 1, ZERO)
    solo.step(PeerAlive(B, 2, RETRY_US), Tick(RETRY_US), PeerAlive(B, 2, RETRY_US))
    assert [request for ready in solo.readies for request in ready.copy_requests] == asked
    assert solo.to(B)[-1].prev == ZERO, "it is probed"
    solo.ack(B, 0)
    assert peer_of(solo, B).state == "REPLICATE"


def test_a_peer_with_a_damaged_replica_is_copied_whatever_its_log_has_and_replication_goes_on_afterwards() -> None:
    solo = Solo().serve()
    propose(solo, 3)
    solo.ack(B)
    match = peer_of(solo, B).match_index
    solo.step(BeatException(B, 2, "failed"))
    assert peer_of(solo, B).state == "PROBE", "its log cannot be trusted, so nothing replaces it in its place"
    solo.step(BeatException(B, 2, DAMAGED))
    solo.step(BeatException(B, 2, DAMAGED))
    requests = [request for ready in solo.readies for request in ready.copy_requests]
    assert requests == [CopyRequest(B, match + 1, damaged=True)] and peer_of(solo, B).state == "COPY"
    solo.step(PeerAlive(B, 2, RETRY_US), Tick(RETRY_US))
    solo.ack(B)
    assert peer_of(solo, B).state == "REPLICATE"


def test_a_leader_without_other_voters_finds_out_by_heartbeats_that_a_learner_has_its_copy() -> None:
    """It had no deadline, and heartbeats are delivered before deadlines: it never fed and promoted the learner."""
    config = members(ME, op_id=OpId(1, 1), learners=[A])
    solo = Solo(config=config, log=log_of(1, 1, base=OpId(1, 4), configs=[config]), commit=4)
    solo.step(Campaign(hinted=False))
    solo.step(BeatException(A, 0, UNKNOWN))
    assert peer_of(solo, A).state == "COPY"
    deadline = solo.core.next_deadline()
    assert deadline is not None
    solo.step(Tick(deadline))
    assert solo.to(A) == [], "a learner that is not heard gets nothing"
    deadline = solo.core.next_deadline()
    assert deadline is not None
    solo.step(PeerAlive(A, 2, deadline), Tick(deadline))
    assert len(solo.to(A)) == 1
    solo.ack(A, 7)
    assert peer_of(solo, A).state == "REPLICATE"


def test_a_leader_without_other_voters_looks_for_heartbeats_once_in_one_and_a_half_timeouts() -> None:
    config = members(ME, op_id=OpId(1, 1), learners=[A])
    solo = Solo(config=config, log=log_of(1, 1, base=OpId(1, 4), configs=[config]), commit=4)
    solo.step(Campaign(hinted=False))
    solo.step(BeatException(A, 0, UNKNOWN))
    deadlines = []
    for _ in range(4):
        deadline = solo.core.next_deadline()
        assert deadline is not None
        deadlines.append(deadline)
        solo.step(Tick(deadline))
    assert [b - a for a, b in pairwise(deadlines)] == [T_US * 3 // 2] * 3
    alone = Solo(config=members(ME, op_id=OpId(1, 1)), log=log_of(1), commit=1)
    alone.step(Campaign(hinted=False))
    assert alone.core.next_deadline() is None, "without learners there is nothing to look for"


def test_a_beat_exception_of_a_later_term_ends_the_leadership() -> None:
    solo = Solo().serve()
    solo.step(BeatException(A, 9, "term"))
    status = solo.core.status()
    assert (status.role, status.term) == (Role.FOLLOWER, 9)


def test_a_leader_steps_down_without_a_majority_for_one_and_a_half_timeouts() -> None:
    solo = Solo().serve()
    solo.step(PeerAlive(A, 2, T_US), Tick(T_US))
    solo.step(Tick(T_US * 5 // 2 - 1))
    assert solo.core.status().role is Role.LEADER
    solo.step(Tick(T_US * 5 // 2))
    assert solo.core.status().role is Role.FOLLOWER
    assert solo.readies[-1].beats is not None and solo.readies[-1].beats.peers == ()


def test_heartbeats_of_another_term_or_of_strangers_do_not_keep_a_leader_in_office() -> None:
    solo = Solo().serve()
    solo.step(PeerAlive(A, 1, 3 * T_US), PeerAlive(NodeId("f" * 32), 2, 3 * T_US), Tick(3 * T_US))
    assert solo.core.status().role is Role.FOLLOWER


def test_a_paused_leader_gives_up_before_it_does_anything_else() -> None:
    solo = Solo().serve()
    solo.step(Tick(10 * T_US), Propose((Proposal(1, EntryKind.WRITE, b"x"),)))
    assert [r.reason for r in solo.fresh[-1].rejections] == ["NOT_LEADER"]


def test_a_leader_whose_log_fails_sends_nothing_that_depended_on_it() -> None:
    solo = Solo().serve()
    solo.holds = True
    propose(solo)
    failed = solo.readies[-1].id
    solo.step(PersistFailed(failed, 2))
    status = solo.core.status()
    assert (status.role, status.last) == (Role.FOLLOWER, OpId(2, 2))
    solo.step(Persisted(failed))
    assert solo.core.status().durable_index == 2


def test_stepping_down_is_ignored_by_who_does_not_lead() -> None:
    solo = Solo()
    assert solo.step(StepDown()) == []


@pytest.mark.parametrize("match", [3, 2**40])
def test_an_acknowledgement_of_what_was_never_sent_is_refused(match: int) -> None:
    solo = Solo().serve()
    solo.ack(A, match=match)
    assert solo.core.status().commit == 2
    assert solo.core.refused == {"answer to a message that was never sent": 1}


def test_an_answer_from_an_older_term_or_a_stranger_counts_for_nothing() -> None:
    solo = Solo().lead()
    solo.step(Received(A, AppendReply(term=1, match=2)))
    solo.step(Received(NodeId("f" * 32), AppendReply(term=2, match=2)))
    solo.step(Received(NodeId("f" * 32), AppendReply(term=9)))
    assert solo.core.status().commit == 0
    assert solo.core.status().term == 2


def test_the_first_entry_ever_is_the_initial_config() -> None:
    solo = Solo(log=log_of(), term=0, config=members(ME, A, B)).lead()
    appended = [e for r in solo.readies if r.append for e in r.append.entries]
    assert [entry.kind for entry in appended] == [EntryKind.CONFIG]
    assert solo.core.status().config.op_id == OpId(1, 1)
