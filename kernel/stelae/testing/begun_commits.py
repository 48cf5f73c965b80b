"""Runs an engine's commits in two parts, ``begin`` and ``finish``, as the kernel does with io_uring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stelae.spi.ids import LogId
from stelae.spi.wal import Append, Outcome, WalEngine

Wal = TypeVar("Wal", bound=WalEngine)


def begins_commits(engine_type: type[Wal]) -> bool:
    """Say whether an engine has a ``begin``."""
    return engine_type.begin is not WalEngine.begin


def with_begun_commits(engine_type: type[Wal]) -> type[Wal]:
    """Return the same engine with a ``commit`` that begins and performs every group that ``begin`` accepts."""

    def commit(self: Wal, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        begun = self.begin(group) if sync else None
        return begun.perform() if begun is not None else engine_type.commit(self, group, sync=sync)

    return type(f"Begun{engine_type.__name__}", (engine_type,), {"commit": commit})
