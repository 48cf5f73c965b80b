"""Ends a node whose disk fails and that has nothing left to serve (ADR 56).

A replica that fails leaves the others alone. When the last one of a node has failed, the node tries its disk: it
writes, syncs and reads back a small file in each of its directories. If the disk works, as after damage or one failed
sync, the node stays, and tells whoever asks why its replicas failed. If it does not, the process ends and says why:
whoever supervises it sees that, and its masters and peers see that it is gone.

A node cannot do without its clock either: one whose ceiling cannot be saved gives out no timestamps."""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.ports import BlockingPool
from stelae.host.replica import Replica, ReplicaObserver
from stelae.spi.consensus import Status
from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import TabletId
from stelae.spi.services import Files

log = logging.getLogger(__name__)

PROBE_NAME = ".probe.tmp"
PROBE_BYTES = b"this disk works\n"

CEILING_SAVES_MAX = 10
"""Saves of the clock's ceiling that fail in a row, a tenth of a second apart, before the node ends. It is saved a step
ahead of use, so nothing has been refused for want of it by then."""

NEXT_STEP = (
    "Start the node again if the disk works again; else replace the disk, format the directory anew "
    "(stelae fs format), and let the masters copy the replicas"
)


class DiskWatch:
    """The node's observer of replicas: it tells ``observer``, and ends the node when the module's rule says so.

    Args:
        observer: is told of everything.
        files, layout: the node's disk.
        end: ends the node with an error."""

    def __init__(
        self, observer: ReplicaObserver, files: Files, layout: DirectoryLayout, end: Callable[[StorageError], None]
    ) -> None:
        self._observer = observer
        self._files = files
        self._layout = layout
        self._end = end
        self._replicas: Mapping[TabletId, Replica] = {}
        self._pool: BlockingPool | None = None
        self._probing = False
        self._unsaved = 0

    def watch(self, replicas: Mapping[TabletId, Replica], pool: BlockingPool) -> None:
        """Say which replicas the node has, and where its disk can be tried."""
        self._replicas, self._pool = replicas, pool

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """As ``ReplicaObserver``."""
        self._observer.status_changed(tablet_id, before, after)

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """As ``ReplicaObserver``; tries the disk if it was the last replica."""
        self._observer.replica_failed(tablet_id, before, reason)
        if self._pool is None or self._probing or any(not replica.failure for replica in self._replicas.values()):
            return
        self._probing = True
        self._pool.run("disk/probe", lambda: probe(self._files, self._layout), self._probed)

    def ceiling_saved(self, result: object) -> None:
        """Take how a save of the clock's ceiling ended. The first failure in a row is logged."""
        if not isinstance(result, Exception):
            self._unsaved = 0
            return
        self._unsaved += 1
        if self._unsaved == 1:
            log.warning("the clock's ceiling is not saved, and is tried again reason=%s", result)
        if self._unsaved == CEILING_SAVES_MAX and not isinstance(result, Full):
            fact = f"this node cannot give out timestamps, since its disk fails: {result}. {NEXT_STEP}"
            self._end(StorageError(fact))

    def _probed(self, result: object) -> None:
        self._probing = False
        count = len(self._replicas)
        if isinstance(result, Full) or not isinstance(result, Exception):
            log.warning("none of the %d replicas of this node can serve; its disk works, so the node stays", count)
            return
        fact = f"none of the {count} replicas of this node can serve, and its disk fails: {result}. {NEXT_STEP}"
        self._end(StorageError(fact))


def probe(files: Files, layout: DirectoryLayout) -> None:
    """Write, sync and read back a file in each directory of a node; raises what fails. Blocks."""
    for directory in (layout.root, layout.consensus, layout.superblocks, layout.wals, layout.data):
        path = f"{directory}/{PROBE_NAME}"
        with suppress(FileNotFoundError):
            files.remove(path)
        with closing(files.create(path)) as file:
            file.pwritev([PROBE_BYTES], 0)
            file.sync()
            if file.pread(len(PROBE_BYTES), 0) != PROBE_BYTES:
                raise StorageError("what was written is not what is read", path=path)
        files.remove(path)
        files.sync_directory(directory)
