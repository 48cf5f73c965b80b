"""Nothing that a peer sends raises out of the core or breaks its invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import (
    BeatException,
    Campaign,
    Event,
    LeaderAlive,
    PeerAlive,
    PeerUnreachable,
    Received,
    Removed,
    StepDown,
    Tick,
)
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import encode_config
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term
from stelae_consensus_raft.messages import (
    NUMBER_MAX,
    AppendEntries,
    AppendRefusal,
    AppendReply,
    TimeoutNow,
    VoteRefusal,
    VoteReply,
    VoteRequest,
)
from tests.at_length import times
from tests.unit.consensus_raft.solo import ME, A, B, C, D, Solo, entries, entry, log_of, members

numbers = st.one_of(st.integers(0, 6), st.sampled_from([-1, 2**33, NUMBER_MAX, NUMBER_MAX + 1, 2**70]))
positions = st.builds(OpId, numbers, numbers)
STRANGER = NodeId("f" * 32)
FORMER = C
"""A member until the second entry of ``LOG``, and no longer."""
LOG = log_of(1, 1, 2, configs=[members(ME, A, B, FORMER, op_id=OpId(1, 1)), members(ME, A, B, op_id=OpId(1, 2))])
senders = st.sampled_from([ME, A, B, FORMER, D, STRANGER])
votes = st.builds(VoteRequest, term=numbers, last=positions, pre=st.booleans(), transfer=st.booleans())
vote_replies = st.builds(
    VoteReply,
    term=numbers,
    campaign_term=numbers,
    attempt=numbers,
    pre=st.booleans(),
    refusal=st.none() | st.sampled_from(VoteRefusal),
)
appends = st.builds(
    AppendEntries,
    term=numbers,
    prev=positions,
    commit=numbers,
    round=numbers,
    quiet=st.booleans(),
    all_replicated=numbers,
)
append_replies = st.builds(
    AppendReply,
    term=numbers,
    match=numbers,
    commit=numbers,
    round=numbers,
    refusal=st.none() | st.sampled_from(AppendRefusal),
    rejected=numbers,
    hint=positions,
)
bodies = st.sampled_from([b"", b"junk", encode_config(members(ME, A)), encode_config(members())])
carried = st.lists(st.builds(Entry, positions, st.sampled_from(EntryKind), st.integers(0, 9), bodies), max_size=3)
now = st.builds(TimeoutNow, term=numbers)
nonsense = st.builds(
    Received, senders, st.one_of(votes, vote_replies, appends, append_replies, now), carried.map(tuple)
)
reasons = st.sampled_from(["failed", "unknown", "term", "", "of no release"])
heartbeats = st.one_of(
    st.builds(PeerAlive, senders, numbers, numbers),
    st.builds(BeatException, senders, numbers, reasons),
    st.builds(LeaderAlive, senders, numbers, numbers),
    st.builds(PeerUnreachable, senders),
)
"""What the driver makes of heartbeats: ids and numbers in it are the peer's."""


@st.composite
def plausible(draw: st.DrawFn) -> Received:
    """Messages that fit the log in form, so that they get past the door."""
    sender = draw(st.sampled_from([A, B, FORMER, STRANGER]))
    prev = draw(st.sampled_from([OpId(0, 0), OpId(1, 1), OpId(1, 2), OpId(2, 3), OpId(3, 4)]))
    term = draw(st.integers(2, 5))
    if draw(st.booleans()):
        return Received(sender, VoteRequest(term=term + 1, last=prev, pre=draw(st.booleans())))
    terms = draw(st.lists(st.integers(max(prev.term, 1), 5), max_size=3).map(sorted))
    last_term = terms[-1] if terms else prev.term
    message = AppendEntries(term=max(term, last_term), prev=prev, commit=draw(st.integers(0, 5)))
    return Received(sender, message, entries(prev.index + 1, *terms))


@st.composite
def answers(draw: st.DrawFn) -> Received:
    """Answers to what this replica may have asked, from every sort of sender."""
    term, match = draw(st.integers(2, 4)), draw(st.integers(0, 5))
    if draw(st.booleans()):
        pre = draw(st.booleans())
        reply = VoteReply(term=term - pre, campaign_term=term, attempt=draw(st.integers(1, 3)), pre=pre)
        return Received(draw(senders), reply)
    refusal = draw(st.none() | st.sampled_from(AppendRefusal))
    hint = draw(st.sampled_from([OpId(0, 0), OpId(1, 1), OpId(2, 3), OpId(9, 9)]))
    reply = AppendReply(term=term, match=match, refusal=refusal, rejected=draw(st.integers(0, 5)), hint=hint)
    return Received(draw(senders), reply)


repeated = st.one_of(nonsense, plausible(), answers(), heartbeats).flatmap(lambda e: st.sampled_from([[e], [e, e]]))
received = nonsense | plausible() | answers() | heartbeats
own = st.sampled_from([Campaign(hinted=False), StepDown(), Tick(5_000_000), Tick(9_000_000)])


@settings(max_examples=times(600))
@given(
    st.sampled_from(["follower", "candidate", "leader"]),
    st.lists(repeated | own.map(lambda event: [event]), max_size=12).map(lambda lists: [e for es in lists for e in es]),
)
def test_no_sequence_of_messages_raises_or_breaks_an_invariant(role: str, events: list) -> None:
    """Senders are members, strangers, a former member and this replica itself; messages come twice.

    Only a member's message may be fatal: it shows that the tablet has two leaders in one term, for example."""
    solo = Solo(log=LOG, commit=2, config=members(ME, A, B, FORMER, op_id=OpId(1, 1)))
    if role == "candidate":
        solo.step(Campaign(hinted=False))
    elif role == "leader":
        solo.serve()
    term, commit, now_us = solo.core.status().term, solo.core.status().commit, 0
    for event in events:
        if isinstance(event, Tick):
            now_us = max(now_us, event.now_us)
            event = Tick(now_us)
        solo.core.can_wait(event)
        solo.step(event)
        if any(ready.fatal for ready in solo.readies):
            assert not isinstance(event, Received) or event.sender in (A, B), event
            return
        status = solo.core.status()
        assert NUMBER_MAX + 1 >= status.term >= term and status.commit >= commit
        term, commit = status.term, status.commit


def test_the_fuzzer_reaches_every_kind_of_outcome() -> None:
    """A fuzzer whose every message is refused at the door would prove nothing."""
    seen: Counter[str] = Counter()

    @settings(max_examples=400, database=None)
    @given(st.lists(received, max_size=12))
    def run(events: list) -> None:
        solo = Solo(log=LOG, commit=1)
        for event in events:
            solo.step(event)
        status = solo.core.status()
        seen["refused"] += sum(solo.core.refused.values())
        seen["term moved"] += status.term > 2
        seen["log grew"] += status.last.index > 3
        seen["log was replaced"] += any(r.append and r.append.replace_from for r in solo.readies)
        seen["vote given"] += status.voted_for is not None
        seen["fatal"] += any(r.fatal is not None for r in solo.readies)

    run()
    kinds = ("refused", "term moved", "log grew", "log was replaced", "vote given", "fatal")
    assert all(seen[kind] for kind in kinds), seen


FLAWS = {
    "gap": (AppendEntries(term=2, prev=OpId(1, 1), commit=0), (entry(2, 3),)),
    "terms go back": (AppendEntries(term=3, prev=OpId(1, 1), commit=0), entries(2, 3, 2)),
    "term of the future": (AppendEntries(term=2, prev=OpId(1, 1), commit=0), entries(2, 3)),
    "prev of the future": (AppendEntries(term=2, prev=OpId(3, 1), commit=0), ()),
    "negative index": (AppendEntries(term=2, prev=OpId(1, -1), commit=0), ()),
    "negative commit": (AppendEntries(term=2, prev=OpId(1, 1), commit=-1), ()),
    "index without term": (AppendEntries(term=2, prev=OpId(0, 1), commit=0), ()),
    "no term": (AppendEntries(term=0, prev=OpId(0, 0), commit=0), ()),
    "config of junk": (AppendEntries(term=2, prev=OpId(1, 1), commit=0), (entry(2, 2, b"junk", EntryKind.CONFIG),)),
    "config of text that is not UTF-8": (
        AppendEntries(term=2, prev=OpId(1, 1), commit=0),
        (entry(2, 2, b"\x91\x82\xa7node_id\xa1\xff\xa7address\xa1b", EntryKind.CONFIG),),
    ),
    "config nested too deeply": (
        AppendEntries(term=2, prev=OpId(1, 1), commit=0),
        (entry(2, 2, b"\x91\x81\xa1x" + b"\x91" * 100_000, EntryKind.CONFIG),),
    ),
    "config without voters": (
        AppendEntries(term=2, prev=OpId(1, 1), commit=0),
        (entry(2, 2, encode_config(members(learners=[A])), EntryKind.CONFIG),),
    ),
    "entries with a vote": (VoteRequest(term=2, last=OpId(1, 1)), entries(2, 2)),
    "last entry of the campaign's own term": (VoteRequest(term=2, last=OpId(2, 9)), ()),
    "absurd term": (VoteRequest(term=2**70, last=OpId(1, 1)), ()),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_an_impossible_message_is_refused_whole_and_counted(flaw: str) -> None:
    message, carried = FLAWS[flaw]
    solo = Solo()
    before = solo.core.status()
    assert solo.step(Received(A, message, carried)) == []
    assert solo.core.status() == before
    assert sum(solo.core.refused.values()) == 1


def test_our_own_message_coming_back_is_refused() -> None:
    solo = Solo()
    assert solo.step(Received(ME, VoteRequest(term=9, last=OpId(8, 9)))) == []
    assert solo.core.status().term == 1


def test_a_leader_refuses_an_append_of_its_own_term() -> None:
    solo = Solo().serve()
    solo.append(2, OpId(1, 1), *entries(2, 2))
    assert solo.core.status().role is Role.LEADER
    assert solo.core.refused == {"second leader in one term": 1}


ANSWERS = {
    "an append": AppendReply(term=2, match=4, commit=1),
    "a refused append": AppendReply(term=2, refusal=AppendRefusal.MISMATCH, rejected=1, hint=OpId(1, 1)),
    "a lost append": AppendReply(term=2, refusal=AppendRefusal.NOT_HOSTED),
    "an append of a later term": AppendReply(term=9, refusal=AppendRefusal.STALE_TERM),
    "a vote": VoteReply(term=2, campaign_term=3, attempt=1),
    "a vote of a later term": VoteReply(term=9, campaign_term=3, attempt=1),
}


@pytest.mark.parametrize("sender", [STRANGER, FORMER])
@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_of_no_member_changes_nothing_in_a_leader_and_is_counted(what: str, sender: NodeId) -> None:
    solo = Solo().serve()
    before = solo.core.status()
    assert solo.step(Received(sender, ANSWERS[what])) == []
    assert solo.core.status() == before
    assert solo.core.refused == {"answer of a node outside the config": 1}


def test_a_peer_that_refuses_a_heartbeat_in_a_term_out_of_range_deposes_nobody() -> None:
    """The term went into the metadata as it came. No peer took any message of it, and the one behind it has no
    encoding."""
    solo = Solo().serve()
    solo.step(BeatException(A, NUMBER_MAX + 1, "term"))
    assert solo.core.status().role is Role.LEADER
    assert sum(solo.core.refused.values()) == 1


LATER = first_term(EPOCHS_AHEAD_MAX, 0)
"""The first term of the last epoch that this replica may hear of."""
TOO_LATE = first_term(EPOCHS_AHEAD_MAX + 1, 0)
WITH_TERM: dict[str, Callable[[int], Event]] = {
    "an append": lambda term: Received(A, AppendEntries(term=term, prev=OpId(1, 2), commit=2)),
    "an append's answer": lambda term: Received(A, AppendReply(term=term, refusal=AppendRefusal.STALE_TERM)),
    "a candidate": lambda term: Received(A, VoteRequest(term=term, last=OpId(1, 3), transfer=True)),
    "a vote": lambda term: Received(A, VoteReply(term=term, campaign_term=2, attempt=1)),
    "a refused heartbeat": lambda term: BeatException(A, term, "term"),
    "a removal": lambda term: Removed(OpId(term, 9)),
}


@pytest.mark.parametrize("what", WITH_TERM)
def test_a_term_that_no_recovery_can_have_reached_is_not_entered(what: str) -> None:
    """The replica would stand down for a recovery that never was, and a real one would need a still later epoch."""
    solo = Solo().serve()
    before = solo.core.status()
    solo.step(WITH_TERM[what](TOO_LATE))
    assert solo.core.status() == before
    assert sum(solo.core.refused.values()) == 1
    solo.step(WITH_TERM[what](LATER))
    assert solo.core.status().term == LATER, "the refused message differs in nothing else"


def test_a_stranger_whose_heartbeat_names_the_term_is_not_taken_for_its_leader() -> None:
    """Whoever may connect could else keep a replica from following the leader that its members elected."""
    solo = Solo()
    solo.step(Tick(100))
    solo.step(LeaderAlive(STRANGER, 1, 90))
    assert solo.core.status().leader is None
    solo.append(1, OpId(1, 1), sender=A)
    assert solo.core.status().leader == A
