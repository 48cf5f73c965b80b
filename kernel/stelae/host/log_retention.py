"""Decides how far a log may be collected (``durability.md`` rule 4). ``flush_and_collect`` collects it. Pure.

A log may be collected up to the lowest of these indexes:

- the index that the store has flushed, with the exactly-once results as of the same op id;
- the index before the oldest config entry that is not yet in durable consensus metadata. All such entries are needed:
  if the newest one is rolled back, the one before it is in force again;
- for each anchor, the index before it. An anchor is an index that is still needed, for example by a copy;
- the index up to which every member of the config is known to have the log durably. A member of which nothing is known
  needs the whole log, so after a start nothing is collected until the core knows more. ``peers_bytes_max`` bounds what
  is kept for lagging peers: a peer that lags further behind needs a copy."""

from collections.abc import Sequence

from stelae.host.log_sizes import LogSizes
from stelae.spi.log import Entry


class LogRetentionLimit:
    """The reasons to keep the entries of one replica's log. Its indexes only rise, except for anchors.

    Args:
        flushed_index: what the store has flushed.
        durable_config_index: index of the config in durable consensus metadata.
        base_index: the log's base at this start.
        peers_bytes_max: the most bytes kept for lagging peers; 0: no bound.
        sizes: sizes of the entries that the log had at this start. They count towards ``peers_bytes_max``."""

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
        """Note that rows and results up to ``index`` are in a durable superblock."""
        self._flushed_index = max(self._flushed_index, index)

    def appended(self, entries: Sequence[Entry]) -> None:
        """Note that these entries were appended to the log."""
        if self._peers_bytes_max and entries:
            self._sizes.appended(entries)
            self._bound()

    def config_appended(self, index: int) -> None:
        """Note that a config entry was appended at ``index``, which is above all other config entries."""
        if index > self._durable_config_index:
            self._configs.append(index)

    def config_durable(self, index: int) -> None:
        """Note that the config at ``index`` is in durable consensus metadata. Older config entries are not needed."""
        self._durable_config_index = max(self._durable_config_index, index)
        self._configs = [found for found in self._configs if found > index]

    def cut(self, from_index: int) -> None:
        """Note that entries at or above an index are not in the log any more: replaced, or their append failed."""
        self._configs = [found for found in self._configs if found < from_index]
        self._sizes.cut(from_index)

    def anchor(self, owner: str, index: int) -> None:
        """Keep the entry at ``index`` and everything after it for ``owner``."""
        self._anchors[owner] = index

    def release(self, owner: str) -> None:
        """Remove the anchor of ``owner``. Harmless if it has none."""
        self._anchors.pop(owner, None)

    def share_anchors(self, earlier: "LogRetentionLimit") -> None:
        """Keep what the anchors of an earlier replica of this log keep. Either of the two releases them."""
        self._anchors = earlier._anchors

    def all_replicated(self, index: int) -> None:
        """Note that every member of the config has the log durably up to ``index``."""
        if index > self._all_replicated_index:
            self._all_replicated_index = index
            self._sizes.forget(index)

    def collectable(self) -> int:
        """Return the highest index that may be collected."""
        limits = [self._flushed_index, *(index - 1 for index in self._anchors.values())]
        if self._configs:
            limits.append(self._configs[0] - 1)
        # With a bound, the log before the first position in ``sizes`` may be collected although a peer lacks it.
        beyond = self._sizes.first_index if self._peers_bytes_max else 0
        limits.append(max(self._all_replicated_index, beyond))
        return min(limits)

    def _bound(self) -> None:
        if self._peers_bytes_max:
            self._sizes.keep(self._peers_bytes_max)
