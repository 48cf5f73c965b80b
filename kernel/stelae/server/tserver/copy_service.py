"""Serves copies of this node's replicas to other nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_messages import (
    ASK_COPY,
    BEGIN_COPY,
    END_COPY,
    FORMAT_CHARACTERS_MAX,
    REQUEST_BYTES_MAX,
    AskSource,
    BeginCopy,
    EndCopy,
    encode_answer,
)
from stelae.server.frames import only_frame
from stelae.server.tserver.damage_reports import DamageReports
from stelae.server.tserver.loop_calls import LoopCalls, ThreadCalls
from stelae.server.tserver.served_snapshot import SnapshotTaker
from stelae.spi.copy import CopySession, CopySource, SessionKey, SessionView, SourceAnswer
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.errors import CallerError, StelaeError, StorageError, TooLarge
from stelae.spi.ids import NodeId, TabletId, tablet_id
from stelae.wire.refusals import HandlerFailed
from stelae.wire.requests import Request
from stelae.wire.settings import Lane

log = logging.getLogger(__name__)

EXPIRE_US = 500_000
"""How often idle sessions are looked for."""


class CopyService:
    """The serving side of copies on one node. A ``Service`` (``stelae.spi.hooks``).

    It does nothing if the node's settings choose no transport.

    ``calls`` makes the way from the threads that take snapshots to the event loop."""

    def __init__(self, node: Node, calls: Callable[[], ThreadCalls] = LoopCalls) -> None:
        self._node = node
        self._new_calls = calls
        self._numbers = count(1)
        self._timer: Timer | None = None
        self._of_members: set[str] = set()  # The open sessions of nodes that a config here listed.
        self.source: CopySource | None = None
        self.reports = DamageReports(node)

    def start(self) -> None:
        """Make the transport's side, and register the handlers."""
        node, chosen = self._node, self._node.config.copy
        if chosen is None:
            return
        incarnation = node.messenger.identity.incarnation_id
        self.source = chosen.engine.source(chosen.config, node.engines.services, incarnation)
        self._calls = self._new_calls()
        self._taker = SnapshotTaker(node, self._calls, f"{node.layout.serving}/{incarnation}")
        node.copy_snapshots.submit(partial(_remove_leftovers, node, incarnation))
        for kind, handler in ((BEGIN_COPY, self._begin), (ASK_COPY, self._ask), (END_COPY, self._end)):
            node.messenger.serve(kind, handler, lane=Lane.BULK)
        self._expire()

    def stop(self) -> None:
        """End all sessions. Copies that are in progress elsewhere continue from another source."""
        if self.source is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._calls.stop()
        self.source.end_all()

    def sessions(self) -> list[SessionView]:
        """Return the open sessions."""
        return [] if self.source is None else list(self.source.sessions())

    def _begin(self, request: Request) -> None:
        asked = decode(_small(request), BeginCopy)
        tablet_id(asked.tablet_id)
        if not asked.store_engine.isidentifier():
            raise CallerError(f"{asked.store_engine[:80]!r} is not the name of a store engine")
        if len(asked.store_format) > FORMAT_CHARACTERS_MAX:
            raise CallerError(f"the name of a format has {len(asked.store_format)} characters")
        assert self.source is not None, "handlers are registered with a source"
        # A target that changed its store engine needs another snapshot.
        form = f"{asked.store_engine}/{asked.store_format}/{asked.durable_store:d}{asked.as_export:d}"
        key = SessionKey(asked.tablet_id, request.sender, form)
        name = f"copy-{next(self._numbers)}"
        work = partial(self.source.begin, key, partial(self._taker.take, asked, name))
        replica = self._node.replicas.get(asked.tablet_id)

        def begun(session: CopySession) -> None:
            snapshot = session.snapshot
            self.reports.served(session)
            what = (asked.tablet_id, request.sender, session.id, snapshot.base, snapshot.last, len(snapshot.items))
            log.info("copy served tablet=%s peer=%s session=%s base=%s last=%s items=%d", *what)
            if self._is_member(asked.tablet_id, request.sender):
                self._of_members.add(session.id)
            offer = CopyOffer(
                source=self._node.node_id, session=session.id, ttl_ms=session.ttl_ms, snapshot=session.snapshot
            )
            request.reply([encode(offer)])

        def answered(result: Any) -> None:
            self.reports.found(replica, result)
            self._answered(request, begun, result)

        self._node.copy_snapshots.submit(work, answered)

    def _ask(self, request: Request) -> None:
        asked = decode(_small(request), AskSource)
        assert self.source is not None, "handlers are registered with a source"

        def served(answer: SourceAnswer) -> None:
            request.reply(encode_answer(answer))

        work = partial(self.source.answer, request.sender, asked.request)
        self._node.copy_reads.submit(work, partial(self._answered, request, served))

    def _end(self, request: Request) -> None:
        assert self.source is not None, "handlers are registered with a source"
        ended = decode(_small(request), EndCopy)
        if ended.damaged and any(
            (one.id, one.key.peer) == (ended.session, request.sender) for one in self.source.sessions()
        ):
            self.reports.reported(ended.session, ended.damaged)
        self.source.end(request.sender, ended.session)
        request.reply()

    def _answered(self, request: Request, served: Callable[[Any], None], result: Any) -> None:
        if isinstance(result, StelaeError):
            if isinstance(result, StorageError):
                log.warning("copy not served peer=%s kind=%s reason=%s", request.sender, request.kind, result)
            request.refuse(result)
        elif isinstance(result, Exception):
            log.error("a request of a copy failed kind=%s", request.kind, exc_info=result)
            request.refuse(HandlerFailed(f"unexpected error: {result}; the log of the node has its traceback"))
        else:
            served(result)

    def _end_removed(self, source: CopySource) -> None:
        """End the sessions of nodes that were members of the tablet and are none any more.

        Their copies end with that, because no source offers one to a node that it does not know as a member. They would
        keep a slot, and the log here, for replicas that the masters delete later. Sessions of nodes that no config
        here has listed are served: a node that is stopped is copied to, and this replica may not know the newest
        config."""
        views = source.sessions()
        self._of_members &= {view.id for view in views}
        for view in views:
            peer = view.key.peer
            is_member = self._is_member(view.key.tablet_id, peer)
            if is_member:
                self._of_members.add(view.id)
            elif is_member is not None and view.id in self._of_members:
                log.info("copy ended tablet=%s peer=%s reason=it is no member any more", view.key.tablet_id, peer)
                source.end(peer, view.id)

    def _is_member(self, tablet: TabletId, node_id: NodeId) -> bool | None:
        """Return whether a config of the replica here lists a node; ``None``: there is no replica here."""
        replica = self._node.replicas.get(tablet)
        if replica is None:
            return None
        configs = (replica.status.config, replica.status.committed_config)
        return any(config.member(node_id) is not None for config in configs)

    def _expire(self) -> None:
        assert self.source is not None, "the timer runs with a source"
        self.source.expire()
        self._end_removed(self.source)
        sessions = self.source.sessions()
        self.reports.keep_only({session.id for session in sessions})
        self._node.metrics.gauge("copy_sessions", len(sessions))
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + EXPIRE_US, self._expire)


def _small(request: Request) -> memoryview:
    frame = only_frame(request)
    if frame.nbytes > REQUEST_BYTES_MAX:
        raise TooLarge(f"body of {request.kind}", frame.nbytes, REQUEST_BYTES_MAX)
    return frame


def _remove_leftovers(node: Node, incarnation: str) -> None:
    """Remove what an earlier process wrote for copies that it served."""
    directory = node.layout.serving
    if node.files.exists(directory):
        for name in node.files.listdir(directory):
            if name != incarnation:
                node.files.remove_tree(f"{directory}/{name}")
