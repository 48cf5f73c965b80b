"""Loads the catalog from the store of the system tablet, while the replica goes on applying entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.host.ports import BlockingPool
from stelae.server.master.core.batches import records_of
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.driver.ports import SystemReplica
from stelae.spi.errors import StelaeError
from stelae.spi.log import Entry
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec

Loaded = Callable[[Catalog, Sequence[Entry]], None]
"""Takes the catalog, and the entries that were applied since it was asked for, which are to be applied on top of it."""


class CatalogLoad:
    """One load of the catalog.

    An entry that the scan has seen and that is applied again changes nothing in the end: batches put whole records, and
    the last one of each is the newest."""

    def __init__(self, replica: SystemReplica, pool: BlockingPool, loaded: Loaded) -> None:
        self._replica = replica
        self._pool = pool
        self._loaded = loaded
        self._entries: list[Entry] = []

    def start(self) -> None:
        """Scan the store off the loop. The replica fails if the catalog cannot be read."""
        applier = self._replica.applier
        applied, store = applier.applied, applier.store

        def read() -> list[RowBatch]:
            with store.scan(ScanSpec(order=Order.KEY)) as cursor:
                return list(cursor)

        def finish(pages: list[RowBatch] | Exception) -> None:
            try:
                if isinstance(pages, Exception):
                    raise pages
                catalog = Catalog.load(records_of(pages), applied)
            except (StelaeError, OSError) as error:
                self._replica.fail(f"the catalog cannot be read: {error}")
                return
            self._loaded(catalog, self._entries)

        self._pool.run("master/load", read, finish)

    def applied(self, entries: Sequence[Entry]) -> None:
        """Keep entries that are applied meanwhile."""
        self._entries += entries
