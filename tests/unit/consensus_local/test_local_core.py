"""What the local core does where the conformance suite does not look: bounds, broken invariants, torn writes."""

from __future__ import annotations

import dataclasses
import random

import pytest

import stelae_consensus_local
from stelae.spi.consensus import ConsensusCore, HardState, LogView, Ready, Role
from stelae.spi.consensus_events import (
    Applied,
    Event,
    Persisted,
    PersistFailed,
    Proposal,
    Propose,
    ReadRequest,
    StepDown,
    Tick,
    Transfer,
)
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import EntryKind
from stelae.spi.members import Member, TabletConfig
from stelae.spi.rejections import RejectReason
from stelae.spi.settings import limits_of
from stelae_consensus_local import LocalEngine
from stelae_consensus_local.config import LocalConfig
from stelae_consensus_local.core import LEAD_AGAIN_AFTER_US

ME = NodeId("a" * 32)
ALONE = TabletConfig(op_id=ZERO, members=(Member(node_id=ME, address="me:1"),))
EMPTY = LogView(base=ZERO, last=ZERO)


def restored(
    hard_state: HardState = HardState(),
    log: LogView = EMPTY,
    commit: int = 0,
    applied: int = 0,
    settings: LocalConfig | None = None,
) -> ConsensusCore:
    return LocalEngine.restore(
        node_id=ME,
        hard_state=hard_state,
        log=log,
        commit=commit,
        applied=applied,
        committed_config=ALONE,
        config=settings or LocalConfig(),
        rng=random.Random(1),
        now_us=0,
    )


def stepped(core: ConsensusCore, *events: Event) -> Ready:
    """Step a core, and return its next Ready, which must exist."""
    core.step(events)
    ready = core.take_ready()
    assert ready is not None
    if ready.fatal is None:
        core.validate_state()
    return ready


def serving(settings: LocalConfig | None = None) -> ConsensusCore:
    """A core that leads and serves; its last Ready is the third."""
    core = restored(settings=settings)
    assert stepped(core, Tick(0)).hard_state == HardState(1, ME)
    assert stepped(core, Persisted(1)).append is not None
    assert stepped(core, Persisted(2)).commit == 1
    return core


def proposed(first: int, *bodies: bytes) -> Propose:
    return Propose(tuple(Proposal(token, EntryKind.WRITE, body) for token, body in enumerate(bodies, start=first)))


def test_the_plugin_registers_the_engine_by_its_name() -> None:
    assert stelae_consensus_local.stelae_consensus_engines() == [LocalEngine]
    assert LocalEngine.name == "local" and not LocalEngine.message_types and not LocalEngine.capabilities


def test_every_setting_has_bounds_unit_and_reason() -> None:
    for field in dataclasses.fields(LocalConfig):
        limits = limits_of(field)
        assert limits.reason and limits.unit
        assert limits.low is not None and limits.high is not None and limits.low <= field.default <= limits.high


@pytest.mark.parametrize(
    ("hard_state", "last", "commit", "applied", "fact"),
    [
        (HardState(1), OpId(2, 2), 0, 0, "the log ends at 2.2, but the durable term is 1"),
        (HardState(2), OpId(2, 2), 3, 0, "the commit index is 3, but the log ends at 2.2"),
        (HardState(2), OpId(2, 2), 1, 2, "applied index 2 is above the commit index 1"),
    ],
)
def test_contradicting_metadata_is_refused_with_the_fact(
    hard_state: HardState, last: OpId, commit: int, applied: int, fact: str
) -> None:
    with pytest.raises(Corrupt, match=fact):
        restored(hard_state, LogView(base=ZERO, last=last), commit, applied)


def test_proposals_above_the_bound_are_refused_until_earlier_ones_are_durable() -> None:
    core = serving(LocalConfig(proposals_pending_bytes_max=200))
    ready = stepped(core, proposed(1, b"x" * 300, b"y"))
    assert [a.token for a in ready.accepted] == [1], "an entry above the bound is accepted if nothing is pending"
    assert [(r.token, r.reason) for r in ready.rejections] == [(2, RejectReason.OVERLOADED)]
    core.step([Persisted(ready.id)])
    assert [a.token for a in stepped(core, proposed(3, b"z")).accepted] == [3]


def test_no_proposal_overtakes_one_that_found_no_room() -> None:
    core = serving(LocalConfig(proposals_pending_bytes_max=1000))
    ready = stepped(core, proposed(1, b"x" * 500, b"y" * 600, b"z"))
    assert [a.token for a in ready.accepted] == [1]
    assert [(r.token, r.reason) for r in ready.rejections] == [(2, "OVERLOADED"), (3, "OVERLOADED")]
    core.step([Persisted(ready.id)])
    assert [a.token for a in stepped(core, proposed(3, b"z")).accepted] == [3]


def test_a_failed_write_whose_first_entries_are_durable_keeps_those() -> None:
    core = serving()
    first = stepped(core, proposed(1, b"a", b"b", b"c"))
    stepped(core, proposed(4, b"d"))
    core.step([PersistFailed(first.id, 3)])
    status = core.status()
    assert (status.last, status.durable_index, status.commit) == (OpId(1, 3), 3, 1)
    core.step([Tick(LEAD_AGAIN_AFTER_US)])
    vote = core.take_ready()
    assert vote is not None and vote.hard_state == HardState(2, ME)
    noop = stepped(core, Persisted(vote.id))
    assert noop.append is not None and noop.append.entries[0].op_id == OpId(2, 4)
    assert stepped(core, Persisted(noop.id)).commit == 4, "the entries that are durable are committed"


def test_proposals_in_the_turn_of_a_failed_write_are_rejected_and_not_handed_out() -> None:
    core = serving()
    ready = stepped(core, proposed(1, b"a"))
    after = stepped(core, proposed(2, b"b"), PersistFailed(ready.id, 1))
    assert after.append is None and not after.accepted
    assert [(r.token, r.reason) for r in after.rejections] == [(2, RejectReason.NOT_LEADER)]


def test_the_writes_of_a_leader_that_stepped_down_commit_in_the_next_term() -> None:
    core = serving()
    ready = stepped(core, proposed(1, b"a"))
    core.step([StepDown(), Persisted(ready.id)])
    assert core.take_ready() is None and core.status().commit == 1
    vote = stepped(core, Tick(LEAD_AGAIN_AFTER_US))
    noop = stepped(core, Persisted(vote.id))
    assert stepped(core, Persisted(noop.id)).commit == 3


def test_a_failed_write_during_a_start_does_not_make_it_lead_by_an_old_vote() -> None:
    core = serving()
    write = stepped(core, proposed(1, b"a"))
    core.step([StepDown()])
    vote = stepped(core, Tick(LEAD_AGAIN_AFTER_US))
    core.step([PersistFailed(write.id, 1), Persisted(vote.id)])
    assert core.status().role is Role.FOLLOWER
    assert stepped(core, Tick(2 * LEAD_AGAIN_AFTER_US)).hard_state == HardState(3, ME)


BROKEN: list[tuple[Event, str]] = [
    (Tick(-1), "time went back from 0 to -1"),
    (Persisted(99), "Ready 99 is durable but was never handed out"),
    (Applied(9), "applied 9, only 1 committed"),
    (PersistFailed(3, 0), "the log ends at 0 after a failed write; it was durable up to 1"),
    (PersistFailed(3, 7), "the log ends at 7 after a failed write"),
]


@pytest.mark.parametrize(("event", "fact"), BROKEN)
def test_a_broken_invariant_is_fatal_with_the_history_and_nothing_follows(event: Event, fact: str) -> None:
    core = serving()
    core.step([event, ReadRequest(1)])
    ready = core.take_ready()
    assert ready is not None and ready.fatal is not None
    assert fact in ready.fatal.reason and any("CANDIDATE -> LEADER" in line for line in ready.fatal.history)
    core.step([ReadRequest(2)])
    assert core.take_ready() is None and core.next_deadline() is None


def test_a_tombstone_rejects_every_request_and_never_acts() -> None:
    core = LocalEngine.restore_voter(
        node_id=ME, hard_state=HardState(4, ME), last=OpId(4, 9), config=LocalConfig(), now_us=0
    )
    ready = stepped(core, Tick(1), proposed(1, b"a"), ReadRequest(2), Transfer(3, None))
    assert [(r.token, r.reason) for r in ready.rejections] == [(n, RejectReason.NOT_LEADER) for n in (1, 2, 3)]
    status = core.status()
    assert (status.role, status.term, status.last) == (Role.NON_PARTICIPANT, 4, OpId(4, 9))
    assert core.next_deadline() is None and core.take_ready() is None
