"""Reads by read index: linearizable, and without a log write (behaviour C14)."""

from __future__ import annotations

from stelae.spi.consensus import ReadReady
from stelae.spi.consensus_events import Proposal, Propose, ReadRequest, Received, StepDown, Tick
from stelae.spi.ids import OpId
from stelae.spi.log import EntryKind
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendEntries, AppendReply
from tests.unit.consensus_raft.solo import ME, A, B, Solo, members


def ready_reads(solo: Solo) -> list[ReadReady]:
    return [read for ready in solo.fresh for read in ready.reads_ready]


def test_reads_of_one_turn_share_one_round_without_a_log_write() -> None:
    solo = Solo().serve()
    solo.step(ReadRequest(1), ReadRequest(2))
    assert all(ready.append is None for ready in solo.fresh)
    (asked,) = solo.to(A)
    assert isinstance(asked, AppendEntries) and asked.round == 1
    solo.ack(A, round_number=1)
    assert ready_reads(solo) == [ReadReady(1, 2), ReadReady(2, 2)]


def test_an_answer_to_an_earlier_round_does_not_confirm_a_later_read() -> None:
    solo = Solo().serve()
    solo.step(ReadRequest(1))
    solo.step(ReadRequest(2))
    solo.ack(A, round_number=1)
    assert ready_reads(solo) == [ReadReady(1, 2)]
    solo.ack(B, match=0, round_number=1)
    assert ready_reads(solo) == []
    solo.ack(B, match=0, round_number=2)
    assert ready_reads(solo) == [ReadReady(2, 2)]


def test_the_read_index_is_the_commit_index_at_the_time_of_asking() -> None:
    solo = Solo().serve()
    solo.step(ReadRequest(1), Propose((Proposal(5, EntryKind.WRITE, b"x"),)))
    solo.ack(A, round_number=1)
    assert ready_reads(solo) == [ReadReady(1, 2)]
    assert solo.core.status().commit == 3


def test_a_round_that_was_never_started_confirms_nothing() -> None:
    solo = Solo().serve()
    solo.step(ReadRequest(1))
    solo.ack(A, round_number=7)
    assert ready_reads(solo) == []
    assert solo.core.refused == {"answer to a message that was never sent": 1}


def test_an_unanswered_round_is_asked_again() -> None:
    solo = Solo().serve()
    solo.ack(B)
    solo.ack(A)
    solo.step(ReadRequest(1))
    solo.step(Tick(250_000))
    assert [type(m) for m in solo.to(A)] == [AppendEntries]
    solo.step(Received(A, AppendReply(term=2, match=2, commit=2, round=1)))
    assert ready_reads(solo) == [ReadReady(1, 2)]


def test_reads_that_wait_are_refused_when_leadership_is_lost() -> None:
    solo = Solo().serve()
    solo.step(ReadRequest(1), ReadRequest(2))
    solo.step(StepDown())
    rejections = [(r.token, r.reason) for r in solo.fresh[0].rejections]
    assert rejections == [(1, "LEADERSHIP_LOST"), (2, "LEADERSHIP_LOST")]


def test_waiting_reads_are_bounded() -> None:
    solo = Solo(settings=RaftConfig(reads_pending_max=1)).serve()
    solo.step(ReadRequest(1), ReadRequest(2))
    assert [(r.token, r.reason) for r in solo.fresh[0].rejections] == [(2, "OVERLOADED")]


def test_a_lone_voter_confirms_itself() -> None:
    solo = Solo(config=members(ME, op_id=OpId(1, 1)))
    solo.lead_alone()
    solo.step(ReadRequest(1))
    assert ready_reads(solo) == [ReadReady(1, 2)]


def test_learners_do_not_confirm() -> None:
    solo = Solo(config=members(ME, A, op_id=OpId(1, 1), learners=[B])).serve()
    solo.step(ReadRequest(1))
    solo.ack(B, round_number=1)
    assert ready_reads(solo) == []
    solo.ack(A, round_number=1)
    assert ready_reads(solo) == [ReadReady(1, 2)]


def test_a_peer_that_was_away_is_probed_though_reads_are_confirmed_all_the_time() -> None:
    """Masters confirm a read five times a second. Each round counted as something sent, so that the probe of a peer
    that had come back was never due: its catalog stayed as old as it was."""
    solo = Solo().serve()
    probed = []
    for number in range(1, 21):
        solo.step(Tick(number * 200_000), ReadRequest(number))
        probed += solo.ranges(B)
        solo.ack(A, round_number=number)
        solo.ack(B, match=0, round_number=number)
    assert probed and set(probed) == {(OpId(1, 1), OpId(2, 2))}
