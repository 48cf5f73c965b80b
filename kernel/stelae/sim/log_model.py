"""A model of one log on one node: the entries that the log must hold. The tap on the log engine maintains it."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Append


@dataclass(slots=True)
class LogModel:
    """The model of one log.

    Attributes:
        base: op id before ``entries``. Collection may have moved the base of the engine up to ``collectable``.
        entries: all entries above ``base`` that were reported durable, in order.
        pending: the append that is under way or has failed, so that its entries may or may not be durable.
        hint: highest commit hint that was passed to the engine.
        collectable: highest index up to which the engine was allowed to collect.
        damaged: true after flipped bits or a failed sync. The engine may refuse the log, but must not read wrong
            entries from it.
        is_older_copy: true if the log was replaced by an older copy. A replica must not use the log, and its contents
            are not checked.
        leaving: true while the log is being removed. After a crash it may be gone."""

    base: OpId = ZERO
    entries: list[Entry] = field(default_factory=list)
    pending: Append | None = None
    hint: int = 0
    collectable: int = 0
    damaged: bool = False
    is_older_copy: bool = False
    leaving: bool = False

    def last(self) -> OpId:
        """Return the op id of the last durable entry."""
        return self.entries[-1].op_id if self.entries else self.base

    def op_id_at(self, index: int) -> OpId | None:
        """Return the op id that is durable at ``index``, or ``None``. The base counts as durable."""
        if index == self.base.index:
            return self.base
        offset = index - self.base.index - 1
        return self.entries[offset].op_id if 0 <= offset < len(self.entries) else None

    def begin(self, append: Append) -> None:
        """Record that an append is passed to the engine."""
        self.pending = append
        self.hint = max(self.hint, append.commit_hint)

    def complete(self) -> None:
        """Record that the append under way is durable."""
        if self.pending is not None:
            self.entries = self.outcome(len(self.pending.entries))
        self.pending = None

    def outcome(self, count: int) -> list[Entry]:
        """Return the entries of the log if exactly the first ``count`` entries of the append under way were stored."""
        pending = self.pending
        if pending is None:
            return self.entries
        entries = self.entries
        if pending.replace_from is not None:
            entries = entries[: max(0, pending.replace_from - self.base.index - 1)]
        return [*entries, *pending.entries[:count]]

    def match_recovered(self, base: OpId, found: list[Entry]) -> str | None:
        """Compare the log with what recovery found, and update the model. Return what is wrong, or ``None``.

        Args:
            base: the base of the log in the engine.
            found: all readable entries above ``base``. They must be the durable entries, or the durable entries with a
                prefix of the append under way.
        """
        collected = base.index - self.base.index
        for expected in self._candidates():
            if expected[collected:] == found:
                self.entries = expected
                self.pending = None
                return None
        return self._explain(found)

    def _candidates(self) -> list[list[Entry]]:
        if self.pending is None:
            return [self.entries]
        return [self.entries] + [self.outcome(n) for n in range(len(self.pending.entries) + 1)]

    def _explain(self, found: list[Entry]) -> str:
        last = found[-1].op_id if found else None
        for entry in found:
            expected = self.op_id_at(entry.op_id.index)
            if expected is not None and expected != entry.op_id:
                return f"holds {entry.op_id} where {expected} is durable"
        under_way = self.pending.entries if self.pending is not None else ()
        ending = under_way[-1].op_id if under_way else None
        return f"ends at {last}; durable up to {self.last()}, under way up to {ending}"
