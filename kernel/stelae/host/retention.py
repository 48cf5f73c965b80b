"""What holds a log: how far it may be collected (``durability.md`` rule 4).

Pure. The least of these is the highest index that may go:

- what the store has flushed, with the exactly-once results of the same op id;
- the entry before the newest config that is not yet in durable consensus metadata;
- every anchor: an index that somebody still needs, such as a copy that is under way;
- what the slowest peer has, but no further back than a bound in bytes: a peer that lags more needs a copy."""

from collections import deque
from collections.abc import Sequence

from stelae.spi.log import Entry

MARK_BYTES = 256 << 10
"""How exactly the bytes between two entries are known."""


class Retention:
    """Floors of one replica's log. Indexes only rise, except for anchors that are set lower.

    ``peers_bytes_max`` bounds what is held for peers, 0: not at all. Entries from before this run count for nothing."""

    def __init__(self, flushed_index: int, durable_config_index: int, peers_bytes_max: int = 0) -> None:
        self._flushed_index = flushed_index
        self._durable_config_index = durable_config_index
        self._configs: list[int] = []
        self._anchors: dict[str, int] = {}
        self._peers_have: int | None = None
        self._peers_bytes_max = peers_bytes_max
        self._marks = deque([(0, 0)])  # Index and bytes of all up to it, ascending; beyond the first one there is room.
        self._bytes = 0

    def flushed(self, index: int) -> None:
        """Rows and results up to ``index`` are in a durable superblock."""
        self._flushed_index = max(self._flushed_index, index)

    def appended(self, entries: Sequence[Entry]) -> None:
        """The log ends with these entries now."""
        if not self._peers_bytes_max or not entries:
            return
        self._bytes += sum([entry.size_bytes for entry in entries])
        marks = self._marks
        if self._bytes - marks[-1][1] >= min(MARK_BYTES, self._peers_bytes_max):
            marks.append((entries[-1].op_id.index, self._bytes))
        while len(marks) > 1 and self._bytes - marks[0][1] > self._peers_bytes_max:
            marks.popleft()

    def config_appended(self, index: int) -> None:
        """A config entry is in the log at ``index``."""
        if index > self._durable_config_index:
            self._configs.append(index)

    def config_durable(self, index: int) -> None:
        """The config of ``index`` is in durable consensus metadata; so older ones do not matter."""
        self._durable_config_index = max(self._durable_config_index, index)
        self._configs = [found for found in self._configs if found > index]

    def replaced(self, from_index: int) -> None:
        """The log was cut: configs at or above an index are gone from it."""
        self._configs = [found for found in self._configs if found < from_index]
        while self._marks[-1][0] >= from_index:
            _, self._bytes = self._marks.pop()
            if not self._marks:
                self._marks.append((from_index - 1, self._bytes))
        self._bytes = self._marks[-1][1]

    def anchor(self, owner: str, index: int) -> None:
        """``owner`` needs the entry at ``index`` and everything after it."""
        self._anchors[owner] = index

    def release(self, owner: str) -> None:
        """``owner`` needs nothing any more. Harmless if it held nothing."""
        self._anchors.pop(owner, None)

    def peers_have(self, indexes: Sequence[int]) -> None:
        """Up to where each peer is known to hold the log; none: nobody is fed from here."""
        self._peers_have = min(indexes, default=None)

    def collectable(self) -> int:
        """The highest index that may be collected."""
        held = [self._flushed_index, *(index - 1 for index in self._anchors.values())]
        if self._configs:
            held.append(max(self._configs) - 1)
        if self._peers_have is not None:
            held.append(max(self._peers_have, self._marks[0][0]))
        return min(held)
