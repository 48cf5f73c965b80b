"""What a follower takes, refuses and acknowledges (behaviours C3, C6; durability 1)."""

from __future__ import annotations

import pytest

from stelae.spi.consensus import LogAppend, Role
from stelae.spi.consensus_events import Persisted, PersistFailed, Received, Tick
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import encode_config
from stelae_consensus_raft.messages import AppendEntries, AppendRefusal
from tests.unit.consensus_raft.solo import ME, THREE, A, B, C, Solo, entries, log_of, members


def test_new_entries_are_appended_and_acknowledged_once_durable() -> None:
    solo = Solo()
    reply = solo.append(1, OpId(1, 1), *entries(2, 1, 1), commit=1)
    assert reply is not None and (reply.match, reply.commit, reply.refusal) == (3, 1, None)
    (ready,) = solo.fresh
    assert ready.append == LogAppend(entries=entries(2, 1, 1))
    assert ready.after_persist and not ready.at_once
    assert ready.commit == 1


def all_replicated(solo: Solo, term: int, commit: int, index: int, prev: OpId = OpId(1, 4)) -> int:
    """What a follower knows to be durable on all members once a leader has said so."""
    solo.step(Received(A, AppendEntries(term=term, prev=prev, commit=commit, all_replicated=index)))
    return solo.core.status().all_replicated_index


def test_what_all_members_have_is_learned_from_any_leader_and_never_goes_back() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1))
    assert solo.core.status().all_replicated_index == 0, "nothing is known after a start"
    assert all_replicated(solo, 1, 4, 2) == 2
    assert all_replicated(solo, 2, 4, 0) == 2, "a new leader has not heard of all members yet"
    assert all_replicated(solo, 2, 4, 3) == 3


def test_only_what_is_committed_here_counts_as_durable_on_all_members() -> None:
    """An entry that is not committed may be replaced, and what replaces it is not durable on all members."""
    solo = Solo(log=log_of(1, 1, 1, 1))
    assert all_replicated(solo, 1, 4, 4, prev=OpId(1, 2)) == 2
    assert all_replicated(solo, 1, 4, 4) == 4


def test_a_leader_that_calls_uncommitted_entries_durable_on_all_members_is_refused() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1))
    assert all_replicated(solo, 1, 2, 3) == 0
    assert sum(solo.core.refused.values()) == 1


def test_a_repeated_append_changes_nothing_and_is_acknowledged_again() -> None:
    solo = Solo()
    solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    reply = solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    assert reply is not None and reply.match == 3
    assert solo.fresh[0].append is None
    assert solo.fresh[0].at_once, "durable already: the answer waits for nothing"


def test_an_append_that_overlaps_adds_only_what_is_missing() -> None:
    solo = Solo(log=log_of(1, 1, 1))
    reply = solo.append(1, OpId(1, 1), *entries(2, 1, 1, 1, 1))
    assert reply is not None and reply.match == 5
    assert solo.fresh[0].append == LogAppend(entries=entries(4, 1, 1))


def test_an_old_append_does_not_shorten_the_log() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1))
    reply = solo.append(1, OpId(1, 1), *entries(2, 1))
    assert reply is not None and reply.match == 2
    assert solo.core.status().last == OpId(1, 4)


def test_a_conflicting_suffix_is_replaced_in_one_ready() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1))
    reply = solo.append(2, OpId(1, 2), *entries(3, 2))
    assert reply is not None and reply.match == 3
    assert solo.fresh[0].append == LogAppend(entries=entries(3, 2), replace_from=3)
    assert solo.core.status().last == OpId(2, 3)


def test_two_replacements_in_one_turn_become_one() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1))
    first = AppendEntries(term=2, prev=OpId(1, 3), commit=0)
    second = AppendEntries(term=3, prev=OpId(1, 1), commit=0)
    (ready,) = solo.step(Received(A, first, entries(4, 2, 2)), Received(B, second, entries(2, 3)))
    assert ready.append == LogAppend(entries=entries(2, 3), replace_from=2)
    assert [outbound.to for outbound in ready.after_persist] == [B]


@pytest.mark.parametrize(
    ("prev", "hint"),
    [
        (OpId(1, 9), OpId(1, 2)),  # far ahead: the last entry of term 1 at best
        (OpId(4, 9), OpId(3, 4)),  # far ahead, later term: our end
        (OpId(2, 3), OpId(1, 2)),  # we have term 3 there
        (OpId(4, 4), OpId(3, 4)),  # we have term 3 there, which the leader may have earlier
    ],
)
def test_a_mismatch_answer_says_where_agreement_is_possible(prev: OpId, hint: OpId) -> None:
    solo = Solo(log=log_of(1, 1, 3, 3))
    reply = solo.append(5, prev, *entries(prev.index + 1, 5))
    assert reply is not None
    assert (reply.refusal, reply.rejected, reply.hint) == (AppendRefusal.MISMATCH, prev.index, hint)
    assert solo.core.status().last == OpId(3, 4), "refused whole"
    assert solo.core.status().leader == A


def test_a_leader_of_an_old_term_is_told_the_new_one() -> None:
    reply = Solo(term=5).append(4, OpId(1, 1))
    assert reply is not None and (reply.refusal, reply.term) == (AppendRefusal.STALE_TERM, 5)


def test_the_commit_index_never_runs_ahead_of_what_was_verified() -> None:
    solo = Solo(log=log_of(1, 1, 1, 1))
    solo.append(2, OpId(1, 2), commit=4)
    assert solo.core.status().commit == 2


def test_the_commit_index_never_goes_back() -> None:
    solo = Solo(log=log_of(1, 1, 1), commit=3)
    solo.append(1, OpId(1, 3), commit=1)
    assert solo.core.status().commit == 3


def test_replacing_a_committed_entry_is_fatal_and_tells_the_history() -> None:
    solo = Solo(log=log_of(1, 1, 1), commit=2)
    solo.append(1, OpId(1, 3))
    solo.append(2, OpId(1, 1), *entries(2, 2))
    fatal = solo.readies[-1].fatal
    assert fatal is not None and "truncated at 2" in fatal.reason and "commit index is 2" in fatal.reason
    assert fatal.history
    assert solo.step(Tick(10**9)) == []
    assert solo.core.next_deadline() is None


def test_entries_at_or_below_the_base_are_taken_as_agreed() -> None:
    solo = Solo(log=log_of(2, base=OpId(2, 5)), commit=5)
    reply = solo.append(2, OpId(1, 3), *entries(4, 2, 2, 2, 2))
    assert reply is not None and reply.match == 7
    assert solo.fresh[0].append == LogAppend(entries=entries(7, 2))


def test_a_log_that_can_only_agree_below_its_base_says_so_with_its_base() -> None:
    solo = Solo(log=log_of(5, base=OpId(4, 5)), commit=5)
    reply = solo.append(6, OpId(3, 6))
    assert reply is not None and reply.hint == OpId(4, 5)


def test_appends_of_one_turn_get_one_acknowledgement() -> None:
    solo = Solo()
    first = AppendEntries(term=1, prev=OpId(1, 1), commit=0)
    second = AppendEntries(term=1, prev=OpId(1, 2), commit=2)
    (ready,) = solo.step(Received(A, first, entries(2, 1)), Received(A, second, entries(3, 1)))
    assert len(ready.after_persist) == 1
    assert ready.append == LogAppend(entries=entries(2, 1, 1))


def test_a_notice_of_the_commit_index_needs_no_answer_unless_refused() -> None:
    solo = Solo(log=log_of(1, 1))
    quiet = AppendEntries(term=1, prev=OpId(1, 2), commit=2, quiet=True)
    assert solo.hear(A, quiet) == []
    assert solo.core.status().commit == 2
    (refused,) = solo.hear(A, AppendEntries(term=1, prev=OpId(1, 7), commit=2, quiet=True))
    assert refused.refusal is AppendRefusal.MISMATCH


def test_a_second_leader_in_one_term_is_refused_and_counted() -> None:
    solo = Solo()
    solo.append(1, OpId(1, 1))
    assert solo.append(1, OpId(1, 1), *entries(2, 1), sender=B) is None
    assert solo.core.status().last == OpId(1, 1)
    assert solo.core.refused == {"second leader in one term": 1}


def test_completions_below_the_floor_say_nothing_about_entries() -> None:
    solo = Solo()
    solo.holds = True
    solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    solo.append(2, OpId(1, 1), *entries(2, 2), sender=B)
    first, second = solo.readies
    solo.step(Persisted(first.id))
    assert solo.core.status().durable_index == 1
    solo.step(Persisted(second.id))
    assert solo.core.status().durable_index == 2


def test_a_failed_append_cuts_the_log_and_nothing_of_it_is_acknowledged() -> None:
    solo = Solo()
    solo.holds = True
    solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    failed = solo.readies[-1].id
    later = AppendEntries(term=1, prev=OpId(1, 3), commit=3)
    (ready,) = solo.step(Received(A, later, entries(4, 1)), PersistFailed(failed, 2))
    assert solo.core.status().last == OpId(1, 2)
    assert solo.core.status().durable_index == 2
    assert ready.append is None and ready.after_persist == ()
    assert ready.hard_state is not None, "term and vote are written again before anything else"


def test_a_failed_append_behind_which_a_suffix_was_replaced_still_removes_that_suffix() -> None:
    """The driver's log still had it, so the driver applied the removed entries and put later ones behind them."""
    solo = Solo()
    solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    solo.holds = True
    solo.append(1, OpId(1, 3), *entries(4, 1))
    failed = solo.readies[-1].id
    later = AppendEntries(term=2, prev=OpId(1, 1), commit=2)
    (ready,) = solo.step(Received(B, later, entries(2, 2, 2)), PersistFailed(failed, 3))
    assert solo.core.status().last == OpId(1, 1)
    assert ready.append == LogAppend(entries=(), replace_from=2) and ready.after_persist == ()
    assert solo.step(Received(B, later, entries(2, 2)))[-1].append == LogAppend(entries=entries(2, 2))


def test_a_failed_append_takes_with_it_a_replacement_of_what_it_has_lost() -> None:
    solo = Solo()
    solo.holds = True
    solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    failed = solo.readies[-1].id
    later = AppendEntries(term=2, prev=OpId(1, 2), commit=0)
    (ready,) = solo.step(Received(B, later, entries(3, 2)), PersistFailed(failed, 1))
    assert solo.core.status().last == OpId(1, 1) and ready.append is None


def test_what_was_lost_below_the_commit_index_comes_again_from_the_leader() -> None:
    solo = Solo()
    solo.holds = True
    solo.append(1, OpId(1, 1), *entries(2, 1, 1), commit=3)
    solo.step(PersistFailed(solo.readies[-1].id, 1))
    status = solo.core.status()
    assert (status.commit, status.last, status.serving) == (3, OpId(1, 1), False)
    solo.holds = False
    refused = solo.append(1, OpId(1, 3), commit=3)
    assert refused is not None and refused.hint == OpId(1, 1)
    reply = solo.append(1, OpId(1, 1), *entries(2, 1, 1), commit=3)
    assert reply is not None and reply.match == 3
    assert solo.core.status().durable_index == 3


def config_entry(index: int, term: int, *voters: str) -> Entry:
    config = members(*voters)
    return Entry(OpId(term, index), EntryKind.CONFIG, index, encode_config(config))


def test_a_config_is_in_force_from_append_and_durable_in_metadata_at_commit() -> None:
    solo = Solo(commit=1)
    solo.append(1, OpId(1, 1), config_entry(2, 1, ME, A, B, C))
    status = solo.core.status()
    assert status.config.op_id == OpId(1, 2) and len(status.config.members) == 4
    assert status.committed_config == THREE
    solo.append(1, OpId(1, 2), commit=2)
    assert solo.fresh[0].committed_config == solo.core.status().config


def test_a_replaced_config_is_rolled_back_and_with_it_the_role() -> None:
    learner = members(A, B, C, op_id=OpId(1, 2), learners=[ME])
    solo = Solo(config=members(A, B, op_id=OpId(1, 1)), commit=1)
    solo.append(1, OpId(1, 1), Entry(OpId(1, 2), EntryKind.CONFIG, 2, encode_config(learner)))
    assert solo.core.status().role is Role.LEARNER
    solo.append(2, OpId(1, 1), *entries(2, 2), sender=B)
    assert solo.core.status().config.members == members(A, B).members
    assert solo.core.status().role is Role.NON_PARTICIPANT


def test_a_voter_may_campaign_until_its_removal_is_committed() -> None:
    solo = Solo(commit=1)
    solo.append(1, OpId(1, 1), config_entry(2, 1, A, B, C))
    assert solo.core.status().role is Role.FOLLOWER
    assert solo.core.next_deadline() is not None
    solo.append(1, OpId(1, 2), commit=2)
    assert solo.core.status().role is Role.NON_PARTICIPANT
    assert solo.core.next_deadline() is None


def test_a_config_lost_with_a_failed_append_is_rolled_back() -> None:
    solo = Solo(commit=1)
    solo.holds = True
    solo.append(1, OpId(1, 1), config_entry(2, 1, A, B, C))
    solo.step(PersistFailed(solo.readies[-1].id, 1))
    assert solo.core.status().config == THREE


def test_a_committed_config_ahead_of_a_log_that_lost_its_tail_stays_in_force() -> None:
    ahead = members(ME, A, B, C, op_id=OpId(1, 9))
    solo = Solo(log=log_of(1, 1, configs=[THREE]), config=ahead)
    assert solo.core.status().config == ahead


def test_a_config_that_metadata_does_not_know_yet_is_reported_after_restart() -> None:
    newer = members(ME, A, B, C, op_id=OpId(1, 2))
    solo = Solo(log=log_of(1, 1, configs=[THREE, newer]), commit=2)
    (ready,) = solo.step()
    assert ready.committed_config == newer


def test_an_empty_replica_joins_by_what_its_leader_sends() -> None:
    solo = Solo(log=log_of(), term=0, config=members())
    assert solo.core.status().role is Role.NON_PARTICIPANT
    solo.append(1, ZERO, config_entry(1, 1, ME, A, B), commit=1)
    assert solo.core.status().role is Role.FOLLOWER
    assert solo.core.status().committed_config.op_id == OpId(1, 1)
