"""How far a log may be collected (``durability.md`` rule 4).

Pure. The least of these is the highest index that may go:

- what the store has flushed, with the exactly-once results of the same op id;
- the entry before the oldest config that is not yet in durable consensus metadata. All of them are needed: the newest
  may be rolled back, and then the one before it is in force;
- every anchor: an index that is still needed, for example by a copy that is under way;
- what every member of the config is known to hold durably. A member of which nothing is known needs the whole log,
  so after a start the log is kept until the core knows more. ``peers_bytes_max`` bounds what is kept for them: a
  peer that lags further behind needs a copy."""

from collections.abc import Sequence

from stelae.host.log_sizes import LogSizes
from stelae.spi.log import Entry


class LogRetention:
    """What keeps one replica's log. Indexes only rise, except for anchors that are set lower.

    ``base_index`` is where the log began at this start. ``peers_bytes_max`` bounds the bytes that are kept for lagging
    peers, 0: no bound. ``sizes`` has the bytes of what the log held at this start, which count towards the bound."""

    def __init__(
        self,
        flushed_index: int,
        durable_config_index: int,
        base_index: int,
        peers_bytes_max: int = 0,
        sizes: LogSizes | None = None,
    ) -> None:
        self._flushed_index = flushed_index
        self._durable_config_index = durable_config_index
        self._configs: list[int] = []  # Ascending.
        self._anchors: dict[str, int] = {}
        self._all_replicated_index = base_index
        self._peers_bytes_max = peers_bytes_max
        self._sizes = sizes if sizes is not None and peers_bytes_max else LogSizes(base_index)
        self._bound()

    def flushed(self, index: int) -> None:
        """Rows and results up to ``index`` are in a durable superblock."""
        self._flushed_index = max(self._flushed_index, index)

    def appended(self, entries: Sequence[Entry]) -> None:
        """The log ends with these entries now."""
        if self._peers_bytes_max and entries:
            self._sizes.appended(entries)
            self._bound()

    def config_appended(self, index: int) -> None:
        """A config entry is in the log at ``index``, which is above all others."""
        if index > self._durable_config_index:
            self._configs.append(index)

    def config_durable(self, index: int) -> None:
        """The config of ``index`` is in durable consensus metadata, so older ones do not matter any more."""
        self._durable_config_index = max(self._durable_config_index, index)
        self._configs = [found for found in self._configs if found > index]

    def cut(self, from_index: int) -> None:
        """Entries at or above an index are gone from the log: they were replaced, or their append failed."""
        self._configs = [found for found in self._configs if found < from_index]
        self._sizes.cut(from_index)

    def anchor(self, owner: str, index: int) -> None:
        """``owner`` needs the entry at ``index`` and everything after it."""
        self._anchors[owner] = index

    def release(self, owner: str) -> None:
        """``owner`` needs nothing any more. Harmless if it held nothing."""
        self._anchors.pop(owner, None)

    def all_replicated(self, index: int) -> None:
        """Every member of the config holds the log durably up to ``index``."""
        if index > self._all_replicated_index:
            self._all_replicated_index = index
            self._sizes.forget(index)

    def collectable(self) -> int:
        """The highest index that may be collected."""
        held = [self._flushed_index, *(index - 1 for index in self._anchors.values())]
        if self._configs:
            held.append(self._configs[0] - 1)
        # With a bound, the log before the first position that is remembered may go although a peer lacks it.
        beyond = self._sizes.first_index if self._peers_bytes_max else 0
        held.append(max(self._all_replicated_index, beyond))
        return min(held)

    def _bound(self) -> None:
        if self._peers_bytes_max:
            self._sizes.keep(self._peers_bytes_max)
