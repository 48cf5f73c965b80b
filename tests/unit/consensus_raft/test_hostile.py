"""Nothing that a peer sends raises out of the core or breaks its invariants."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.spi.consensus import Campaign, Received, Role, StepDown, Tick, encode_config
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae_consensus_raft.messages import (
    NUMBER_MAX,
    AppendEntries,
    AppendRefusal,
    AppendReply,
    VoteRefusal,
    VoteReply,
    VoteRequest,
)
from tests.unit.consensus_raft.solo import ME, A, B, C, Solo, entries, entry, log_of, members

numbers = st.one_of(st.integers(0, 6), st.sampled_from([-1, 2**33, NUMBER_MAX, NUMBER_MAX + 1, 2**70]))
positions = st.builds(OpId, numbers, numbers)
senders = st.sampled_from([ME, A, B, C, NodeId("f" * 32)])
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
nonsense = st.builds(Received, senders, st.one_of(votes, vote_replies, appends, append_replies), carried.map(tuple))


@st.composite
def plausible(draw: st.DrawFn) -> Received:
    """Messages that fit the log in form, so that they get past the door."""
    sender = draw(st.sampled_from([A, B]))
    prev = draw(st.sampled_from([OpId(0, 0), OpId(1, 1), OpId(1, 2), OpId(2, 3), OpId(3, 4)]))
    term = draw(st.integers(2, 5))
    if draw(st.booleans()):
        return Received(sender, VoteRequest(term=term + 1, last=prev, pre=draw(st.booleans())))
    terms = draw(st.lists(st.integers(max(prev.term, 1), 5), max_size=3).map(sorted))
    last_term = terms[-1] if terms else prev.term
    message = AppendEntries(term=max(term, last_term), prev=prev, commit=draw(st.integers(0, 5)))
    return Received(sender, message, entries(prev.index + 1, *terms))


received = nonsense | plausible()
own = st.sampled_from([Campaign(hinted=False), StepDown(), Tick(5_000_000), Tick(9_000_000)])


@settings(max_examples=600)
@given(st.sampled_from(["follower", "candidate", "leader"]), st.lists(received | own, max_size=12))
def test_no_sequence_of_messages_raises_or_breaks_an_invariant(role: str, events: list) -> None:
    solo = Solo(log=log_of(1, 1, 2), commit=1)
    if role == "candidate":
        solo.step(Campaign(hinted=False))
    elif role == "leader":
        solo.serve()
    term, commit, now_us = solo.core.status().term, solo.core.status().commit, 0
    for event in events:
        if isinstance(event, Tick):
            now_us = max(now_us, event.now_us)
            event = Tick(now_us)
        solo.step(event)
        if any(ready.fatal for ready in solo.readies):
            return
        status = solo.core.status()
        assert status.term >= term and status.commit >= commit
        term, commit = status.term, status.commit


def test_the_fuzzer_reaches_every_kind_of_outcome() -> None:
    """A fuzzer whose every message is refused at the door would prove nothing."""
    seen: Counter[str] = Counter()

    @settings(max_examples=400, database=None)
    @given(st.lists(received, max_size=12))
    def run(events: list) -> None:
        solo = Solo(log=log_of(1, 1, 2), commit=1)
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
