"""The operations of the clients of a run, with their answers. A client process sends one JSON line for each.

All times are microseconds of the machine's monotonic clock since the start of the run. Processes of one machine share
that clock, so the times order the operations of all clients. Values of writes are never repeated."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from stelae.sim.history import ClientAction

FINAL_CLIENT = -1
"""The client number of the reads at the end of a run, when nothing is broken any more."""

REFUSED_ROWS = ("ALREADY_PRESENT", "NOT_FOUND")
"""The codes with which a store answers about the row itself. With any other code, the tablet refused the operation."""


class ChaosOutcome(StrEnum):
    """What a client knows about an operation."""

    DONE = "done"
    """It has an answer: it took effect, or the store refused the row for a reason that depends on its state."""
    REFUSED = "refused"
    """It has no effect, now or later."""
    UNKNOWN = "unknown"
    """It has no answer. A write may take effect at any time after it began, once, or never."""


class ChaosOperation(msgspec.Struct, frozen=True, kw_only=True):
    """What all operations have.

    Attributes:
        client: number of the client process.
        number: number of the operation within its client.
        begun_us: when it was sent.
        ended_us: when its answer came, or when the client gave up.
        outcome: what the client knows.
        error: code of the error, if there was one.
    """

    client: int
    number: int
    begun_us: int
    ended_us: int
    outcome: ChaosOutcome
    error: str = ""

    @property
    def name(self) -> str:
        """The name of the operation in messages: ``CLIENT/NUMBER``, or ``last read``."""
        return "last read" if self.client == FINAL_CLIENT else f"{self.client}/{self.number}"

    @property
    def took_effect(self) -> bool:
        """Whether it is a write that was acknowledged, or a read that was answered."""
        return self.outcome is ChaosOutcome.DONE and not self.error

    @property
    def when(self) -> str:
        """The time of the operation in seconds, and its outcome, for messages."""
        answer = (
            self.error
            or {ChaosOutcome.DONE: "ok", ChaosOutcome.REFUSED: "refused", ChaosOutcome.UNKNOWN: "no answer"}[
                self.outcome
            ]
        )
        return f"at {self.begun_us / 1e6:.3f}-{self.ended_us / 1e6:.3f} s: {answer}"


class RegisterCall(ChaosOperation, frozen=True, kw_only=True, tag="register"):
    """A write or a linearizable read of one key.

    ``value`` is what was written, or what a read returned (``None``: no row). ``timestamp`` is when a write took
    effect, as a hybrid timestamp; 0: not known."""

    action: ClientAction
    key: int
    value: str | None = None
    timestamp: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.action} {self.value!r} {self.when}"


class AppendCall(ChaosOperation, frozen=True, kw_only=True, tag="append"):
    """The insert of a row with a new key, which is the client and the number of the operation."""

    def __str__(self) -> str:
        return f"{self.name} insert {self.when}"


class Increment(ChaosOperation, frozen=True, kw_only=True, tag="increment"):
    """An increment of a counter: the insert of one row with a new key."""

    counter: int

    def __str__(self) -> str:
        return f"{self.name} increment {self.when}"


class CounterRead(ChaosOperation, frozen=True, kw_only=True, tag="counter_read"):
    """A linearizable read of a counter: the number of its rows."""

    counter: int
    count: int = 0

    def __str__(self) -> str:
        return f"{self.name} read {self.count} {self.when}"


class BatchWrite(ChaosOperation, frozen=True, kw_only=True, tag="batch"):
    """A write of all accounts of a group in one call. ``timestamp``: when it took effect; 0: not known.

    Each row has the name of the batch, and the balances have the sum that all batches have."""

    group: int
    timestamp: int = 0

    def __str__(self) -> str:
        return f"{self.name} batch {self.when}"


class SnapshotRow(msgspec.Struct, frozen=True, array_like=True):
    """One account in a snapshot. ``batch`` is the name of the batch that wrote it."""

    account: int
    batch: str
    balance: int


class SnapshotRead(ChaosOperation, frozen=True, kw_only=True, tag="snapshot"):
    """A read of a group as of a hybrid timestamp. The rows are in the order of the accounts."""

    group: int
    at: int
    rows: tuple[SnapshotRow, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} snapshot at {self.at} {self.when}"


AnyOperation: TypeAlias = RegisterCall | AppendCall | Increment | CounterRead | BatchWrite | SnapshotRead

decoder = msgspec.json.Decoder(AnyOperation)
"""Decodes one line of a client process."""


class ChaosFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must not happen.

    Attributes:
        check: the check that found it.
        key: the key, counter, group or node that it is about.
        fact: what is wrong, as a sentence.
        operations: the operations that show it, with their times.
    """

    check: str
    key: str
    fact: str
    operations: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.check}, {self.key}: {self.fact}" if self.key else f"{self.check}: {self.fact}"


def shown(operations: Iterable[ChaosOperation]) -> tuple[str, ...]:
    """Return operations as texts, ordered by start time."""
    return tuple(str(one) for one in sorted(operations, key=lambda one: one.begun_us))
