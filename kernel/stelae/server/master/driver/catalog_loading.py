"""Loads the catalog from the store of the system tablet, while the replica goes on applying entries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stelae.host.ports import BlockingPool, Timer, Turns
from stelae.server.master.core.batches import records_of
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.driver.ports import SystemReplica
from stelae.spi.errors import Corrupt, StelaeError, StorageError
from stelae.spi.log import Entry
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec

log = logging.getLogger(__name__)

Loaded = Callable[[Catalog, Sequence[Entry]], None]
"""Takes the catalog, and the entries that were applied since it was asked for, which are to be applied on top of it."""


AGAIN_US = 1_000_000
"""The pause after a read that the disk has failed. A disk that fails each one fails the replica within seconds."""


class CatalogLoad:
    """One load of the catalog.

    An entry that the scan has seen and that is applied again changes nothing in the end: batches put whole records, and
    the last one of each is the newest."""

    def __init__(self, replica: SystemReplica, pool: BlockingPool, turns: Turns, loaded: Loaded) -> None:
        self._replica = replica
        self._pool = pool
        self._turns = turns
        self._loaded = loaded
        self._entries: list[Entry] = []
        self._again: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Scan the store off the loop.

        If the disk fails the read, it is repeated after a pause. The replica fails as after other reads of its rows
        (``ReadFaults``), and at once if the catalog cannot be used."""
        applier = self._replica.applier
        applied, store = applier.applied, applier.store
        self._entries, self._again = [], None

        def read() -> list[RowBatch]:
            with store.scan(ScanSpec(order=Order.KEY)) as cursor:
                return list(cursor)

        def finish(pages: list[RowBatch] | Exception) -> None:
            try:
                if isinstance(pages, Exception):
                    raise pages
                catalog = Catalog.load(records_of(pages), applied)
            except (StelaeError, OSError) as error:
                self._failed(error)
                return
            self._replica.read_faults.note(pages)
            self._loaded(catalog, self._entries)

        self._pool.run("master/load", read, finish)

    def stop(self) -> None:
        """Do not read again. A read that has begun still ends."""
        self._stopped = True
        if self._again is not None:
            self._again.cancel()

    def applied(self, entries: Sequence[Entry]) -> None:
        """Keep entries that are applied meanwhile."""
        self._entries += entries

    def _failed(self, error: StelaeError | OSError) -> None:
        """Read again if the disk has failed the read, unless the replica fails or has failed."""
        of_disk = isinstance(error, StorageError) and not isinstance(error, Corrupt)
        if not of_disk and not (isinstance(error, Corrupt) and error.path):
            self._replica.fail(f"the catalog cannot be read: {error}")
            return
        self._replica.read_faults.note(error)
        if of_disk and not self._replica.failure and not self._stopped:
            log.warning("the catalog cannot be read now, and is read again: %s", error)
            self._again = self._turns.call_at(self._turns.now_us() + AGAIN_US, self._read_again)

    def _read_again(self) -> None:
        if not self._replica.failure:
            self.start()
