"""The suite bites: bugs against the driver's side of the consensus contract, each beside the check that catches it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import msgspec
import pytest

from stelae.spi.consensus import Accepted, ConsensusCore, ConsensusEngine, HardState, Ready, Role
from stelae.spi.consensus_events import LeaderAlive, RangeSent, ReadRequest, StepDown
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.log import Entry
from stelae.spi.members import decode_config
from stelae.testing.conformance.consensus import ConsensusConformance, ConsensusHarness
from stelae_consensus_local import LocalEngine
from stelae_consensus_local import engine as local_engine
from stelae_consensus_local.core import LocalCore
from stelae_consensus_local.local_log import LocalLog
from stelae_consensus_local.no_replica import NoReplicaCore
from stelae_consensus_raft import RaftEngine, message_checks, voter_core
from stelae_consensus_raft import engine as raft_engine
from stelae_consensus_raft.client_requests import ClientRequests
from stelae_consensus_raft.core import RaftCore
from stelae_consensus_raft.follower import Follower
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.read_lease import ReadLease
from stelae_consensus_raft.voter_core import VoterCore

DRIFT_PPM = 1_000


def _harness(engine: type[ConsensusEngine], **settings: Any) -> ConsensusHarness:
    return ConsensusHarness(engine, engine.Config(**settings), election_timeout_us=1_000_000)


def _check(name: str) -> Callable[..., None]:
    method = min((m for m in dir(ConsensusConformance) if m.startswith(f"test_{name}")), key=len)
    found: Callable[..., None] = getattr(ConsensusConformance(), method)
    return found


# -- bugs in the parts of an engine ----------------------------------------------------------------------


def _does_nothing(self: Any, *args: Any, **named: Any) -> None:
    return None


def _takes_a_part_for_the_whole(self: Leader, event: RangeSent) -> None:
    peer = self._peer(event.peer)
    assert peer is not None
    peer.match = event.asked.index


def _counts_all_peers(self: RaftState, leadership: LeaderState) -> set[NodeId]:
    return {self.node_id, *leadership.peers}


def _gives_up_what_others_have(self: RaftState, durable_index: int) -> None:
    LOG_FAILED(self, durable_index)
    self.commit = min(self.commit, durable_index)


def _follows_every_heartbeat(self: Follower, event: LeaderAlive) -> None:
    ON_ALIVE(self, LeaderAlive(event.leader, self._state.term, event.heard_at_us))


def _never_ends(self: ReadLease, now_us: int) -> bool:
    return self._until_us > 0


def _answers_every_read_by_its_lease(self: ClientRequests, leadership: Any, event: ReadRequest) -> None:
    QUEUE_OR_ANSWER(self, leadership, ReadRequest(event.token))


def _trusts_its_lease_while_its_time_is_held_back(self: ClientRequests, leadership: Any, event: ReadRequest) -> None:
    self._state.time_held_back = False
    QUEUE_OR_ANSWER(self, leadership, event)


def _looks_at_a_clock(self: Any) -> Ready | None:
    monotonic()
    taken: Ready | None = TAKE_READY[type(self)](self)
    return taken


def _steps_down_from_any_role(self: LocalCore, _event: StepDown) -> None:
    self._change_role(Role.FOLLOWER, "was asked to step down")


def _waits_for_each_ready(self: LocalLog, ready_id: int) -> None:
    if self._pending and self._pending[0][0] == ready_id:
        PERSISTED(self, ready_id)


def _keeps_its_vote(local: HardState, source_term: int) -> HardState:
    return HardState(max(local.term, source_term), local.voted_for, local.promised_us)


def _promises_nothing_without_a_log(self: VoterCore, **given: Any) -> None:
    state = given["hard_state"]
    VOTER_INIT(self, **{**given, "hard_state": HardState(state.term, state.voted_for)})


def _promises_nothing_after_a_start(self: RaftState, promised_us: int) -> None:
    INIT_PROMISES(self, 0)


LOG_FAILED, INIT_PROMISES = RaftState.log_failed, RaftState._init_promises
ON_ALIVE, QUEUE_OR_ANSWER = Follower.on_leader_alive, ClientRequests._queue_or_answer
PERSISTED, VOTER_INIT = LocalLog.persisted, VoterCore.__init__
TAKE_READY = {core: core.take_ready for core in (RaftCore, LocalCore)}
CONTRADICTION = {"hard_state": HardState(1), "commit": 0, "applied": 0}

PLANTED: list[tuple[type[ConsensusEngine], Any, str, Any, str, dict[str, Any]]] = [
    (RaftEngine, Leader, "on_range_sent", _takes_a_part_for_the_whole, "a_range_that_is_sent_in_part", {}),
    (RaftEngine, RaftState, "log_failed", _gives_up_what_others_have, "a_leader_whose_committed_entries_fail", {}),
    (RaftEngine, Follower, "on_leader_alive", _follows_every_heartbeat, "heartbeats_of_an_older_term", {}),
    (RaftEngine, Leader, "on_beat_exception", _does_nothing, "a_leader_that_hears_of_a_later_term", {}),
    (RaftEngine, RaftState, "live_nodes", _counts_all_peers, "a_config_whose_majority_needs_a_peer", {}),
    (
        RaftEngine,
        ClientRequests,
        "_queue_or_answer",
        _answers_every_read_by_its_lease,
        "a_read_that_no_lease_may_answer",
        {},
    ),
    (
        RaftEngine,
        ClientRequests,
        "_queue_or_answer",
        _trusts_its_lease_while_its_time_is_held_back,
        "while_its_time_is_held_back",
        {},
    ),
    (RaftEngine, RaftCore, "take_ready", _looks_at_a_clock, "a_run_reads_no_clock", {}),
    (LocalEngine, LocalCore, "take_ready", _looks_at_a_clock, "a_run_reads_no_clock", {}),
    (RaftEngine, ReadLease, "is_valid", _never_ends, "no_read_of_a_leader_that_was_replaced", {}),
    (LocalEngine, LocalCore, "_on_step_down", _steps_down_from_any_role, "stepping_down_is_ignored", {}),
    (LocalEngine, LocalLog, "persisted", _waits_for_each_ready, "a_ready_is_durable_for_a_core", {}),
    (RaftEngine, RaftEngine, "beat_interval_ms", lambda config: 0, "the_interval_of_heartbeats", {}),
    (RaftEngine, voter_core, "merged", _keeps_its_vote, "a_copy_brings_the_term", {"promised_us": 0}),
    (
        RaftEngine,
        VoterCore,
        "__init__",
        _promises_nothing_without_a_log,
        "a_copy_brings_the_term",
        {"promised_us": 7_000_000},
    ),
    (
        RaftEngine,
        VoterCore,
        "__init__",
        _promises_nothing_without_a_log,
        "a_vote_that_may_have_been_promised",
        {"has_log": False},
    ),
    (
        RaftEngine,
        RaftState,
        "_init_promises",
        _promises_nothing_after_a_start,
        "a_vote_that_may_have_been_promised",
        {"has_log": True},
    ),
    (RaftEngine, VoterCore, "_reject", _does_nothing, "a_replica_without_a_log_answers", {}),
    (LocalEngine, NoReplicaCore, "step", _does_nothing, "a_replica_without_a_log_answers", {}),
    (RaftEngine, raft_engine, "refuse_contradictions", _does_nothing, "durable_state_that_contradicts", CONTRADICTION),
    (LocalEngine, local_engine, "refuse_contradictions", _does_nothing, "durable_state_that_contr", CONTRADICTION),
]


@pytest.mark.parametrize(
    ("engine", "owner", "name", "bug", "check", "given"), PLANTED, ids=[f"{p[3].__name__}-{p[4]}" for p in PLANTED]
)
def test_a_planted_bug_is_caught_by_its_check(
    engine: type[ConsensusEngine],
    owner: Any,
    name: str,
    bug: Any,
    check: str,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"clock_drift_ppm_max": DRIFT_PPM} if engine is RaftEngine else {}
    _check(check)(_harness(engine, **settings), **given)
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        _check(check)(_harness(engine, **settings), **given)


def test_an_engine_that_trusts_the_configs_of_its_peers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_checks, "config_of_entry", decode_config)
    with pytest.raises(Corrupt, match="does not contain a config"):
        _check("no_message_of_a_peer_raises")(_harness(RaftEngine))


# -- engines whose restore is wrong ----------------------------------------------------------------------


class VotesBelowItsFloor(RaftEngine):
    @classmethod
    def restore(cls, **given: Any) -> ConsensusCore:
        log = msgspec.structs.replace(given.pop("log"), vote_floor=ZERO)
        return super().restore(log=log, **given)


class DrawsFromARarerDistribution(RaftEngine):
    @classmethod
    def restore(cls, **given: Any) -> ConsensusCore:
        given["rng"].uniform(0, 1)
        return super().restore(**given)


class SendsInTheOrderOfHashes(RaftEngine):
    @classmethod
    def restore(cls, **given: Any) -> ConsensusCore:
        core = super().restore(**given)
        core.__class__ = OrderedByHashes
        return core


class OrderedByHashes(RaftCore):
    def take_ready(self) -> Ready | None:
        ready = super().take_ready()
        if ready is None:
            return None
        return msgspec.structs.replace(ready, at_once=tuple(sorted(ready.at_once, key=lambda sent: hash(sent.to))))


@pytest.mark.parametrize(
    ("engine", "check"),
    [
        (VotesBelowItsFloor, "a_replica_votes_for_no_log_that_ends_before"),
        (DrawsFromARarerDistribution, "a_follower_campaigns_within_one_to_two_timeouts"),
        (SendsInTheOrderOfHashes, "effects_do_not_depend_on_the_hashes"),
    ],
)
def test_an_engine_with_a_bug_is_caught_by_its_check(engine: type[ConsensusEngine], check: str) -> None:
    with pytest.raises(AssertionError):
        _check(check)(_harness(engine))


# -- Readies that break a rule ---------------------------------------------------------------------------


def _commits_too_much(ready: Ready) -> Ready:
    return ready if ready.commit is None else msgspec.structs.replace(ready, commit=ready.commit + 1)


def _commits_again(ready: Ready) -> Ready:
    return msgspec.structs.replace(ready, commit=1) if ready.commit == 3 else ready


def _stamps_its_entries(ready: Ready) -> Ready:
    if ready.append is None:
        return ready
    entries = tuple(Entry(entry.op_id, entry.kind, 5, entry.body) for entry in ready.append.entries)
    return msgspec.structs.replace(ready, append=msgspec.structs.replace(ready.append, entries=entries))


def _answers_twice(ready: Ready) -> Ready:
    return msgspec.structs.replace(ready, accepted=ready.accepted * 2)


def _accepts_what_it_rejects(ready: Ready) -> Ready:
    also = tuple(Accepted(rejection.token, ZERO) for rejection in ready.rejections)
    return msgspec.structs.replace(ready, accepted=ready.accepted + also)


def _counts_from_zero(ready: Ready) -> Ready:
    return msgspec.structs.replace(ready, id=ready.id - 1)


def _reads_ahead(ready: Ready) -> Ready:
    reads = tuple(msgspec.structs.replace(read, index=read.index + 1) for read in ready.reads_ready)
    return msgspec.structs.replace(ready, reads_ready=reads)


@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        (_commits_too_much, "commits what is not in the log"),
        (_commits_again, "the commit index went back"),
        (_stamps_its_entries, "a timestamp of the core"),
        (_answers_twice, "answered twice"),
        (_accepts_what_it_rejects, "answered twice"),
        (_counts_from_zero, "begin at 1"),
        (_reads_ahead, "a read waits for what is not in the log"),
    ],
)
def test_a_ready_that_breaks_a_rule_is_caught(
    bug: Callable[[Ready], Ready], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(self: LocalCore) -> Ready | None:
        ready = inner(self)
        return ready and bug(ready)

    inner = LocalCore.take_ready
    monkeypatch.setattr(LocalCore, "take_ready", take)
    with pytest.raises(AssertionError, match=rule):
        cluster = _harness(LocalEngine).led(1)
        cluster.propose(1, b"a")
        cluster.propose(1, b"b")
        cluster.read(1)
        cluster.transfer(1, 9)
        cluster.propose(1, b"c")
