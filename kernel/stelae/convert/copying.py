"""Copies logs from one engine into another through their contract, and compares the two entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from stelae.convert.log_check import batches, entry_count
from stelae.convert.offline import SILENT, ProgressMeter
from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import Append, Failed, LogState, WalEngine


def copy_logs(source: WalEngine, target: WalEngine, meter: ProgressMeter = SILENT) -> None:
    """Create every log of ``source`` in ``target``, which has none, with base, entries and commit hint. Durable on
    return.

    The hint of an empty log is not copied. It could only be at or below the base, where everything is committed.

    Raises:
        StorageError: a log cannot be read, or the target has no space (``Full``) or refuses entries of the source."""
    logs = source.logs()
    meter.begin("copying", sum(entry_count(state) for state in logs.values()))
    for log in sorted(logs):
        _copy_log(source, target, log, logs[log], meter)
        target.cool(log)


def _copy_log(source: WalEngine, target: WalEngine, log: LogId, state: LogState, meter: ProgressMeter) -> None:
    target.create(log, state.base)
    for batch in batches(source, log, state.base.index + 1, state.last.index + 1):
        append = Append(entries=tuple(batch), commit_hint=state.commit_hint)
        outcome = target.commit({log: append}, sync=True)[log]
        if isinstance(outcome, Failed):
            if isinstance(outcome.error, StorageError):
                raise outcome.error
            raise StorageError(f"the copy of log {log} was refused: {outcome.error}") from outcome.error
        meter.add(len(batch), sum(len(entry.body) for entry in batch))


def compare_logs(source: WalEngine, target: WalEngine, meter: ProgressMeter = SILENT) -> None:
    """Check that both engines have the same logs: bases, op ids, kinds, timestamps and bodies, byte for byte.

    Raises:
        StorageError: they differ; the error says where."""
    wanted, found = source.logs(), target.logs()
    if set(wanted) != set(found):
        odd = ", ".join(str(log) for log in sorted(set(wanted) ^ set(found)))
        raise StorageError(f"the copy differs: only one of the two engines has the logs {odd}")
    meter.begin("comparing", sum(entry_count(state) for state in wanted.values()))
    for log in sorted(wanted):
        _compare_states(log, wanted[log], found[log])
        pairs = zip_longest(_entries(source, log, wanted[log]), _entries(target, log, found[log]))
        for one, other in pairs:
            if one is None or one != other:
                place = one.op_id if one is not None else other and other.op_id
                raise StorageError(f"the copy of log {log} differs at entry {place}")
            meter.add(1, len(one.body))
        if target.op_id_at(log, wanted[log].base.index) != wanted[log].base:
            raise StorageError(f"the copy of log {log} differs at its base {wanted[log].base}")


def _compare_states(log: LogId, wanted: LogState, found: LogState) -> None:
    """Compare the states. A lower commit hint is safe; a higher one would mark entries as committed that may not be."""
    same = (wanted.base, wanted.last, wanted.damage) == (found.base, found.last, found.damage)
    if not same or found.commit_hint > wanted.commit_hint:
        raise StorageError(f"the copy of log {log} differs: {found} instead of {wanted}")


def _entries(engine: WalEngine, log: LogId, state: LogState) -> Iterator[Entry]:
    for batch in batches(engine, log, state.base.index + 1, state.last.index + 1):
        yield from batch
