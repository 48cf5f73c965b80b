"""The replacements of the mutants in ``client_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from stelae.host.replica_state import ReplicaState
from stelae.spi.log import EntryKind
from stelae.spi.schema import Schema
from stelae.spi.write import OpResult, WriteReply

Original = Callable[..., Any]


# -- the client's writer --------------------------------------------------------------------------


def first_incomplete_of_the_batch(original: Original, request: Any) -> bytes:
    first = request.sequences[0].first_sequence
    return bytes(original(msgspec.structs.replace(request, first_incomplete=first)))


def first_incomplete_above_the_batch(original: Original, request: Any) -> bytes:
    last = request.sequences[-1]
    return bytes(
        original(msgspec.structs.replace(request, first_incomplete=last.first_sequence + max(1, len(last.ops) - 1)))
    )


def assign_new_numbers(original: Original, self: Any, batch: Any, error: Any, *, pause: bool) -> None:
    for op in batch:
        if self._pending.pop(op.sequence, None) is not None:
            self._last_sequence = op.sequence = self._last_sequence + 1
            self._pending[op.sequence] = op
    original(self, batch, error, pause=pause)


def answer_the_next_operation(original: Original, self: Any, batch: Any, reply: Any) -> None:
    moved = [msgspec.structs.replace(answer, first_sequence=answer.first_sequence + 1) for answer in reply.answers]
    original(self, batch, WriteReply(moved))


def report_as_done(original: Original, self: Any, batch: Any, error: Any, *, pause: bool) -> None:
    for op in batch:
        if self._pending.pop(op.sequence, None) is not None and not op.waiter.done():
            op.waiter.set_result(OpResult(0))
    original(self, batch, error, pause=pause)


def drop_when_the_leader_changes(original: Original, self: Any, batch: Any, error: Any, *, pause: bool) -> None:
    if pause:
        original(self, batch, error, pause=pause)


def change_the_payload(original: Original, self: Any, batch: Any, error: Any, *, pause: bool) -> None:
    for op in batch:
        op.operation = msgspec.structs.replace(op.operation, rows=msgspec.Raw(msgspec.msgpack.encode([])))
    original(self, batch, error, pause=pause)


# -- the time of a snapshot -----------------------------------------------------------------------


def settle_any_time(original: Original, scan: Any, replica: Any) -> Any:
    if scan.at is not None and replica.state is ReplicaState.RUNNING:
        return scan.at
    return original(scan, replica)


def settle_without_at_least(original: Original, scan: Any, replica: Any) -> Any:
    if scan.at is None and scan.at_least is not None:
        return replica.applier.timestamp or None
    return original(scan, replica)


def lead_without_a_majority(original: Original, node: Any, replica: Any, at: int, done: Any) -> None:
    """Serve as soon as everything that this node knows to be committed is applied."""
    refusal = replica._refusal(needs_room=False)
    if refusal is None and replica.applier.applied.index >= replica.core.status().commit and at <= node.time.now():
        done(at)
    else:
        original(node, replica, at, done)


def lead_without_waiting(original: Original, node: Any, replica: Any, at: int, done: Any) -> None:
    empty = SimpleNamespace(status=lambda: SimpleNamespace(last=SimpleNamespace(index=0)))
    hurried = SimpleNamespace(core=empty, applier=replica.applier, read_index=replica.read_index)
    original(node, hurried, at, done)


def lead_into_the_future(original: Original, node: Any, replica: Any, at: int, done: Any) -> None:
    far = SimpleNamespace(time=SimpleNamespace(now=lambda: at), config=node.config)
    original(far, replica, at, done)


# -- schema changes -------------------------------------------------------------------------------


def take_rows_of_any_version(original: Original, version: int, schema: Any) -> None:
    return None


def take_schemas_of_any_version(original: Original, self: Any, entries: Any, results: Any, schema: Any) -> None:
    """Give every schema the next version, whatever version it has."""
    version, renumbered = schema.version, []
    for entry in entries:
        if entry.kind is EntryKind.SCHEMA:
            version += 1
            body = msgspec.structs.replace(Schema.from_bytes(entry.body), version=version).to_bytes()
            entry = msgspec.structs.replace(entry, body=body)
        renumbered.append(entry)
    original(self, renumbered, results, schema)
