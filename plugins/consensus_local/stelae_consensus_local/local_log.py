"""The log of a local replica, as far as its core must know it: where it ends, what is durable, what is committed.

The core never reads entries. It knows the end of the log, the entries that are not durable yet, and the configs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from stelae.spi.consensus import LogView
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig, decode_config


class BrokenLocalInvariant(Exception):
    """A broken invariant. It is raised inside the core only; ``step`` turns it into ``Fatal``."""


class LocalLog:
    """The end, the durable index, the commit index and the configs of one log.

    Invariants: ``commit <= durable <= last.index``. The entries above ``durable`` are in ``_pending``, in order."""

    __slots__ = ("_above", "_durable_end", "_pending", "commit", "committed_config", "durable", "last")

    def __init__(self, view: LogView, commit: int, committed_config: TabletConfig) -> None:
        self.last = view.last
        self.durable = view.last.index
        self.commit = commit
        self.committed_config = committed_config
        # The log may still hold the committed config and older ones. Only newer ones count.
        self._above = [c for c in view.configs if c.op_id.index > committed_config.op_id.index]
        #: The appends that are not durable: the id of the Ready, the last op id, and the bytes of its entries.
        self._pending: deque[tuple[int, OpId, int]] = deque()
        self._durable_end = view.last

    @property
    def config(self) -> TabletConfig:
        """The config in force: that of the newest config entry in the log, committed or not."""
        return self._above[-1] if self._above else self.committed_config

    @property
    def pending_bytes(self) -> int:
        """The bytes of the entries that are not durable yet."""
        return sum(size for _, _, size in self._pending)

    def append(self, ready_id: int, entries: Sequence[Entry]) -> None:
        """Append the entries of Ready ``ready_id``. A config among them takes effect here."""
        for entry in entries:
            if entry.kind is EntryKind.CONFIG:
                self._above.append(decode_config(entry))
        self.last = entries[-1].op_id
        self._pending.append((ready_id, self.last, sum(entry.size_bytes for entry in entries)))

    def persisted(self, ready_id: int) -> None:
        """Note that every Ready up to ``ready_id`` is durable."""
        while self._pending and self._pending[0][0] <= ready_id:
            self._durable_end = self._pending.popleft()[1]
        self.durable = self._durable_end.index

    def failed(self, durable_index: int) -> None:
        """Cut the log to ``durable_index``, where it ends on disk after a failed write.

        That may be above the durable index so far, because a part of the failed write may have succeeded."""
        if not self.durable <= durable_index <= self.last.index:
            fact = f"the log ends at {durable_index} after a failed write; it was durable up to {self.durable}"
            raise BrokenLocalInvariant(f"{fact} and ended at {self.last}")
        end = self._durable_end
        if durable_index > end.index:
            # The entries of one Ready have the same term.
            term = next(last.term for _, last, _ in self._pending if last.index >= durable_index)
            end = OpId(term, durable_index)
        self.last = self._durable_end = end
        self.durable = durable_index
        self._above = [c for c in self._above if c.op_id.index <= durable_index]
        self._pending.clear()

    def commit_durable(self) -> None:
        """Commit everything that is durable."""
        self.commit = self.durable

    def commit_configs(self) -> bool:
        """Take the newest committed config as ``committed_config``. Returns true if it changed."""
        before = self.committed_config
        while self._above and self._above[0].op_id.index <= self.commit:
            self.committed_config = self._above.pop(0)
        return self.committed_config is not before

    def validate(self) -> None:
        """Check the invariants. Raises ``AssertionError`` if one does not hold."""
        assert self.commit <= self.durable <= self.last.index
        ends = [self._durable_end, *(end for _, end, _ in self._pending)]
        assert ends == sorted(ends) and ends[-1] == self.last
        assert self._durable_end.index == self.durable
        indexes = [c.op_id.index for c in self._above]
        assert indexes == sorted(set(indexes))
        assert not indexes or self.committed_config.op_id.index < indexes[0] <= indexes[-1] <= self.last.index
