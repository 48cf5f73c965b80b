"""Operations of clients for tests of the checks: short to write, with times in seconds."""

from __future__ import annotations

from typing import Any

from stelae.sim.history import ClientAction
from stelae_chaos.batch_check import ACCOUNTS, SUM
from stelae_chaos.operations import (
    AppendCall,
    BatchWrite,
    ChaosOutcome,
    CounterRead,
    Increment,
    RegisterCall,
    SnapshotRead,
    SnapshotRow,
)

DONE, REFUSED, UNKNOWN = ChaosOutcome.DONE, ChaosOutcome.REFUSED, ChaosOutcome.UNKNOWN


def at(begun_s: float, ended_s: float, number: int, outcome: ChaosOutcome = DONE, error: str = "") -> dict[str, Any]:
    """What all operations have."""
    return {
        "client": 0,
        "number": number,
        "begun_us": int(begun_s * 1e6),
        "ended_us": int(ended_s * 1e6),
        "outcome": outcome,
        "error": error,
    }


def write(begun_s: float, ended_s: float, value: str, outcome: ChaosOutcome = DONE) -> RegisterCall:
    """An upsert of key 7."""
    common = at(begun_s, ended_s, int(begun_s * 10), outcome)
    return RegisterCall(action=ClientAction.UPSERT, key=7, value=value, **common)


def read(begun_s: float, ended_s: float, value: str | None) -> RegisterCall:
    """A read of key 7."""
    return RegisterCall(action=ClientAction.READ, key=7, value=value, **at(begun_s, ended_s, int(begun_s * 10)))


def append(number: int, outcome: ChaosOutcome = DONE, error: str = "") -> AppendCall:
    """The insert of a new row."""
    return AppendCall(**at(number, number + 0.5, number, outcome, error))


def increment(begun_s: float, ended_s: float, outcome: ChaosOutcome = DONE, error: str = "") -> Increment:
    """An increment of counter 3."""
    return Increment(counter=3, **at(begun_s, ended_s, int(begun_s * 10), outcome, error))


def counted(begun_s: float, ended_s: float, count: int) -> CounterRead:
    """A read of counter 3."""
    return CounterRead(counter=3, count=count, **at(begun_s, ended_s, int(begun_s * 10)))


def batch(number: int, timestamp: int, outcome: ChaosOutcome = DONE, error: str = "") -> BatchWrite:
    """A batch of group 1."""
    return BatchWrite(group=1, timestamp=timestamp, **at(number, number + 0.5, number, outcome, error))


def rows(number: int) -> list[SnapshotRow]:
    """The rows of a batch."""
    return [SnapshotRow(account, f"0/{number}", SUM // ACCOUNTS) for account in range(ACCOUNTS)]


def snapshot(time: int, found: list[SnapshotRow], begun_s: float = 50) -> SnapshotRead:
    """A snapshot of group 1."""
    return SnapshotRead(group=1, at=time, rows=tuple(found), **at(begun_s, begun_s + 0.5, int(begun_s * 10)))
