"""Commits groups: writes one group of records for all logs of a commit, and handles its failure.

If the write fails, it fails for every log of the group. Each log gets the failure with its own last durable op id. Logs
that are not in the group and have no unsynced entries are not affected.

- No space: the group is not written. Each log of the group takes appends again after ``repair``. The open segment stays
  open for the records that free space, and keeps its reserve for them. If only the write itself finds no space, the
  segment is made durable without the group, and closed.
- A failed write or sync: nothing behind the segment's synced offset is trusted. The logs of the group and the logs with
  unsynced entries fail permanently. The head of the next segment records that. All other logs continue in the next
  segment, whose head also records where the failed segment ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from stelae.spi.append_check import check_append
from stelae.spi.errors import CallerError, Full, StelaeError, StorageError, SyncFailed, TooLarge
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.log import ENTRY_BYTES_MAX
from stelae.spi.wal import Append, Durable, Failed, Outcome
from stelae_wal_shared.engine_state import EngineState, past_the_end, unknown_log
from stelae_wal_shared.format import RECORD_BYTES, RecordKind
from stelae_wal_shared.group import RecordGroup
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import LogTail
from stelae_wal_shared.writer import SharedWriter

Outcomes: TypeAlias = dict[LogId, Outcome]

_AcceptedAppend: TypeAlias = tuple[SharedTabletLog, Append, list[int]]
"""An append that fits its log, and the lengths of its bodies: everything that needs them takes them from here."""

WhenFull: TypeAlias = Callable[[list[SharedTabletLog]], SyncFailed | None]
"""What is done with the open segment after a full disk: ``keep_full_segment`` or ``close_full_segment``."""

_ENTRY = int(RecordKind.ENTRY)


class Committer:
    """Writes groups to the tail. One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        groups: number of groups that were committed since the start.
        entries: number of entries that were committed since the start.
        entry_bytes: length of their records, bodies included.
    """

    def __init__(self, state: EngineState, tail: LogTail) -> None:
        self._state = state
        self._tail = tail
        self.groups = 0
        self.entries = 0
        self.entry_bytes = 0

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> Outcomes:
        """Commit a group: see the contract. With an empty group and ``sync``, the outcomes are those that failed."""
        if not group:
            return self._sync() if sync else {}
        outcomes: Outcomes = {}
        accepted, size = self._accept(group, outcomes)
        if accepted:
            self.groups += 1
            self._write(accepted, size, sync, outcomes)
        return outcomes

    def fail_all(self, error: StorageError | OSError, logs: list[SharedTabletLog]) -> SyncFailed:
        """After a failed write or sync, fail these logs and every log with unsynced entries permanently."""
        state = self._state
        if not isinstance(error, SyncFailed):
            error = SyncFailed(f"a write failed: {error}", path=state.directory)
        self._tail.abandon_segment()
        with state.lock:
            for log in [*logs, *state.dirty.values()]:
                log.fail_at_durable(Failed(error, log.durable))
                state.retain_all()
            state.dirty.clear()
        with suppress(StorageError, OSError):
            # The head of the new segment records the failure. If it cannot be begun now, that of the next one does.
            self._tail.begin_segment()
        return error

    def close_full_segment(self, logs: list[SharedTabletLog]) -> SyncFailed | None:
        """After a write that found no space, close the open segment without its group.

        If the earlier groups cannot be synced, these logs fail permanently, and the error is returned."""
        try:
            self._tail.seal()
        except (StorageError, OSError) as error:
            return self.fail_all(error, logs)
        self._tail.drop_spare()
        return None

    def keep_full_segment(self, logs: list[SharedTabletLog]) -> SyncFailed | None:
        """After a group that found no space before it was written, make the earlier groups durable.

        If they cannot be synced, these logs fail permanently, and the error is returned."""
        try:
            self._tail.sync()
        except (StorageError, OSError) as error:
            return self.fail_all(error, logs)
        self._tail.drop_spare()
        return None

    # -- writing ---------------------------------------------------------------------------------

    def _accept(self, group: Mapping[LogId, Append], outcomes: Outcomes) -> tuple[list[_AcceptedAppend], int]:
        """Return the appends that fit their logs, and their length in bytes; add the refused ones to ``outcomes``."""
        accepted: list[_AcceptedAppend] = []
        logs, size = self._state.logs, 0
        for name, append in group.items():
            log, entries = logs.get(name), append.entries
            sizes = [len(entries[0].body)] if len(entries) == 1 else [len(entry.body) for entry in entries]
            refusal = unknown_log(name) if log is None else _refusal(log, append, sizes)
            if log is None or refusal is not None:
                assert refusal is not None
                outcomes[name] = Failed(refusal, ZERO if log is None else log.durable)
                continue
            accepted.append((log, append, sizes))
            size += RECORD_BYTES * len(sizes) + (sizes[0] if len(sizes) == 1 else sum(sizes))
        return accepted, size

    def _write(self, accepted: list[_AcceptedAppend], size: int, sync: bool, outcomes: Outcomes) -> None:
        full = self.keep_full_segment
        try:
            writer = self._tail.writer_for(size)
            records = group_of(writer, accepted)
            full = self.close_full_segment
            writer.write(records.buffers(), records.size, sync=sync)
        except (StorageError, OSError) as error:
            self._fail(accepted, error, outcomes, full)
            return
        self._wrote(writer, records, accepted, size, sync, outcomes)

    def _wrote(
        self,
        writer: SharedWriter,
        records: RecordGroup,
        accepted: list[_AcceptedAppend],
        size: int,
        sync: bool,
        outcomes: Outcomes,
    ) -> None:
        with self._state.lock:
            self._publish(writer, accepted, records.offsets, sync, outcomes)
        self.entry_bytes += size
        if sync and self._state.dirty:
            self._state.mark_all_durable()

    def _fail(
        self, accepted: list[_AcceptedAppend], error: StorageError | OSError, outcomes: Outcomes, full: WhenFull
    ) -> None:
        """Fail the logs of a group: until ``repair`` after a full disk, permanently after any other error."""
        logs = [log for log, _, _ in accepted]
        failed: StorageError
        if isinstance(error, Full):
            failed = full(logs) or error
            for log in logs:
                log.failed = Failed(failed, log.durable)
        else:
            failed = self.fail_all(error, logs)
        for log in logs:
            outcomes[log.name] = Failed(failed, log.durable)

    def _publish(
        self, writer: SharedWriter, accepted: list[_AcceptedAppend], offsets: list[int], sync: bool, outcomes: Outcomes
    ) -> None:
        """Show a group to readers. The caller holds the lock."""
        segment, dirty = writer.segment, self._state.dirty
        index = segment.index
        assert index is not None
        at = 0
        for log, append, sizes in accepted:
            entries = append.entries
            at += len(entries)
            log.order += len(entries) or 1
            if log.damage is not None:
                # A reader found damage while the group was written: the log ends before it.
                outcomes[log.name] = Failed(past_the_end(log, log.last.index + 1), log.durable)
                continue
            if append.replace_from is not None:
                log.void(append.replace_from)
                index.cut(log.number, append.replace_from)
            if len(entries) == 1:
                index.add(log.number, entries[0].op_id[1], offsets[at - 1], sizes[0])
                log.append(entries[0].op_id, segment)
            elif entries:
                index.extend(log.number, entries[0].op_id[1], offsets[at - len(entries) : at], sizes)
                log.extend(entries, segment)
            if append.commit_hint > log.commit_hint:
                log.commit_hint = append.commit_hint
            if sync:
                log.durable = log.last
            else:
                dirty[log.name] = log
            outcomes[log.name] = Durable(log.last)
        self.entries += at
        segment.entries += at
        segment.end = writer.end

    def _sync(self) -> Outcomes:
        waiting = list(self._state.dirty.values())
        try:
            self._tail.sync()
        except (StorageError, OSError) as error:
            failed = self.fail_all(error, [])
            return {log.name: Failed(failed, log.durable) for log in waiting}
        return {}


def group_of(writer: SharedWriter, accepted: list[_AcceptedAppend]) -> RecordGroup:
    """Return the group with the records of all accepted appends. It is written at the writer's end."""
    group = RecordGroup(writer.segment.nonce, writer.end, writer.synced)
    for log, append, _ in accepted:
        if append.entries:
            group.add_entries(_ENTRY, log.number, log.order + 1, append.entries, append.commit_hint)
        else:
            assert append.replace_from is not None
            group.add(RecordKind.VOID, log.number, log.order + 1, OpId(0, append.replace_from), append.commit_hint)
    return group


def _refusal(log: SharedTabletLog, append: Append, sizes: list[int]) -> StelaeError | None:
    """Return why an append with bodies of these lengths is refused; ``None`` if it is accepted."""
    if log.damage is not None:
        return log.corrupt()
    if log.failed is not None:
        return log.failed.error
    entries = append.entries
    if append.replace_from is None and len(entries) == 1:
        # A shortcut for most appends: a group may have a hundred of them.
        entry = entries[0]
        term, index = entry.op_id
        last_term, last_index = log.last
        if index == last_index + 1 and term >= last_term and sizes[0] <= ENTRY_BYTES_MAX:
            return None
    fact = check_append(log.state(), append)
    if fact is None and append.replace_from is not None and entries:
        before = log.op_id_at(append.replace_from - 1)
        if before.term > entries[0].op_id.term:
            fact = f"entry {entries[0].op_id} goes back from {before}"
    if fact is not None:
        return CallerError(f"log {log.name}: {fact}")
    if max(sizes, default=0) > ENTRY_BYTES_MAX:
        at = next(at for at, size in enumerate(sizes) if size > ENTRY_BYTES_MAX)
        return TooLarge(f"entry {entries[at].op_id}", sizes[at], ENTRY_BYTES_MAX)
    return None
