"""What holds a log: how far it may be collected (``durability.md`` rule 4).

Pure. The least of these is the highest index that may go:

- what the store has flushed, with the exactly-once results of the same op id;
- the entry before the newest config that is not yet in durable consensus metadata;
- every anchor: an index that somebody still needs, such as a peer that lags behind."""


class Retention:
    """Floors of one replica's log. Indexes only rise, except for anchors that are set lower."""

    def __init__(self, flushed_index: int, durable_config_index: int) -> None:
        self._flushed_index = flushed_index
        self._durable_config_index = durable_config_index
        self._configs: list[int] = []
        self._anchors: dict[str, int] = {}

    def flushed(self, index: int) -> None:
        """Rows and results up to ``index`` are in a durable superblock."""
        self._flushed_index = max(self._flushed_index, index)

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

    def anchor(self, owner: str, index: int) -> None:
        """``owner`` needs the entry at ``index`` and everything after it."""
        self._anchors[owner] = index

    def release(self, owner: str) -> None:
        """``owner`` needs nothing any more. Harmless if it held nothing."""
        self._anchors.pop(owner, None)

    def collectable(self) -> int:
        """The highest index that may be collected."""
        held = [self._flushed_index, *(index - 1 for index in self._anchors.values())]
        if self._configs:
            held.append(max(self._configs) - 1)
        return min(held)
