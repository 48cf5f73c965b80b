"""Reads all rows of a replica by scans with a small limit, as production's ``OpenScans`` serves them.

Each request follows directly after the answer to the one before. A scan that has reached its limit is followed by a new
one behind its last row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stelae.host.replica import Replica
from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.server.frames import Frames
from stelae.server.tserver.open_scans import OpenScans
from stelae.server.tserver.stopped_replicas import unless_stopped
from stelae.spi.ids import NodeId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema

SENDER = NodeId("reader")


class ShortScans:
    """The scans of one read.

    Args:
        schemas: returns the schemas that the replica may name.
        request: the first request, with a limit.
        at: hybrid timestamp at which the replica serves it.
        done: called with the schema of the rows and the rows, or with the error. It is not called if the schema changes
            meanwhile.
    """

    def __init__(
        self,
        open_scans: OpenScans,
        replica: Replica,
        schemas: Callable[[], Iterable[Schema]],
        request: ScanRequest,
        at: int,
        done: Callable[[tuple[Schema, list[tuple[Any, ...]]] | Exception], None],
    ) -> None:
        assert request.spec.limit
        self._open_scans = open_scans
        self._replica = replica
        self._schemas = schemas
        self._request = request
        self._limit = request.spec.limit
        self._at = at
        self._done = done
        self._schema: Schema | None = None
        self._rows: list[tuple[Any, ...]] = []

    def read(self) -> None:
        """Send the next request."""
        store = self._replica.applier.store
        self._open_scans.read(SENDER, store, self._request, self._at, self._answered, lambda: True)

    def _answered(self, found: Frames | Exception) -> None:
        found = unless_stopped(self._replica, found)
        if isinstance(found, Exception):
            self._done(found)
            return
        page = decode(found[0], ScanPage)
        (schema,) = [one for one in self._schemas() if one.version == page.schema_version]
        if self._schema not in (None, schema):
            return
        self._schema = schema
        if page.row_count:
            self._rows += RowBatch.from_ipc(schema.layout, memoryview(found[1])).to_rows()
        if page.after is None:
            self._done((schema, self._rows))
            return
        assert self._request.spec.limit is not None
        left = self._request.spec.limit - page.row_count or self._limit
        spec = msgspec.structs.replace(self._request.spec, after=page.after, limit=left)
        self._request = msgspec.structs.replace(self._request, spec=spec, at=page.at)
        self.read()
