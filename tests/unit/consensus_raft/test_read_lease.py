"""The read lease: how long it is, what it counts from, and what ends it (durability rule 13)."""

from __future__ import annotations

import pytest

from stelae.spi.consensus import HardState, Role
from stelae.spi.consensus_events import (
    AbortChange,
    Campaign,
    ChangeMembers,
    PeerAlive,
    Persisted,
    ReadRequest,
    Received,
    Tick,
    Transfer,
)
from stelae.spi.ids import OpId
from stelae.spi.members import AddServer
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendEntries, AppendReply, TimeoutNow, VoteRefusal, VoteReply, VoteRequest
from stelae_consensus_raft.read_lease import ReadLease, lease_length_us
from tests.unit.consensus_raft.solo import ME, T_US, A, B, D, Solo, log_of

DRIFT_PPM = 100_000
LENGTH_US = T_US * 9 // 11
HALF_US = LENGTH_US - LENGTH_US // 2
LEASES = RaftConfig(clock_drift_ppm_max=DRIFT_PPM)


def test_two_clocks_may_drift_apart_by_twice_the_bound() -> None:
    """The leader's clock loses a tenth of true time, and a voter's gains a tenth: T of it passes in T / 1.1."""
    assert lease_length_us(T_US, DRIFT_PPM) == LENGTH_US
    assert LENGTH_US / 0.9 <= T_US / 1.1
    assert lease_length_us(T_US, 0) == 0, "without a bound there is no lease"


def test_a_lease_counts_from_the_first_time_that_its_round_was_sent() -> None:
    lease = ReadLease(100)
    lease.round_begins(1, 1000)
    lease.round_begins(2, 1050)
    assert not lease.is_valid(1060)
    lease.promised(1)
    assert lease.is_valid(1099) and not lease.is_valid(1100)
    lease.promised(2)
    assert lease.is_valid(1149) and not lease.is_valid(1150)


def test_a_lease_is_renewed_in_its_second_half() -> None:
    lease = ReadLease(100)
    lease.round_begins(1, 1000)
    lease.promised(1)
    assert not lease.ends_soon(1049) and lease.ends_soon(1050)


def test_rounds_that_no_majority_promises_are_forgotten_once_they_could_give_no_lease() -> None:
    """Voters whose leases are off never promise. A leader must not keep a note of each of its rounds for ever."""
    lease = ReadLease(100)
    for number in range(1, 1001):
        lease.round_begins(number, 10 * number)
    assert len(lease._begun) <= 10


def test_promises_of_before_a_change_of_members_do_not_count() -> None:
    lease = ReadLease(100)
    lease.round_begins(1, 1000)
    lease.promised(1)
    lease.round_begins(2, 1010)
    lease.config_changed(2)
    assert not lease.is_valid(1011)
    lease.promised(2)
    assert not lease.is_valid(1011)
    lease.round_begins(3, 1020)
    lease.promised(3)
    assert lease.is_valid(1021)


def test_after_a_successor_was_asked_there_is_no_lease_any_more() -> None:
    lease = ReadLease(100)
    lease.round_begins(1, 1000)
    lease.promised(1)
    lease.give_up()
    lease.round_begins(2, 1010)
    lease.promised(2)
    assert not lease.is_valid(1011) and not lease.ends_soon(1011)


# -- the leader ----------------------------------------------------------------------------------


def leader(settings: RaftConfig = LEASES) -> Solo:
    return Solo(settings=settings).serve()


def read(solo: Solo, token: int, now_us: int) -> bool:
    """Whether a read is answered at once."""
    solo.step(Tick(now_us), ReadRequest(token))
    return [ready.token for r in solo.fresh for ready in r.reads_ready] == [token]


def answer(solo: Solo, *, withholds_us: int = T_US) -> None:
    """Let peer A answer the newest round."""
    (last,) = [m for m in solo.to(A) if isinstance(m, AppendEntries)][-1:]
    status = solo.core.status()
    match, commit = last.prev.index, status.commit
    reply = AppendReply(term=status.term, match=match, commit=commit, round=last.round, withholds_us=withholds_us)
    solo.step(Received(A, reply))


def confirmed(solo: Solo, now_us: int, *, withholds_us: int = T_US) -> None:
    """A read that a majority confirms, at ``now_us``."""
    assert not read(solo, 1, now_us)
    answer(solo, withholds_us=withholds_us)
    assert [ready.token for r in solo.fresh for ready in r.reads_ready] == [1]


def test_reads_are_answered_at_once_until_the_lease_ends() -> None:
    solo = leader()
    confirmed(solo, 1000)
    assert read(solo, 2, 1000 + HALF_US - 1) and solo.to(A) == [], "a read costs no message"
    assert read(solo, 3, 1000 + HALF_US) and solo.to(A), "one in the second half renews the lease"
    assert read(solo, 4, 1000 + LENGTH_US - 1)
    assert not read(solo, 5, 1000 + LENGTH_US)


def test_a_renewed_lease_goes_on() -> None:
    solo = leader()
    confirmed(solo, 1000)
    assert read(solo, 2, 700_000)
    answer(solo)
    assert read(solo, 3, 700_000 + LENGTH_US - 1) and not read(solo, 4, 700_000 + LENGTH_US)


@pytest.mark.parametrize("settings", [RaftConfig(), LEASES])
def test_without_a_bound_on_drift_or_a_promise_every_read_is_confirmed(settings: RaftConfig) -> None:
    solo = leader(settings)
    confirmed(solo, 1000, withholds_us=T_US if settings is not LEASES else T_US - 1)
    assert not read(solo, 2, 1001)


def test_a_read_that_needs_the_messages_is_not_answered_by_the_lease() -> None:
    """A snapshot above the applied time: a majority must see this leader's clock before it is served (rule 14)."""
    solo = leader()
    confirmed(solo, 1000)
    solo.step(Tick(1001), ReadRequest(2, by_lease=False))
    assert [ready.token for r in solo.fresh for ready in r.reads_ready] == [] and solo.to(A)
    answer(solo)
    assert [ready.token for r in solo.fresh for ready in r.reads_ready] == [2]


def test_while_the_time_is_held_back_the_lease_does_not_count() -> None:
    """A full disk: the leader's clock shows an earlier time than it is."""
    solo = leader()
    confirmed(solo, 1000)
    solo.step(Tick(1001, held_back=True), ReadRequest(2))
    assert [ready.token for r in solo.fresh for ready in r.reads_ready] == []


def test_the_lease_is_given_up_before_the_successor_is_asked() -> None:
    solo = leader()
    confirmed(solo, 1000)
    solo.step(Tick(1001), Transfer(9, A))
    assert not read(solo, 2, 1002)
    solo.step(PeerAlive(A, 2, 1000 + T_US), PeerAlive(B, 2, 1000 + T_US), Tick(1001 + T_US))
    assert solo.core.status().role is Role.LEADER, "the successor has not won"
    confirmed_again = read(solo, 3, 1002 + T_US)
    answer(solo)
    assert not confirmed_again and not read(solo, 4, 1003 + T_US), "the request may still arrive"


def test_the_lease_is_given_up_with_the_config() -> None:
    solo = leader()
    confirmed(solo, 1000)
    solo.step(Tick(1001), ChangeMembers(9, AddServer(node_id=D, address="d:1")))
    assert not read(solo, 2, 1002)
    solo.step(AbortChange(10))


# -- the voter -----------------------------------------------------------------------------------


def withheld(solo: Solo, term: int = 5) -> bool:
    (reply,) = solo.hear(B, VoteRequest(term=term, last=OpId(term - 1, 99), pre=True))
    assert isinstance(reply, VoteReply)
    return reply.refusal is VoteRefusal.LEADER_ALIVE


def test_a_voter_that_may_have_promised_withholds_its_vote_for_one_timeout_after_its_start() -> None:
    solo = Solo(settings=LEASES, promised_us=T_US, now_us=500)
    assert withheld(solo)
    solo.step(Tick(500 + T_US - 1))
    assert withheld(solo)
    solo.step(Tick(500 + T_US))
    assert not withheld(solo)
    assert not withheld(Solo(settings=LEASES)), "one that promised nothing votes at once"


def test_leases_that_were_switched_off_still_bind_the_voter_at_its_start() -> None:
    solo = Solo(promised_us=T_US)
    assert withheld(solo)
    solo.step(Tick(T_US))
    solo.hear(B, VoteRequest(term=5, last=OpId(4, 99)))
    assert solo.readies[-1].hard_state == HardState(5, B)


def test_a_promise_binds_a_voter_that_starts_with_a_shorter_timeout_for_as_long_as_it_was_given() -> None:
    """The leader counts on the timeout of before: its lease may be almost that long."""
    solo = Solo(settings=LEASES, promised_us=10 * T_US)
    solo.step(Tick(10 * T_US - 1))
    assert withheld(solo) and solo.core.status().role is Role.FOLLOWER
    due = solo.core.next_deadline()
    assert due is not None and 10 * T_US <= due < 11 * T_US, "and it does not campaign itself"
    solo.step(Tick(10 * T_US))
    assert not withheld(solo)


def test_a_successor_that_was_refused_waits_for_the_end_of_its_own_promise_without_a_busy_loop() -> None:
    solo = Solo(settings=LEASES, log=log_of(1))
    solo.append(1, OpId(1, 1))
    solo.hear(A, TimeoutNow(term=1))
    for voter in (A, B):
        solo.step(Received(voter, VoteReply(term=2, campaign_term=2, attempt=1, refusal=VoteRefusal.LOG_BEHIND)))
    ticks = 0
    while solo.core.status().term == 2 and not any(isinstance(m, VoteRequest) for m in solo.to(A)):
        due = solo.core.next_deadline()
        assert due is not None and ticks < 20, "each tick moves the deadline on"
        solo.step(Tick(due))
        ticks += 1
    assert due >= T_US, "it campaigns when the old leader relies on its promise no more"


def test_a_longer_timeout_is_durable_before_it_is_promised() -> None:
    solo = Solo(settings=LEASES, promised_us=T_US // 2)
    (saved,) = [ready for ready in [*solo.readies, *solo.step()] if ready.hard_state is not None]
    assert saved.hard_state == HardState(1, None, promised_us=T_US)
    reply = solo.append(1, OpId(1, 1))
    assert reply is not None and reply.withholds_us == T_US


@pytest.mark.parametrize("settings", [RaftConfig(), LEASES])
def test_a_vote_that_is_saved_meanwhile_does_not_shorten_a_promise_of_before_the_start(settings: RaftConfig) -> None:
    solo = Solo(settings=settings, promised_us=10 * T_US)
    solo.append(2, OpId(1, 1))
    assert solo.readies[-1].hard_state == HardState(2, None, promised_us=10 * T_US)


def test_a_promise_is_durable_before_it_is_given() -> None:
    solo = Solo(settings=LEASES)
    solo.holds = True
    reply = solo.append(1, OpId(1, 1))
    assert reply is not None and reply.withholds_us == 0
    (saved,) = [ready for ready in solo.readies if ready.hard_state is not None]
    assert saved.hard_state == HardState(1, None, promised_us=T_US), "it is saved at the start"
    solo.step(Persisted(saved.id))
    reply = solo.append(1, OpId(1, 1))
    assert reply is not None and reply.withholds_us == T_US


def test_a_voter_whose_time_is_held_back_promises_nothing() -> None:
    solo = Solo(settings=LEASES, promised_us=T_US)
    solo.step(Tick(10, held_back=True))
    reply = solo.append(1, OpId(1, 1))
    assert reply is not None and reply.withholds_us == 0


def test_a_tombstone_keeps_a_promise_that_it_made_as_a_replica() -> None:
    core = RaftEngine.restore_voter(
        node_id=ME, hard_state=HardState(3, None, promised_us=3 * T_US), last=OpId(3, 9), config=LEASES, now_us=100
    )
    for now_us, refusal in ((100 + 3 * T_US - 1, VoteRefusal.LEADER_ALIVE), (100 + 3 * T_US, None)):
        core.step([Tick(now_us), Received(B, VoteRequest(term=4, last=OpId(3, 9)))])
        ready = core.take_ready()
        assert ready is not None
        (sent,) = ready.after_persist or ready.at_once
        assert isinstance(sent.message, VoteReply) and sent.message.refusal is refusal


def test_a_campaign_that_is_asked_for_does_not_break_a_promise() -> None:
    solo = Solo(settings=LEASES, promised_us=T_US)
    solo.append(1, OpId(1, 1))
    solo.step(Tick(1, held_back=True), Campaign(hinted=False))
    assert solo.to(A) == [] and solo.core.status().role is Role.FOLLOWER


def test_a_campaign_that_is_asked_for_does_not_break_a_promise_of_before_the_start() -> None:
    solo = Solo(promised_us=T_US)
    solo.step(Campaign(hinted=False))
    assert solo.core.status().role is Role.FOLLOWER
