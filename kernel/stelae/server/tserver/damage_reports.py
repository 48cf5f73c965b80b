"""Damage that the copies of a node meet: the source fails its replica, so that it does not serve the bytes for ever.

Rows that the source reads itself, as for an export, are known to be damaged. The bytes of a file are only known to be
damaged by the target of the copy, which computes the digest. It reports that at the end of the session. The source then
verifies the file itself: a replica never fails because another node says so."""

from __future__ import annotations

import hashlib
import logging
from contextlib import closing
from functools import partial

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.lifecycle.copy_items import ItemKind, file_of, kind_of
from stelae.protocol.codec import encode
from stelae.protocol.copy_messages import END_COPY, EndCopy
from stelae.spi.copy import CopySession
from stelae.spi.copy_plan import CopyOffer, CopySnapshot
from stelae.spi.errors import Corrupt, Overloaded
from stelae.spi.services import Files
from stelae.spi.wal import SnapshotUnit
from stelae.wire.settings import Lane

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20
"""How much of a file is read at a time, in bytes."""

REPORT_MS = 10_000
"""The deadline of a report. If it is lost, the next copy from that source reports the damage again."""


def report_damage(node: Node, offer: CopyOffer, item: str) -> None:
    """End the session of an offer, and tell its source which item is damaged. The message may be lost."""
    body = encode(EndCopy(session=offer.session, damaged=item))
    deadline_ms = min(REPORT_MS, node.config.wire.deadline_ms_max)
    call = node.messenger.call(offer.source, END_COPY, [body], deadline_ms=deadline_ms, lane=Lane.BULK)
    call.add_done_callback(lambda done: done.cancelled() or done.exception())


class DamageReports:
    """Fails the replicas of one node whose rows are damaged, as copies from it have found. On the event loop.

    One file is verified at a time. Reports that arrive meanwhile are dropped."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._served: dict[str, CopySnapshot] = {}  # By session.
        self.idle = True  #: No file is being verified.

    def served(self, session: CopySession) -> None:
        """Note what a session serves. Sessions that have ended are forgotten by ``keep_only``."""
        self._served[session.id] = session.snapshot

    def keep_only(self, sessions: set[str]) -> None:
        """Forget all other sessions."""
        for ended in self._served.keys() - sessions:
            del self._served[ended]

    def found(self, replica: Replica | None, error: object) -> None:
        """Fail the replica of a snapshot if the error is damage in its log or its rows."""
        if replica is None or not isinstance(error, Corrupt) or error.path is None:
            return
        layout, tablet = self._node.layout, replica.tablet_id
        of_log = error.path.startswith(f"{layout.wals}/")
        of_rows = error.path.startswith(f"{layout.data_of(tablet)}/")
        if (of_log or of_rows) and self._node.replicas.get(tablet) is replica:
            replica.read_faults.note(error, of_log=of_log)

    def reported(self, session: str, item: str) -> None:
        """Verify an item that the target of a session reports as damaged. Fail the replica if it is right."""
        snapshot = self._served.get(session)
        unit = next((unit for unit in snapshot.items if unit.name == item), None) if snapshot is not None else None
        if snapshot is None or unit is None or not self.idle:
            return
        replica = self._node.replicas.get(snapshot.tablet_id)
        if kind_of(item) is not ItemKind.ROWS or replica is None or replica.log != snapshot.log:
            log.warning("copy reported damage tablet=%s item=%s session=%s", snapshot.tablet_id, item, session)
            return  # It was of the spool, which is gone with the session, or of a replica that is gone.
        path = f"{self._node.layout.data_of(snapshot.tablet_id)}/{file_of(item)}"
        try:
            self._node.copy_snapshots.submit(
                partial(_verify, self._node.files, path, unit), partial(self._verified, replica, path)
            )
        except Overloaded:
            return
        self.idle = False

    def _verified(self, replica: Replica, path: str, result: object) -> None:
        self.idle = True
        what = "sound" if result is None else result
        log.warning("copy reported damage tablet=%s path=%s found=%s", replica.tablet_id, path, what)
        self.found(replica, result)


def _verify(files: Files, path: str, unit: SnapshotUnit) -> None:
    """Read a file, and raise ``Corrupt`` if it does not have the digest that the store has recorded for it.

    A file that the store has removed meanwhile is not read by anything, so it says nothing."""
    digest, at = hashlib.sha256(), 0
    try:
        with closing(files.open(path)) as file:
            while data := file.pread(READ_BYTES, at):
                digest.update(data)
                at += len(data)
    except FileNotFoundError:
        return
    if (at, digest.hexdigest()) != (unit.size_bytes, unit.digest):
        fact = f"its {at} bytes do not have the digest that was recorded for {unit.size_bytes} bytes"
        raise Corrupt(f"{fact}; a copy from this node has found it", path=path)
