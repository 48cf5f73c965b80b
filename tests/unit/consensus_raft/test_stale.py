"""A message of an older term changes nothing in a core, whatever its role: not even what no status shows."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Campaign, Event, LeaderAlive, PeerAlive, Received, Tick
from stelae.spi.ids import OpId
from stelae_consensus_raft.follower import Follower
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.messages import AppendEntries, AppendReply, TimeoutNow, VoteReply, VoteRequest
from tests.unit.consensus_raft.solo import T_US, A, B, Solo, entries, log_of

NOT_STATE = {"ready", "refused", "transitions", "history", "backoff_factor", "_late_attempts_from", "settings"}
"""Effects, counters and history; and backoff, which late answers to a campaign raise on purpose."""

NOW_US = 300_000


def follower() -> Solo:
    solo = Solo(log=log_of(1, 5), term=5)
    solo.append(5, OpId(5, 2), commit=2)
    return solo


def follower_without_leader() -> Solo:
    return Solo(log=log_of(1, 5), term=5)


def pre_candidate() -> Solo:
    solo = Solo(log=log_of(1, 5), term=5)
    solo.step(Campaign(hinted=False))
    return solo


def candidate() -> Solo:
    solo = pre_candidate()
    solo.grant(A)
    assert solo.core.status().term == 6
    return solo


def leader() -> Solo:
    return Solo(log=log_of(1, 5), term=5).lead()


def serving_leader() -> Solo:
    return Solo(log=log_of(1, 5), term=5).serve()


REPLICAS = (follower, follower_without_leader, pre_candidate, candidate, leader, serving_leader)

STALE: tuple[Event, ...] = (
    Received(A, AppendEntries(term=4, prev=OpId(1, 1), commit=1)),
    Received(B, AppendEntries(term=4, prev=OpId(1, 1), commit=2, quiet=True)),
    Received(A, AppendEntries(term=4, prev=OpId(1, 1), commit=2), entries(2, 4, 4)),
    Received(A, AppendReply(term=4, match=2, commit=2)),
    Received(B, AppendReply(term=3, match=2, commit=2, round=0)),
    Received(A, VoteRequest(term=4, last=OpId(9, 9))),
    Received(B, VoteRequest(term=5, last=OpId(9, 9), pre=True)),
    Received(B, VoteRequest(term=4, last=OpId(9, 9), transfer=True)),
    Received(A, VoteReply(term=4, campaign_term=4, attempt=1)),
    Received(B, VoteReply(term=3, campaign_term=4, attempt=1, pre=True)),
    Received(A, TimeoutNow(term=4)),
    LeaderAlive(A, 4, NOW_US),
    PeerAlive(A, 4, NOW_US),
)


def state_of(value: Any) -> Any:
    """Everything that a value holds, as plain values that can be compared."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Mapping):
        return {str(key): state_of(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [state_of(one) for one in value]
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names += [*getattr(value, "__dict__", ()), *getattr(value, "__struct_fields__", ())]
    if not names or isinstance(value, str | int | msgspec.Struct):
        return repr(value)
    return {name: state_of(getattr(value, name)) for name in names if name not in NOT_STATE and hasattr(value, name)}


def core_state(solo: Solo) -> Any:
    core: Any = solo.core
    parts = (core._leader, core._elections, core._follower)
    own = [{n: state_of(getattr(p, n)) for n in p.__slots__ if n not in {*NOT_STATE, *SHARED}} for p in parts]
    return state_of(core._state), own


SHARED = {"_state", "_commit_rule", "_leader", "_replicator"}


def check_unmoved(make: Callable[[], Solo], event: Event) -> None:
    solo = make()
    solo.step(Tick(NOW_US))
    before, deadline = core_state(solo), solo.core.next_deadline()
    term = solo.core.status().term
    solo.step(event)
    assert core_state(solo) == before
    assert solo.core.next_deadline() == deadline
    for ready in solo.fresh:
        assert ready.append is None and ready.hard_state is None and ready.commit is None
        assert all(sent.term == term for sent in (*ready.at_once, *ready.after_persist))


@pytest.mark.parametrize("event", STALE, ids=repr)
@pytest.mark.parametrize("make", REPLICAS, ids=lambda make: make.__name__)
def test_a_message_of_an_older_term_changes_nothing(make: Callable[[], Solo], event: Event) -> None:
    check_unmoved(make, event)


def test_the_state_that_is_compared_holds_what_matters() -> None:
    solo = follower()
    before = core_state(solo)
    solo.step(Tick(T_US // 2))
    solo.append(5, OpId(5, 2), commit=2)
    assert core_state(solo) != before
    assert "leader_heard_at_us" in str(before) and "voted_for" in str(before)
    assert "heard_at_us" in str(core_state(leader())) and "granted" in str(core_state(candidate()))


# -- planted bugs that no status and no deadline shows -------------------------------------------------


def heard_of_its_leader(original: Any) -> Any:
    def on_append(self: Any, sender: Any, message: Any, carried: Any) -> None:
        self._state.leader_heard_at_us = self._state.now_us
        original(self, sender, message, carried)

    return on_append


def heard_of_its_peer(original: Any) -> Any:
    def on_reply(self: Any, sender: Any, reply: Any) -> None:
        lead = self._state.leadership
        if lead is not None and sender in lead.peers:
            lead.peers[sender].heard_at_us = self._state.now_us
        original(self, sender, reply)

    return on_reply


@pytest.mark.parametrize(
    ("owner", "name", "plant", "make", "event"),
    [
        (Follower, "on_append", heard_of_its_leader, follower, STALE[0]),
        (Leader, "on_reply", heard_of_its_peer, serving_leader, STALE[3]),
    ],
)
def test_a_sign_of_life_from_an_older_term_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, plant: Any, make: Callable[[], Solo], event: Event
) -> None:
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    with pytest.raises(AssertionError):
        check_unmoved(make, event)


def test_every_role_is_met() -> None:
    assert {make().core.status().role for make in REPLICAS} >= {Role.FOLLOWER, Role.CANDIDATE, Role.LEADER}
