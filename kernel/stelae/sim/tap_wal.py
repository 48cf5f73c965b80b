"""The tap on a log engine: keeps a model of every log and shows what the engine did with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from stelae.sim.fact_feed import Facts
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, Begun, Damage, Durable, LogState, Outcome, WalEngine, WalSnapshot

READ_BYTES_MAX = 1 << 30


class WalTap(WalEngine):
    """One node's log engine, seen through. Behaves exactly like ``inner``.

    Args:
        models: what each log of this node must hold; outlives the engine.
        replicated: the tablet whose log the replicas agree on; the others are the node's own.
    """

    name: ClassVar[str] = "tap"

    def __init__(
        self, inner: WalEngine, node: ObservedNode, watch: Facts, models: dict[LogId, LogModel], replicated: TabletId
    ) -> None:
        self._inner = inner
        self._node = node
        self._watch = watch
        self._models = models
        self._replicated = replicated
        self._met: dict[LogId, Damage] = {}
        self._reused = 0.0
        for log, state in sorted(inner.logs().items()):
            self._recovered(log, state)
        for log in sorted(set(models) - set(inner.logs())):
            watch.report("log_durability", f"log {log} of node {node.position} is gone")

    @classmethod
    def open(cls, directory: str, config: Any, services: EngineServices) -> Self:
        """A tap is put on an engine that is open already."""
        raise TypeError("put a tap on an open engine")

    def logs(self) -> Mapping[LogId, LogState]:
        """As ``inner``; damage that was met when a log was read back counts as met by whoever opens it."""
        found = self._inner.logs()
        if not self._met:
            return found
        return {
            log: msgspec.structs.replace(state, damage=state.damage or self._met.get(log))
            for log, state in found.items()
        }

    def create(self, log: LogId, base: OpId) -> None:
        """As ``inner``; a model begins."""
        self._inner.create(log, base)
        self._models[log] = LogModel(base=base)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """As ``inner``; only a synced commit counts as durable."""
        for log, append in group.items():
            self._models[log].begin(append)
        outcomes = self._inner.commit(group, sync=sync)
        if sync:
            self._committed(group, outcomes)
        return outcomes

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """As ``inner``; only what is finished counts as durable."""
        begun = self._inner.begin(group)
        if begun is None:
            return None
        self._watch.coverage.hit("log.begun")
        for log, append in group.items():
            self._models[log].begin(append)

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            outcomes = begun.finish(failures)
            if any(failures):
                self._watch.coverage.hit("log.begun_failed")
            self._committed(group, outcomes)
            return outcomes

        return begun._replace(finish=finish)

    def _committed(self, group: Mapping[LogId, Append], outcomes: Mapping[LogId, Outcome]) -> None:
        for log, outcome in outcomes.items():
            if isinstance(outcome, Durable):
                self._models[log].succeed()
            if log.tablet_id == self._replicated:
                self._watch.wal(self._node, group[log], outcome)

    def repair(self, log: LogId) -> OpId:
        """As ``inner``; what it found must be what is durable, or part of what was under way."""
        durable = self._inner.repair(log)
        self._recovered(log, self._inner.logs()[log])
        if log.tablet_id == self._replicated:
            base = self._node.base.index
            self._node.durable = [e.op_id for e in self._models[log].entries if e.op_id.index > base]
        return durable

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """As ``inner``."""
        return self._inner.op_id_at(log, index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """As ``inner``."""
        return self._inner.read(log, first, end, bytes_max)

    def collect(self, log: LogId, upto: int) -> OpId:
        """As ``inner``; the base may have moved so far, after any crash too."""
        model = self._models[log]
        model.collectable = max(model.collectable, upto)
        if log.tablet_id == self._replicated:
            self._watch.coverage.hit("log.collected")
            self._watch.collect(self._node, log, upto)
        base = self._inner.collect(log, upto)
        self._count_reused()
        return base

    def drop(self, log: LogId) -> None:
        """As ``inner``."""
        self._inner.drop(log)
        self._models.pop(log, None)

    def set_aside(self, log: LogId, directory: str) -> None:
        """As ``inner``."""
        self._inner.set_aside(log, directory)
        self._models.pop(log, None)

    def cool(self, log: LogId) -> None:
        """As ``inner``."""
        self._inner.cool(log)

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """As ``inner``."""
        return self._inner.snapshot(log, first)

    def stats(self) -> dict[str, float]:
        """As ``inner``."""
        return self._inner.stats()

    def close(self) -> None:
        """As ``inner``."""
        self._inner.close()

    def _count_reused(self) -> None:
        """Note that space of collected entries was written again, by an engine that does so."""
        reused = self._inner.stats().get("segments_reused", 0)
        if reused > self._reused:
            self._watch.coverage.hit("log.space_used_again")
        self._reused = reused

    def _recovered(self, log: LogId, state: LogState) -> None:
        """Read back everything and show it beside the model."""
        model = self._models.get(log)
        if model is None:
            # The crash came after the log was made and before its maker could say so.
            model = self._models[log] = LogModel(base=state.base)
        found: list[Entry] = []
        first, end = state.base.index + 1, state.last.index + 1
        if first < end and state.damage is None:
            try:
                found = self._inner.read(log, first, end, READ_BYTES_MAX)
            except Corrupt as error:
                state = _damaged(state, error)
                assert state.damage is not None
                self._met[log] = state.damage
        self._watch.recovered(self._node, log, state, found, model)


def _damaged(state: LogState, error: Corrupt) -> LogState:
    """Return the state of a log whose damage was met only when it was read."""
    offset = error.offset or 0
    damage = Damage(path=error.path, offset=offset, last_good=state.base, detail=error.fact)
    return msgspec.structs.replace(state, damage=damage)
