"""What one log on one node must hold, kept beside the log engine by its tap."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Append


@dataclass(slots=True)
class LogModel:
    """The model of one log.

    Attributes:
        base: op id before ``entries``; collection may have moved the engine's base up to
            ``collectable``.
        entries: everything reported durable above ``base``, in order.
        attempt: the append whose outcome is not known to be durable, if any.
        hint: highest commit hint handed over.
        collectable: highest index that the engine was allowed to collect.
        damaged: its disk failed it, by flipped bytes or a failed sync: it may be refused, but must
            not read wrong.
        older: an older copy has taken its place: it must not be used, and nothing is said of what it holds."""

    base: OpId = ZERO
    entries: list[Entry] = field(default_factory=list)
    attempt: Append | None = None
    hint: int = 0
    collectable: int = 0
    damaged: bool = False
    older: bool = False

    def last(self) -> OpId:
        """Op id of the last durable entry."""
        return self.entries[-1].op_id if self.entries else self.base

    def op_id_at(self, index: int) -> OpId | None:
        """Op id that is durable at ``index``, the base included."""
        if index == self.base.index:
            return self.base
        offset = index - self.base.index - 1
        return self.entries[offset].op_id if 0 <= offset < len(self.entries) else None

    def begin(self, append: Append) -> None:
        """An append is handed to the engine."""
        self.attempt = append
        self.hint = max(self.hint, append.commit_hint)

    def succeed(self) -> None:
        """The append under way is durable."""
        if self.attempt is not None:
            self.entries = self.outcome(len(self.attempt.entries))
        self.attempt = None

    def outcome(self, count: int) -> list[Entry]:
        """The entries if the first ``count`` of the append under way were stored, and no more."""
        attempt = self.attempt
        if attempt is None:
            return self.entries
        kept = self.entries
        if attempt.replace_from is not None:
            kept = kept[: max(0, attempt.replace_from - self.base.index - 1)]
        return [*kept, *attempt.entries[:count]]

    def settle(self, base: OpId, found: list[Entry]) -> str | None:
        """Take over what recovery found; say what is wrong with it, or ``None``.

        ``found`` is everything readable above ``base``, the engine's present one. It must be the
        durable entries, or those with a prefix of the append under way done."""
        collected = base.index - self.base.index
        for expected in self._candidates():
            if expected[collected:] == found:
                self.entries = expected
                self.attempt = None
                return None
        return self._explain(found)

    def _candidates(self) -> list[list[Entry]]:
        if self.attempt is None:
            return [self.entries]
        return [self.entries] + [self.outcome(n) for n in range(len(self.attempt.entries) + 1)]

    def _explain(self, found: list[Entry]) -> str:
        last = found[-1].op_id if found else None
        for entry in found:
            expected = self.op_id_at(entry.op_id.index)
            if expected is not None and expected != entry.op_id:
                return f"holds {entry.op_id} where {expected} is durable"
        under_way = self.attempt.entries if self.attempt is not None else ()
        ending = under_way[-1].op_id if under_way else None
        return f"ends at {last}; durable up to {self.last()}, under way up to {ending}"
