"""Ends a node whose disk fails and that can no longer serve any replica (ADR 56).

A failed replica does not affect the others. When the last replica of a node has failed, or at a start none of its
tablets could be recovered, the node tests its disk: it writes, syncs and reads a small file in each of its directories.
If the disk works, for example after damage to one file or one failed sync, the node keeps running and reports why its
replicas failed. If the disk does not work, the process ends with an error, so that its supervisor, its masters and its
peers notice.

A node also ends if the ceiling of its clock cannot be saved for long, because then it can give out no timestamps."""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.ports import BlockingPool
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaObserver
from stelae.spi.consensus import Status
from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import TabletId
from stelae.spi.services import Files

log = logging.getLogger(__name__)

PROBE_NAME = ".probe.tmp"
PROBE_BYTES = b"this disk works\n"

CEILING_SAVES_MAX = 10
"""After this many failed saves of the clock's ceiling in a row, a tenth of a second apart, the node ends. The ceiling
is saved ahead of its use, so no request has been refused by then."""

NEXT_STEP = (
    "Start the node again if the disk works again. Otherwise replace the disk, and format its directory with a new "
    "uuid (stelae fs format): the how-to 'Replace a disk' has the steps"
)


class DiskWatch:
    """A ``ReplicaObserver`` that ends the node by the rules of this module, and passes everything on to ``observer``.

    Args:
        observer: gets all transitions.
        files, layout: the disk of the node.
        end: ends the node with an error."""

    def __init__(
        self, observer: ReplicaObserver, files: Files, layout: DirectoryLayout, end: Callable[[StorageError], None]
    ) -> None:
        self._observer = observer
        self._files = files
        self._layout = layout
        self._end = end
        self._replicas: Mapping[TabletId, Replica] = {}
        self._failed: Mapping[TabletId, str] = {}
        self._pool: BlockingPool | None = None
        self._probing = False
        self._unsaved = 0

    def watch(self, replicas: Mapping[TabletId, Replica], failed: Mapping[TabletId, str], pool: BlockingPool) -> None:
        """Set the node's replicas, its tablets that did not start, and the pool in which its disk can be tested."""
        self._replicas, self._failed, self._pool = replicas, failed, pool

    def started(self) -> None:
        """Test the disk if the node has tablets and none of them has started."""
        if self._failed and not self._replicas:
            self._test_disk()

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """As ``ReplicaObserver``."""
        self._observer.status_changed(tablet_id, before, after)

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """As ``ReplicaObserver``. Tests the disk if it was the last replica that had not failed."""
        self._observer.replica_failed(tablet_id, before, reason)
        if not any(not replica.failure for replica in self._replicas.values()):
            self._test_disk()

    def _test_disk(self) -> None:
        if self._pool is None or self._probing:
            return
        self._probing = True
        self._pool.run("disk/probe", lambda: probe(self._files, self._layout), self._probed)

    def ceiling_saved(self, result: object) -> None:
        """Handle the result of a save of the clock's ceiling. The first failure in a row is logged."""
        if not isinstance(result, Exception):
            self._unsaved = 0
            return
        self._unsaved += 1
        if self._unsaved == 1:
            log.warning("the clock's ceiling was not saved, and is saved again reason=%s", result)
        if self._unsaved == CEILING_SAVES_MAX and not isinstance(result, Full):
            fact = f"this node cannot give out timestamps, because its disk fails: {result}. {NEXT_STEP}"
            self._end(StorageError(fact))

    def _probed(self, result: object) -> None:
        self._probing = False
        count = len({*self._replicas, *self._failed})
        if isinstance(result, Full) or not isinstance(result, Exception):
            log.warning("none of the %d replicas can serve; the disk works, so the node keeps running", count)
            return
        fact = f"none of the {count} replicas of this node can serve, and its disk fails: {result}. {NEXT_STEP}"
        self._end(StorageError(fact))


def probe(files: Files, layout: DirectoryLayout) -> None:
    """Write, sync and read a small file in each directory of a node. Raises the error of the first failure. Blocks."""
    for directory in (layout.root, layout.consensus, layout.superblocks, layout.wals, layout.data):
        path = f"{directory}/{PROBE_NAME}"
        with suppress(FileNotFoundError):
            files.remove(path)
        with closing(files.create(path)) as file:
            file.pwritev([PROBE_BYTES], 0)
            file.sync()
            if file.pread(len(PROBE_BYTES), 0) != PROBE_BYTES:
                raise StorageError("the bytes that were read are not those that were written", path=path)
        files.remove(path)
        files.sync_directory(directory)
