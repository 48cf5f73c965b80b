"""An engine whose commits are begun, written and finished, as the kernel does where the system writes for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stelae.spi.ids import LogId
from stelae.spi.wal import Append, Outcome, WalEngine

Wal = TypeVar("Wal", bound=WalEngine)


def begins(engine_type: type[Wal]) -> bool:
    """Say whether an engine begins any commit at all."""
    return engine_type.begin is not WalEngine.begin


def by_begun(engine_type: type[Wal]) -> type[Wal]:
    """The same engine, of which ``commit`` goes the way of ``begin`` wherever there is one."""

    def commit(self: Wal, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        begun = self.begin(group) if sync else None
        return begun.perform() if begun is not None else engine_type.commit(self, group, sync=sync)

    return type(f"Begun{engine_type.__name__}", (engine_type,), {"commit": commit})
