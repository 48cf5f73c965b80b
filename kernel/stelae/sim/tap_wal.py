"""The tap on a log engine: forwards every call, keeps a model of every log, and reports outcomes and recoveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from stelae.sim.fact_feed import FactFeed
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, Begun, Damage, Durable, LogState, Outcome, WalEngine, WalSnapshot

READ_BYTES_MAX = 1 << 30


class WalTap(WalEngine):
    """One node's log engine with a tap. Behaves exactly like ``inner``.

    Args:
        models: models of the node's logs. They outlive the engine.
        replicated: the tablet whose log is replicated. All other logs are local.
    """

    name: ClassVar[str] = "tap"

    def __init__(
        self, inner: WalEngine, node: ObservedNode, facts: FactFeed, models: dict[LogId, LogModel], replicated: TabletId
    ) -> None:
        self._inner = inner
        self.capabilities = inner.capabilities  # type: ignore[misc]
        self._node = node
        self._facts = facts
        self._models = models
        self._replicated = replicated
        self._damage_found: dict[LogId, Damage] = {}
        self._reused = 0.0
        for log, state in sorted(inner.logs().items()):
            self._check_recovered(log, state)
        for log in sorted(set(models) - set(inner.logs())):
            if models.pop(log).leaving:
                continue
            facts.report("log_durability", f"log {log} of node {node.position} is gone")

    @classmethod
    def open(cls, directory: str, config: Any, services: EngineServices) -> Self:
        """Raise ``TypeError``: a tap needs an engine that is open already."""
        raise TypeError("put a tap on an open engine")

    def logs(self) -> Mapping[LogId, LogState]:
        """As ``inner``. Damage that the tap found when it read a log back counts as found by recovery."""
        found = self._inner.logs()
        if not self._damage_found:
            return found
        return {
            log: msgspec.structs.replace(state, damage=state.damage or self._damage_found.get(log))
            for log, state in found.items()
        }

    def create(self, log: LogId, base: OpId) -> None:
        """As ``inner``. A model of the log is created."""
        self._inner.create(log, base)
        self._models[log] = LogModel(base=base, collectable=base.index)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """As ``inner``. Only a synced commit counts as durable."""
        for log, append in group.items():
            self._models[log].begin(append)
        outcomes = self._inner.commit(group, sync=sync)
        if sync:
            self._committed(group, outcomes)
        return outcomes

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """As ``inner``. Only a finished commit counts as durable."""
        begun = self._inner.begin(group)
        if begun is None:
            return None
        self._facts.coverage.hit("log.begun")
        for log, append in group.items():
            self._models[log].begin(append)

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            outcomes = begun.finish(failures)
            if any(failures):
                self._facts.coverage.hit("log.begun_failed")
            self._committed(group, outcomes)
            return outcomes

        return begun._replace(finish=finish)

    def _committed(self, group: Mapping[LogId, Append], outcomes: Mapping[LogId, Outcome]) -> None:
        for log, outcome in outcomes.items():
            if isinstance(outcome, Durable):
                self._models[log].complete()
            if log == self._node.log_id:
                self._facts.wal(self._node, group[log], outcome)

    def repair(self, log: LogId) -> OpId:
        """As ``inner``. The result is compared with the model, as after a recovery."""
        durable = self._inner.repair(log)
        self._check_recovered(log, self._inner.logs()[log])
        if log == self._node.log_id:
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
        """As ``inner``. From now on, the base of the log may be anywhere up to ``upto``, also after a crash."""
        model = self._models[log]
        model.collectable = max(model.collectable, upto)
        if log.tablet_id == self._replicated:
            self._facts.coverage.hit("log.collected")
            self._facts.collect(self._node, log, upto)
        base = self._inner.collect(log, upto)
        self._count_reused()
        return base

    def drop(self, log: LogId) -> None:
        """As ``inner``. If power is lost meanwhile, the log may or may not be there afterwards."""
        self._leave(log)
        self._inner.drop(log)
        self._models.pop(log, None)

    def copy_aside(self, log: LogId, directory: str) -> bool:
        """As ``inner``."""
        return self._inner.copy_aside(log, directory)

    def set_aside(self, log: LogId, directory: str) -> None:
        """As ``inner``. If power is lost meanwhile, the log may or may not be there afterwards."""
        self._leave(log)
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

    def _leave(self, log: LogId) -> None:
        if (model := self._models.get(log)) is not None:
            model.leaving = True

    def _count_reused(self) -> None:
        """Count if the engine has reused space of collected entries."""
        reused = self._inner.stats().get("segments_reused", 0)
        if reused > self._reused:
            self._facts.coverage.hit("log.space_used_again")
        self._reused = reused

    def _check_recovered(self, log: LogId, state: LogState) -> None:
        """Read back all entries of a log and report them with the model."""
        model = self._models.get(log)
        if model is None:
            # The process ended after the engine created the log and before the tap recorded it.
            model = self._models[log] = LogModel(base=state.base, collectable=state.base.index)
        model.leaving = False
        found: list[Entry] = []
        first, end = state.base.index + 1, state.last.index + 1
        if first < end and state.damage is None:
            try:
                found = self._inner.read(log, first, end, READ_BYTES_MAX)
            except Corrupt as error:
                state = _damaged(state, error)
                assert state.damage is not None
                self._damage_found[log] = state.damage
        if log.tablet_id == self._replicated:
            for entry in found:  # A commit that a crash cut off may have succeeded.
                self._facts.world.entries.setdefault(entry.op_id, entry)
        self._facts.recovered(self._node, log, state, found, model)


def _damaged(state: LogState, error: Corrupt) -> LogState:
    """Return the state of a log with damage that was found only when its entries were read."""
    offset = error.offset or 0
    damage = Damage(path=error.path, offset=offset, last_good=state.base, detail=error.fact)
    return msgspec.structs.replace(state, damage=damage)
