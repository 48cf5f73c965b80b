"""The configs of a replica: the committed one, and those of newer entries in the log (durability rule 11).

The config in force is that of the newest config entry in the log, committed or not (Raft thesis, 4.1). A config takes
effect when its entry is appended. It is rolled back when that entry is replaced. It is written to the consensus
metadata once the entry is committed."""

from __future__ import annotations

from collections.abc import Iterable

from stelae.spi.members import TabletConfig


class ConfigHistory:
    """The committed config, and the configs of newer entries in the log, ascending by index."""

    __slots__ = ("_above", "committed")

    def __init__(self, committed: TabletConfig, in_log: Iterable[TabletConfig] = ()) -> None:
        # The log may still hold the committed config and older ones. Only newer ones count.
        self.committed = committed
        self._above = [c for c in in_log if c.op_id.index > committed.op_id.index]

    @property
    def current(self) -> TabletConfig:
        """The config in force."""
        return self._above[-1] if self._above else self.committed

    def append(self, config: TabletConfig) -> bool:
        """Add the config of an appended entry. Returns false if it is not above the committed one."""
        if config.op_id.index <= self.committed.op_id.index:
            return False
        self._above.append(config)
        return True

    def cut(self, index: int) -> bool:
        """Roll back every config at or above ``index``. Returns true if the config in force changed."""
        remaining = [c for c in self._above if c.op_id.index < index]
        changed = len(remaining) != len(self._above)
        self._above = remaining
        return changed

    def commit(self, index: int) -> bool:
        """Note that everything up to ``index`` is committed. Returns true if the committed config changed."""
        if not self._above or self._above[0].op_id.index > index:
            return False
        while self._above and self._above[0].op_id.index <= index:
            self.committed = self._above.pop(0)
        return True

    def validate(self, last_index: int) -> None:
        """Check the invariants.

        Raises:
            AssertionError: one does not hold.
        """
        indexes = [c.op_id.index for c in self._above]
        assert indexes == sorted(set(indexes))
        assert not indexes or indexes[0] > self.committed.op_id.index
        assert not indexes or indexes[-1] <= last_index
