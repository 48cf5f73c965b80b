"""The service ``bench`` of a node: flushes one tablet when it is asked to. Users need none: nodes flush by themselves.

The nodes of ``stelae bench cluster`` run it, because a scan of unflushed rows and a scan of flushed rows are different
things, and a node flushes by size and by time only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stelae.host.node import Node
from stelae.spi.errors import CallerError
from stelae.spi.hooks import ServiceFactory, hookimpl
from stelae.spi.ids import TabletId

SERVICE = "bench"
FLUSH = "bench.flush"


class FlushRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the state of a replica's flushes."""

    tablet_id: TabletId
    begin: bool  #: Begin a flush, if there are rows in memory and none is under way.


class FlushState(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``FlushRequest``."""

    able: bool  #: The store flushes at all.
    flushed_index: int  #: Up to this log index, the rows are in files. 0: nothing was flushed yet.
    unflushed: bool  #: Rows are in memory only.
    busy: bool  #: A flush, or a merge of files, is under way.


class FlushService:
    """A ``Service`` (``stelae.spi.hooks``). Used on the node's event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        """Register the handler."""
        self._node.messenger.serve(FLUSH, self._flush)

    def stop(self) -> None:
        """Do nothing: the messenger closes first."""

    def _flush(self, request: Any) -> None:
        asked = _decoded(request.body)
        replica = self._node.replicas.get(asked.tablet_id)
        if replica is None:
            raise CallerError(f"this node has no tablet {asked.tablet_id!r}")
        flusher, store = replica.flusher, replica.applier.store
        able = "durable_flush" in store.capabilities
        unflushed = able and flusher.superblock.flushed.index < store.applied.index
        if asked.begin and unflushed:
            flusher.flush()
        state = FlushState(able, flusher.superblock.flushed.index, unflushed, flusher.busy)
        request.reply([msgspec.msgpack.encode(state)])


def _decoded(frames: Sequence[Any]) -> FlushRequest:
    try:
        (frame,) = frames
        return msgspec.msgpack.decode(frame, type=FlushRequest)
    except (ValueError, msgspec.MsgspecError) as error:
        raise CallerError(f"a request to flush cannot be read: {error}") from error


@hookimpl
def stelae_services() -> Sequence[ServiceFactory]:
    """Return the service."""
    return [FlushService]
