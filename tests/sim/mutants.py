"""Planted bugs: each replaces one function and must be caught by the invariant it breaks.

``target`` is ``module:Class.function`` or ``module:function``. The replacement takes the original
as its first argument. A mutant whose target is gone, is never called, or is caught by anything but
its invariant fails its test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.spi.consensus import TabletConfig
from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Durable, Failed
from stelae.spi.write import OpResult, WriteReply

Original = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug.

    Attributes:
        rule: what it breaks: a rule of the design, or a section of the Raft paper.
        target: the function that is replaced.
        replacement: called with the original, then with the call's arguments.
        invariant: the one that must report it.
        seed: where the search for a run that shows it begins.
        seeds_max: how many seeds are tried; more for what needs a rare coincidence.
    """

    name: str
    rule: str
    target: str
    replacement: Callable[..., Any]
    invariant: str
    seed: int = 1
    seeds_max: int = 80


# -- the executor ---------------------------------------------------------------------------------


def _begin_without_waiting(original: Original, self: Any, stage: Any, *, at_head: bool) -> None:
    original(self, stage, at_head=at_head)
    if stage.step < 2:
        stage.step = type(stage.step)(2)


def _append_as_if_durable(original: Original, self: Any, stage: Any) -> None:
    original(self, stage)
    if stage.step == 3:
        stage.step = type(stage.step)(4)


def _reply_without_its_append(original: Original, self: Any, outcome_stage: Any) -> None:
    original(self, outcome_stage)
    self._send_all(outcome_stage, outcome_stage.ready.after_persist)


def _commit_at_once(original: Original, self: Any, ready: Any) -> None:
    if ready.commit is not None:
        self._ports.sink.committed(ready.commit)
    original(self, ready)


def _stamp_by_the_wall(original: Original, self: Any, entry: Entry) -> Entry:
    if entry.timestamp:
        return entry
    clock = self._ports.time
    stamp = clock._clock.wall_us() << LOGICAL_BITS
    return Entry(entry.op_id, entry.kind, stamp, entry.body)


def _stamp_on_every_replica(original: Original, self: Any, entry: Entry) -> Entry:
    return Entry(entry.op_id, entry.kind, self._ports.time.now(), entry.body)


# -- the log writer -------------------------------------------------------------------------------


def _commit_without_sync(original: Original, self: Any, work: Any, engine: Any) -> Any:
    if not hasattr(work, "appends"):
        return original(self, work, engine)
    return self.complete(work, engine.commit(work.appends, sync=False))


def _failures_are_durable(
    original: Original, self: Any, state: Any, slots: Any, outcome: Any, completions: Any
) -> None:
    if isinstance(outcome, Failed):
        ends = [slot.entries[-1].op_id for slot in slots if slot.entries]
        outcome = Durable(ends[-1] if ends else outcome.durable)
    original(self, state, slots, outcome, completions)


def _answer_then_commit(original: Original, self: Any, work: Any, engine: Any) -> Any:
    if not hasattr(work, "appends"):
        return original(self, work, engine)
    outcomes = {
        log: Durable(append.entries[-1].op_id if append.entries else ZERO)
        for log, append in work.appends.items()
    }
    self.finish(self.complete(work, outcomes))
    engine.commit(work.appends, sync=True)
    return []


def _hint_beyond_the_commit(original: Original, slots: Any) -> Any:
    merged = original(slots)
    if not merged.entries:
        return merged
    return msgspec.structs.replace(merged, commit_hint=merged.entries[-1].op_id.index)


# -- apply, results, reads, clock, metadata -------------------------------------------------------


def _apply_when_appended(
    original: Original, self: Any, entries: Any, replace_from: int | None
) -> None:
    original(self, entries, replace_from)
    if entries and entries[-1].kind is EntryKind.WRITE:
        self.applier.commit_to(entries[-1].op_id.index)


def _admit_everything(original: Original, self: Any, payload: Any, timestamp: int) -> Any:
    admission = original(self, payload, timestamp)
    admission.skip = frozenset()
    return admission


def _failure_is_success(original: Original, self: Any, error: Any) -> None:
    if self.open and not isinstance(error, CallerError):
        self.open = False
        result = OpResult(1)
        self.done(WriteReply([(sequence, result) for sequence in range(1, 2_000)]))


def _observe_nothing(original: Original, self: Any, stamp: int) -> None:
    return None


def _observe_anything(original: Original, self: Any, stamp: int) -> None:
    self._last = max(self._last, stamp)
    self._ceiling = max(self._ceiling, stamp + (1 << 40))


def _keep_votes_in_memory(
    original: Original, self: Any, hard_state: Any, committed_config: TabletConfig
) -> None:
    known = self._known()
    if known is None or (hard_state.term > known.term and hard_state.voted_for is None):
        original(self, hard_state, committed_config)


# -- the consensus core ---------------------------------------------------------------------------


def _vote_unsaved(original: Original, self: Any, candidate: Any) -> None:
    self.voted_for = candidate


def _enter_term_unsaved(original: Original, self: Any, term: int, voted_for: Any) -> None:
    saved = self.outbox.hard_state
    original(self, term, voted_for)
    if voted_for is None:
        self.outbox.hard_state = saved


def _judge_without_the_log(original: Original, request: Any, candidate: Any, ballot: Any) -> Any:
    refusal = original(request, candidate, ballot)
    return None if refusal is not None and refusal.value == "LOG_BEHIND" else refusal


def _count_late_votes(original: Original, self: Any, voter: Any, reply: Any) -> None:
    tally = self._replica.campaign
    if tally is not None and reply.refusal is None:
        reply = msgspec.structs.replace(
            reply,
            term=self._replica.term,
            campaign_term=tally.term,
            attempt=tally.attempt,
            pre=tally.pre,
        )
    original(self, voter, reply)


def _commit_older_terms(original: Original, self: Any, lead: Any) -> None:
    replica = self._replica
    index = self._majority_of(replica.durable.index, [peer.match for peer in lead.voting])
    if index > replica.commit:
        replica.commit_to(index)


def _commit_alone(original: Original, self: Any, lead: Any) -> None:
    replica = self._replica
    if replica.log.last_term == replica.term:
        replica.commit_to(replica.log.last_index)


def _agree_by_index(original: Original, self: Any, prev: Any) -> Any:
    log = self._replica.log
    return None if log.term_at(prev.index) is not None else original(self, prev)


def _confirm_reads_alone(original: Original, self: Any, lead: Any) -> None:
    confirmed = lead.reads.confirmed(lead.reads.round)
    self._replica.outbox.reads_ready.extend(confirmed)


def _config_only_at_commit(original: Original, self: Any, config: Any) -> bool:
    return False


# -- the log engine -------------------------------------------------------------------------------


def _write_without_sync(
    original: Original,
    self: Any,
    entries: Any,
    *,
    replace_from: int | None,
    commit_hint: int,
    sync: bool,
) -> Any:
    return original(self, entries, replace_from=replace_from, commit_hint=commit_hint, sync=False)


def _forget_the_base(original: Original, self: Any, **changes: Any) -> Any:
    if "base" in changes:
        changes["base"] = ZERO
    return original(self, **changes)


def _collect_everything(original: Original, log: Any, upto: int) -> Any:
    return original(log, log.last.index)


def _write_base_later(original: Original, files: Any, path: str, base: Any) -> None:
    file = files.open(path, writable=True)
    slot = base.version % 2 * 512
    file.pwritev([sys.modules[original.__module__]._encode(base)], slot)
    file.close()


def _replace_without_a_trace(original: Original, entries: Any, **options: Any) -> Any:
    if options["replace_from"] and entries:
        options["replace_from"] = None
    return original(entries, **options)


def _take_damage_for_a_tail(original: Original, scan: Any) -> Any:
    found = original(scan)
    if found.value.verdict.name != "DAMAGE":
        return found
    return type(found)["TORN"]


def _skip_the_checksum(
    original: Original, data: bytes, start: int, nonce: int, path: str, file_offset: int
) -> Any:
    from stelae.spi.errors import Corrupt
    from stelae.spi.ids import OpId
    from stelae.spi.log import EntryKind
    from stelae_wal_segmented.format import ENTRY_HEADER_BYTES, decode_entry_header, salt_of

    header = decode_entry_header(data[start : start + ENTRY_HEADER_BYTES], salt_of(nonce))
    if header is None:
        raise Corrupt("an entry header fails its checksum", path=path, offset=file_offset)
    body_at = start + ENTRY_HEADER_BYTES
    body = data[body_at : body_at + header.size]
    return Entry(OpId(*header.op_id), EntryKind(header.kind), header.timestamp, body)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="executor: replies do not wait for the hard state",
        rule="durability 1",
        target="stelae.host.executor:ReadyExecutor._begin",
        replacement=_begin_without_waiting,
        invariant="persist_before_send",
    ),
    Mutant(
        name="executor: an append counts as durable once it is handed over",
        rule="durability 1",
        target="stelae.host.executor:ReadyExecutor._append",
        replacement=_append_as_if_durable,
        invariant="persist_before_send",
    ),
    Mutant(
        name="executor: dependent replies leave with the append",
        rule="durability 1",
        target="stelae.host.executor:ReadyExecutor._append",
        replacement=_reply_without_its_append,
        invariant="persist_before_send",
    ),
    Mutant(
        name="executor: a commit index overtakes the replacement it speaks of",
        rule="Raft 5.4.3",
        target="stelae.host.executor:ReadyExecutor.execute",
        replacement=_commit_at_once,
        invariant="state_machine_safety",
    ),
    Mutant(
        name="executor: entries are stamped by the wall clock",
        rule="durability 14",
        target="stelae.host.executor:ReadyExecutor._stamped",
        replacement=_stamp_by_the_wall,
        invariant="hybrid_time",
    ),
    Mutant(
        name="executor: every replica stamps entries anew",
        rule="Raft 5.3, durability 14",
        target="stelae.host.executor:ReadyExecutor._stamped",
        replacement=_stamp_on_every_replica,
        invariant="log_matching",
    ),
    Mutant(
        name="log writer: groups are written and not synced",
        rule="durability 1, behaviour W2",
        target="stelae.host.log_writer:LogWriter.perform",
        replacement=_commit_without_sync,
        invariant="persist_before_send",
    ),
    Mutant(
        name="log writer: a failed group is reported durable",
        rule="durability 7, behaviour W8",
        target="stelae.host.log_writer:LogWriter._settle",
        replacement=_failures_are_durable,
        invariant="persist_before_send",
    ),
    Mutant(
        name="log writer: completions come before the commit",
        rule="durability 1, behaviour W2",
        target="stelae.host.log_writer:LogWriter.perform",
        replacement=_answer_then_commit,
        invariant="persist_before_send",
    ),
    Mutant(
        name="log writer: the hint says more than is committed",
        rule="durability 3",
        target="stelae.host.log_writer:_merge",
        replacement=_hint_beyond_the_commit,
        invariant="state_machine_safety",
    ),
    Mutant(
        name="apply: entries are applied when they are appended",
        rule="Raft 5.3",
        target="stelae.host.replica:Replica.entries_changed",
        replacement=_apply_when_appended,
        invariant="state_machine_safety",
    ),
    Mutant(
        name="results: a second entry of an identity is applied again",
        rule="durability 16",
        target="stelae.host.results:ResultsTable.admit",
        replacement=_admit_everything,
        invariant="exactly_once",
    ),
    Mutant(
        name="writes: an undecided write is answered as done",
        rule="behaviour C2",
        target="stelae.host.writes:_Request.fail",
        replacement=_failure_is_success,
        invariant="acknowledged_writes",
    ),
    Mutant(
        name="clock: peers' timestamps are not observed",
        rule="durability 14",
        target="stelae.host.hybrid_clock:HybridClock.observe",
        replacement=_observe_nothing,
        invariant="hybrid_time",
    ),
    Mutant(
        name="clock: a timestamp from too far ahead moves the clock",
        rule="durability 14",
        target="stelae.host.hybrid_clock:HybridClock.observe",
        replacement=_observe_anything,
        invariant="hybrid_time",
    ),
    Mutant(
        name="metadata: votes are not written",
        rule="durability 9",
        target="stelae.host.consensus_meta:ConsensusMetadata.save",
        replacement=_keep_votes_in_memory,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="core: a vote is not handed out to be saved",
        rule="durability 9",
        target="stelae_consensus_raft.replica:Replica.vote_for",
        replacement=_vote_unsaved,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="core: a new term is not handed out to be saved",
        rule="durability 9",
        target="stelae_consensus_raft.replica:Replica.set_term",
        replacement=_enter_term_unsaved,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="core: answers to another campaign count as votes",
        rule="durability 9 (late and repeated answers)",
        target="stelae_consensus_raft.election:Elections.on_reply",
        replacement=_count_late_votes,
        invariant="election_safety",
        seed=41,
        seeds_max=300,
    ),
    Mutant(
        name="core: a candidate with an older log gets votes",
        rule="Raft 5.4.1",
        target="stelae_consensus_raft.election:judge",
        replacement=_judge_without_the_log,
        invariant="leader_completeness",
    ),
    Mutant(
        name="core: entries of older terms commit by counting copies",
        rule="durability 9, Raft figure 8",
        target="stelae_consensus_raft.leader:Leader._advance_commit",
        replacement=_commit_older_terms,
        invariant="commit_rule",
    ),
    Mutant(
        name="core: the leader commits what it has appended",
        rule="Raft 5.3",
        target="stelae_consensus_raft.leader:Leader._advance_commit",
        replacement=_commit_alone,
        invariant="commit_rule",
    ),
    Mutant(
        name="core: an append fits wherever there is an entry before it",
        rule="Raft 5.3",
        target="stelae_consensus_raft.follower:Follower._disagreement",
        replacement=_agree_by_index,
        invariant="commit_rule",
    ),
    Mutant(
        name="core: reads are confirmed without a majority",
        rule="behaviour C14",
        target="stelae_consensus_raft.leader:Leader._confirm_reads",
        replacement=_confirm_reads_alone,
        invariant="linearizability",
        seed=31,
        seeds_max=200,
    ),
    Mutant(
        name="core: a config counts only once it is committed",
        rule="durability 11",
        target="stelae_consensus_raft.configs:ConfigHistory.append",
        replacement=_config_only_at_commit,
        invariant="config_follows_log",
    ),
    Mutant(
        name="log engine: groups are not synced",
        rule="behaviour W2",
        target="stelae_wal_segmented.writer:SegmentWriter.write",
        replacement=_write_without_sync,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: a collected log forgets its base",
        rule="durability 4",
        target="stelae_wal_segmented.base:Base.changed",
        replacement=_forget_the_base,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: a replacement leaves no trace on disk",
        rule="durability 5",
        target="stelae_wal_segmented.writer:encode_group",
        replacement=_replace_without_a_trace,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: damage before a synced offset passes for a torn tail",
        rule="durability 6",
        target="stelae_wal_segmented.recovery:judge_last",
        replacement=_take_damage_for_a_tail,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: more is collected than may be",
        rule="durability 4",
        target="stelae_wal_segmented.engine:collect",
        replacement=_collect_everything,
        invariant="log_base",
    ),
    Mutant(
        name="log engine: a base is not durable before what it replaces is removed",
        rule="durability 4",
        target="stelae_wal_segmented.log:write_base",
        replacement=_write_base_later,
        invariant="log_durability",
    ),
    Mutant(
        name="log engine: bodies are read without their checksum",
        rule="durability 6",
        target="stelae_wal_segmented.reader:decode_entry",
        replacement=_skip_the_checksum,
        invariant="log_durability",
    ),
)
