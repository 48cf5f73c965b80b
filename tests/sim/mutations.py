"""The replacements of the mutants in ``mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig
from stelae.spi.wal import Durable, Failed
from stelae.spi.write import Answer, OpResult, RowCode, RowError, WriteReply

Original = Callable[..., Any]


# -- the executor ---------------------------------------------------------------------------------


def begin_without_waiting(original: Original, self: Any, stage: Any, *, at_head: bool) -> None:
    original(self, stage, at_head=at_head)
    if stage.step < 2:
        stage.step = type(stage.step)(2)


def append_as_if_durable(original: Original, self: Any, stage: Any) -> None:
    original(self, stage)
    if stage.step == 3:
        stage.step = type(stage.step)(4)


def reply_without_its_append(original: Original, self: Any, outcome_stage: Any) -> None:
    original(self, outcome_stage)
    self._send_all(outcome_stage, outcome_stage.ready.after_persist)


def commit_at_once(original: Original, self: Any, ready: Any) -> None:
    if ready.commit is not None:
        self._sink.committed(ready.commit)
    original(self, ready)


def stamp_by_the_wall_clock(original: Original, self: Any, entry: Entry) -> Entry:
    if entry.timestamp:
        return entry
    clock = self._ports.time
    stamp = clock._clock.wall_us() << LOGICAL_BITS
    return Entry(entry.op_id, entry.kind, stamp, entry.body)


def stamp_on_every_replica(original: Original, self: Any, entry: Entry) -> Entry:
    return Entry(entry.op_id, entry.kind, self._ports.time.now(), entry.body)


# -- the log writer -------------------------------------------------------------------------------


def commit_without_sync(original: Original, self: Any, work: Any, engine: Any) -> Any:
    if not hasattr(work, "appends"):
        return original(self, work, engine)
    return self.complete(work, engine.commit(work.appends, sync=False))


def failures_are_durable(original: Original, self: Any, state: Any, slots: Any, outcome: Any, completions: Any) -> None:
    if isinstance(outcome, Failed):
        ends = [slot.entries[-1].op_id for slot in slots if slot.entries]
        outcome = Durable(ends[-1] if ends else outcome.durable)
    original(self, state, slots, outcome, completions)


def answer_then_commit(original: Original, self: Any, work: Any, engine: Any) -> Any:
    if not hasattr(work, "appends"):
        return original(self, work, engine)
    outcomes = {
        log: Durable(append.entries[-1].op_id if append.entries else ZERO) for log, append in work.appends.items()
    }
    self.post(self.complete(work, outcomes))
    engine.commit(work.appends, sync=True)
    return []


def hint_beyond_the_commit(original: Original, slots: Any) -> Any:
    merged = original(slots)
    if not merged.entries:
        return merged
    return msgspec.structs.replace(merged, commit_hint=merged.entries[-1].op_id.index)


# -- apply, results, reads, clock, metadata -------------------------------------------------------


def apply_when_appended(original: Original, self: Any, entries: Any, replace_from: int | None) -> None:
    original(self, entries, replace_from)
    if entries and entries[-1].kind is EntryKind.WRITE:
        self.applier.commit_to(entries[-1].op_id.index)


def admit_everything(original: Original, self: Any, payload: Any, timestamp: int, *refusal: Any) -> Any:
    admission = original(self, payload, timestamp, *refusal)
    admission.skip = frozenset()
    return admission


def skip_whole_ranges(original: Original, self: Any, payload: Any, timestamp: int, *refusal: Any) -> Any:
    admission = original(self, payload, timestamp, *refusal)
    known = [operations for operations in _operations(payload) if not admission.skip.isdisjoint(operations)]
    admission.skip = admission.skip.union(*known)
    return admission


def admit_whole_ranges(original: Original, self: Any, payload: Any, timestamp: int, *refusal: Any) -> Any:
    admission = original(self, payload, timestamp, *refusal)
    partly = [operations for operations in _operations(payload) if not admission.skip >= set(operations)]
    admission.skip = admission.skip.difference(*partly)
    return admission


def _operations(payload: Any) -> list[range]:
    """Return the numbers of the operations of each sequence range of a payload."""
    ends = [*itertools.accumulate(len(sequence_range.digests) for sequence_range in payload.sequences)]
    return [
        range(end - len(sequence_range.digests), end)
        for sequence_range, end in zip(payload.sequences, ends, strict=True)
    ]


def answer_the_next(original: Original, sequence: int, results: Any) -> Any:
    return original(sequence + 1, results)


def assign_errors_by_row(original: Original, ranges: Any, faults: Any) -> Any:
    last = sum(len(sequence_range.digests) for sequence_range in ranges) - 1
    single = tuple(
        msgspec.structs.replace(sequence_range, row_counts=(1,) * len(sequence_range.digests))
        for sequence_range in ranges
    )
    return original(single, [msgspec.structs.replace(fault, row=min(fault.row, last)) for fault in faults])


def count_only_owned_rows(original: Original, ranges: Any, faults: Any) -> Any:
    def moved(errors: Any) -> Any:
        unfit = [error.row for error in errors if error.code is RowCode.BAD_VALUE]
        return [
            error if error.row in unfit else RowError(error.row - sum(row < error.row for row in unfit), error.code)
            for error in errors
        ]

    return {number: moved(errors) for number, errors in original(ranges, faults).items()}


def hash_with_the_sequence_range(original: Original, sequence_range: Any) -> Any:
    return tuple(digest ^ len(sequence_range.ops) for digest in original(sequence_range))


def answer_the_unknown_too(
    original: Original, self: Any, request: Any, sequence_range: Any, digests: Any, pending: Any, *others: Any
) -> None:
    known = [
        self._results.answer(request.client_id, sequence_range.first_sequence + offset, digest)
        for offset, digest in enumerate(digests)
    ]
    if all(known) or not any(known):
        original(self, request, sequence_range, digests, pending, *others)
        return
    first = next(filter(None, known))
    pending.decide(
        [Answer(sequence_range.first_sequence + offset, 1, found or first) for offset, found in enumerate(known)]
    )


def failure_is_success(original: Original, self: Any, error: Any) -> None:
    if self.open and not isinstance(error, CallerError):
        self.open = False
        result = OpResult(1)
        self.done(WriteReply([Answer(1, 2_000, result)]))


def observe_nothing(original: Original, self: Any, stamp: int) -> None:
    return None


def observe_anything(original: Original, self: Any, stamp: int) -> None:
    self._last = max(self._last, stamp)
    self._ceiling = max(self._ceiling, stamp + (1 << 40))


def keep_votes_in_memory(original: Original, self: Any, hard_state: Any, committed_config: TabletConfig) -> None:
    # The term is written: metadata with an earlier term than the log's is refused at the next start.
    original(self, msgspec.structs.replace(hard_state, voted_for=None), committed_config)


# -- the consensus core ---------------------------------------------------------------------------


def vote_unsaved(original: Original, self: Any, candidate: Any) -> None:
    self.voted_for = candidate


def enter_term_unsaved(original: Original, self: Any, term: int, voted_for: Any) -> None:
    saved = self.ready.hard_state
    original(self, term, voted_for)
    if voted_for is None:
        self.ready.hard_state = saved


def judge_without_the_log(original: Original, request: Any, candidate: Any, ballot: Any) -> Any:
    refusal = original(request, candidate, ballot)
    return None if refusal is not None and refusal.value == "LOG_BEHIND" else refusal


def count_late_votes(original: Original, self: Any, voter: Any, reply: Any) -> None:
    tally = self._state.campaign
    if tally is not None and reply.refusal is None:
        reply = msgspec.structs.replace(
            reply, term=self._state.term, campaign_term=tally.term, attempt=tally.attempt, pre=tally.pre
        )
    original(self, voter, reply)


def commit_older_terms(original: Original, self: Any, lead: Any) -> None:
    replica = self._state
    index = self.majority_value(replica.durable.index, [peer.match for peer in lead.voting])
    if index > replica.commit:
        replica.commit_to(index)


def commit_alone(original: Original, self: Any, lead: Any) -> None:
    replica = self._state
    if replica.log.last_term == replica.term:
        replica.commit_to(replica.log.last_index)


def agree_by_index(original: Original, self: Any, prev: Any) -> Any:
    log = self._state.log
    return None if log.term_at(prev.index) is not None else original(self, prev)


def confirm_reads_alone(original: Original, self: Any, lead: Any) -> None:
    confirmed = lead.reads.confirmed(lead.reads.round)
    self._state.ready.reads_ready.extend(confirmed)


def config_only_at_commit(original: Original, self: Any, config: Any) -> bool:
    return False


# -- the log engine -------------------------------------------------------------------------------


def miss_the_restart_of_a_peer(
    original: Original, self: Any, peer: Any, incarnation_id: Any, ack: Any, now_us: int
) -> None:
    if peer in self._out:
        self._out[peer].incarnation_id = incarnation_id
    original(self, peer, incarnation_id, ack, now_us)


def never_repeat_a_lost_probe(original: Original, self: Any, event: Any) -> None:
    peer = self._peer(event.peer)
    waiting = peer is not None and peer.waiting
    original(self, event)
    if waiting:
        peer.waiting = True


def write_without_sync(original: Original, self: Any, group: Any, *, sync: bool) -> Any:
    return original(self, group, sync=False)


def write_all_logs_without_sync(original: Original, self: Any, buffers: Any, size: int, *, sync: bool) -> Any:
    return original(self, buffers, size, sync=False)


def write_no_base(original: Original, book: Any, tail: Any, committer: Any, log: Any, kind: Any, *rest: Any) -> None:
    if kind.name != "BASE":
        original(book, tail, committer, log, kind, *rest)


def make_a_begun_write_without_sync(original: Original, self: Any) -> Any:
    self.file.pwritev(self.buffers, self.offset)


def finish_before_it_is_written(original: Original, self: Any, group: Any) -> Any:
    begun = original(self, group)
    if begun is None:
        return None
    outcomes = begun.finish([None] * len(begun.writes))
    return begun._replace(finish=lambda failures: outcomes)


def forget_the_base(original: Original, self: Any, **changes: Any) -> Any:
    if "base" in changes:
        changes["base"] = ZERO
    return original(self, **changes)


def collect_everything(original: Original, log: Any, upto: int) -> Any:
    return original(log, log.last.index)


def write_base_later(original: Original, files: Any, path: str, base: Any) -> None:
    class Unsynced:
        """A disk with files whose writes are not synced."""

        @staticmethod
        def open(path: str, **how: bool) -> Any:
            file = files.open(path, **how)
            pwritev = file.pwritev
            return SimpleNamespace(
                path=path, close=file.close, pwritev=lambda data, offset, dsync: pwritev(data, offset)
            )

    original(Unsynced, path, base)


def replace_without_a_trace(original: Original, entries: Any, **options: Any) -> Any:
    if options["replace_from"] and entries:
        options["replace_from"] = None
    return original(entries, **options)


def take_damage_for_a_tail(original: Original, scan: Any) -> Any:
    found = original(scan)
    if found.value.verdict.name != "DAMAGE":
        return found
    return type(found)["TORN"]


def skip_the_checksum(original: Original, data: bytes, start: int, nonce: int, path: str, file_offset: int) -> Any:
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


# -- flush and collection -------------------------------------------------------------------------


def flush_past_the_log(original: Original, self: Any) -> bool:
    if not self._able or not self.applier.idle:
        return False
    return bool(self._run(self.applier.store.flush))


def no_contradiction(original: Original, *facts: Any) -> str:
    return ""


def keep_old_results(original: Original, self: Any, edit: Any) -> Any:
    return msgspec.structs.replace(original(self, edit), results=self.superblock.results)


def remove_then_save(original: Original, self: Any, edit: Any, block: Any) -> None:
    self.applier.store.commit(edit)
    original(self, edit, block)


def collect_what_is_not_flushed(original: Original, self: Any) -> int:
    self._flushed_index += 4
    return int(original(self))


def keep_old_manifest(original: Original, self: Any, edit: Any) -> Any:
    block, before = original(self, edit), self.superblock.manifest
    # Keep edits that remove files: with the old manifest, the store would lack files and could not start.
    return msgspec.structs.replace(block, manifest=before) if before and not edit.obsolete else block


def skip_the_first_replayed_entry(original: Original, self: Any, flushed: Any, committed: Any, commit: int) -> None:
    original(self, flushed._replace(index=flushed.index + 1) if flushed.index else flushed, committed, commit)


# -- the columnar store ---------------------------------------------------------------------------


class _Unsynced:
    """A file whose sync does nothing."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        return None


class _UnsyncedFiles:
    """``Files`` whose new files have syncs that do nothing."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def create(self, path: str) -> _Unsynced:
        return _Unsynced(self._files.create(path))


def close_blocks_unsynced(original: Original, self: Any) -> None:
    files, self._files = self._files, _UnsyncedFiles(self._files)
    try:
        original(self)
    finally:
        self._files = files


def do_nothing(original: Original, *arguments: Any, **options: Any) -> None:
    return None


def drop_every_deletion(original: Original, self: Any, parts: Any, floor: int, bottom: bool) -> Any:
    return original(self, parts, floor, True)


def keep_only_the_newest(original: Original, self: Any, parts: Any, floor: int, bottom: bool) -> Any:
    return original(self, parts, (1 << 63) - 1, bottom)


def forget_the_floor(original: Original, self: Any, levels: Any, schemas: Any, stamp: int, floor: int) -> Any:
    return original(self, levels, schemas, stamp, 0)


def skip_nothing(original: Original, payload: Any, operations: Any) -> set[int]:
    return set()


def insert_over_an_existing_row(original: Original, self: Any, group: Any, keys: Any) -> Any:
    return self._replace(group, keys)


def ignore_overlaps(original: Original, self: Any, first: Any, last: Any) -> bool:
    return False
