"""Serves the requests of clients to a tablet server: writes, scans, diffs, lookups, and requests for the state of
replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

import msgspec

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.lifecycle.directory_size import bytes_below
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.lookup_messages import LOOKUP, LOOKUP_KEYS_MAX, LookupRequest
from stelae.protocol.tablet_messages import (
    CHECKSUM,
    DESCRIBE,
    DIFF,
    IN_VALUES_MAX,
    SCAN,
    SCAN_PAGE_ROWS_MAX,
    SPLIT_BYTES_MIN,
    SPLIT_KEYS,
    SPLIT_KEYS_MAX,
    STATUS,
    TIMESTAMP_MAX,
    WRITE,
    Checksum,
    ChecksumRequest,
    DescribeRequest,
    Description,
    NoSuchTablet,
    ReplicaReport,
    ScanPage,
    ScanRequest,
    SplitKeys,
    SplitKeysRequest,
    StatusReply,
    StatusRequest,
)
from stelae.server.frames import Frames, only_frame
from stelae.server.tserver.diff_pages import reader_of
from stelae.server.tserver.load_meter import LoadMeter
from stelae.server.tserver.lookups import Lookups
from stelae.server.tserver.open_scans import OpenScans
from stelae.server.tserver.scan_time import choose_time
from stelae.server.tserver.stopped_replicas import refuse_stopped, unless_stopped
from stelae.spi.errors import CallerError, NoRows, StelaeError, StorageError, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.scan import In, Order, ScanSpec
from stelae.spi.write import WriteReply, decode_request, encode_reply
from stelae.wire.refusals import HandlerFailed
from stelae.wire.requests import Request
from stelae.wire.settings import Lane

log = logging.getLogger(__name__)

TABLETS_SHOWN_MAX = 5
"""The most tablets in the text of ``NoSuchTablet``."""

_Message = TypeVar("_Message", bound=msgspec.Struct)
_Found = TypeVar("_Found")


class TabletService:
    """Serves requests to the replicas of one node. A ``Service`` (``stelae.spi.hooks``).

    Args:
        node: its replicas, its messenger and its pool for scans.
        load: counts each operation and each page.
    """

    def __init__(self, node: Node, load: LoadMeter) -> None:
        self._node = node
        self._load = load
        self._open_scans = OpenScans(node, reader_of)
        self._lookups = Lookups(node)
        self._write_us = node.metrics.histogram("write_us")
        self._scan_us = node.metrics.histogram("scan_us")
        self._lookup_us = node.metrics.histogram("lookup_us")

    def start(self) -> None:
        """Register the handlers."""
        serve = self._node.messenger.serve
        serve(WRITE, self._write)
        serve(SCAN, self._scan, lane=Lane.BULK)
        serve(DIFF, self._scan, lane=Lane.BULK)
        serve(LOOKUP, self._look_up)
        serve(DESCRIBE, partial(self._answer, DescribeRequest, self._describe))
        serve(STATUS, partial(self._answer, StatusRequest, self._status))
        serve(CHECKSUM, self._checksum)
        serve(SPLIT_KEYS, self._split_keys)

    def stop(self) -> None:
        """Close the open scans."""
        self._open_scans.stop()

    # -- writes ----------------------------------------------------------------------------------

    def _write(self, request: Request) -> None:
        frame = only_frame(request)
        write = decode_request(frame)
        refuse_system_tablet(write.tablet_id)
        replica = self._replica(write.tablet_id)
        metrics, now_us = self._node.metrics, self._node.turns.now_us
        metrics.count("write_requests")
        operations = sum([len(run.ops) for run in write.sequences])
        self._load.add(operations)
        metrics.count("write_operations", operations)
        metrics.count("write_bytes", len(frame))
        begun_us = now_us()

        def done(result: WriteReply | StelaeError) -> None:
            self._write_us(now_us() - begun_us)
            if isinstance(result, StelaeError):
                metrics.count(f"write_refused_{result.code.lower()}")
                request.refuse(result)
            else:
                request.reply([encode_reply(result)])

        replica.write(write, done)

    # -- scans -----------------------------------------------------------------------------------

    def _scan(self, request: Request) -> None:
        scan = decode(only_frame(request), ScanRequest)
        if not 1 <= scan.rows_max <= SCAN_PAGE_ROWS_MAX:
            raise CallerError(f"rows_max is {scan.rows_max}; from 1 to {SCAN_PAGE_ROWS_MAX}")
        _check_values(scan.spec)
        _check_kind(request.kind, scan)
        replica = self._replica(scan.tablet_id)

        def chosen(at: int | StelaeError) -> None:
            if isinstance(at, StelaeError):
                request.refuse(at)
            else:
                self._read_page(request, replica, scan, at)

        choose_time(self._node, replica, scan, chosen)

    def _read_page(self, request: Request, replica: Replica, scan: ScanRequest, at: int) -> None:
        metrics, now_us = self._node.metrics, self._node.turns.now_us
        begun_us = now_us()

        def done(found: Frames | Exception) -> None:
            self._scan_us(now_us() - begun_us)
            found = unless_stopped(replica, found)
            replica.read_faults.note(found)
            if isinstance(found, Exception):
                metrics.count(f"scan_refused_{getattr(found, 'code', HandlerFailed.code).lower()}")
                _refuse(request, found, replica)
                return
            self._load.add(1)
            metrics.count("scan_pages")
            metrics.count("scan_rows", decode(found[0], ScanPage).row_count)
            metrics.count("scan_bytes", sum(map(len, found)))
            request.reply(found)

        self._open_scans.read(request.sender, replica.applier.store, scan, at, done, lambda: request.open)

    # -- lookups ---------------------------------------------------------------------------------

    def _look_up(self, request: Request) -> None:
        asked = decode(only_frame(request), LookupRequest)
        if not 1 <= len(asked.keys) <= LOOKUP_KEYS_MAX:
            raise CallerError(f"a lookup has {len(asked.keys)} keys; from 1 to {LOOKUP_KEYS_MAX} are allowed")
        replica = self._replica(asked.tablet_id)
        metrics, now_us = self._node.metrics, self._node.turns.now_us
        begun_us = now_us()
        metrics.count("lookup_requests")
        metrics.count("lookup_keys", len(asked.keys))
        self._load.add(len(asked.keys))

        def done(found: Frames | Exception) -> None:
            self._lookup_us(now_us() - begun_us)
            replica.read_faults.note(found)
            if isinstance(found, Exception):
                metrics.count(f"lookup_refused_{getattr(found, 'code', HandlerFailed.code).lower()}")
                _refuse(request, found, replica)
            else:
                request.reply(found)

        self._lookups.look_up(replica, asked, done, lambda: request.open)

    # -- state of replicas -----------------------------------------------------------------------

    def _answer(self, kind: type[_Message], handler: Callable[[_Message], msgspec.Struct], request: Request) -> None:
        request.reply([encode(handler(decode(only_frame(request), kind)))])

    def _describe(self, asked: DescribeRequest) -> Description:
        replica = self._replica(asked.tablet_id)
        refuse_stopped(replica)
        status = replica.status
        members = tuple((m.node_id, m.address) for m in status.config.members)
        if not members:
            raise Unavailable(f"the replica of tablet {asked.tablet_id} on this node is empty: it waits for its leader")
        return Description(replica.applier.store.schema.to_bytes(), status.leader, members, status.config.op_id)

    def _status(self, asked: StatusRequest) -> StatusReply:
        return StatusReply(tuple(_report(r) for _, r in sorted(self._node.replicas.items())))

    def _checksum(self, request: Request) -> None:
        asked = decode(only_frame(request), ChecksumRequest)
        replica = self._replica(asked.tablet_id)
        store = replica.applier.store
        applied, at = replica.applier.applied, replica.applier.timestamp
        if not at:
            raise Unavailable("the replica has applied no entry yet, so its rows have no timestamp; try again")
        if asked.at is not None:
            if asked.at > at:
                raise Unavailable(f"the replica has applied entries only up to {applied}; try again")
            at = asked.at

        version = store.schema.version

        def work() -> str:
            found = store.checksum(at)
            if store.schema.version != version:
                raise Unavailable("the table was altered while its rows were read; try again")
            return found

        def done(result: str | Exception) -> None:
            result = unless_stopped(replica, result)
            replica.read_faults.note(result)
            if isinstance(result, Exception):
                _refuse(request, result, replica)
            else:
                request.reply([encode(Checksum(result, applied, at, version))])

        self._read(request, f"checksum/{asked.tablet_id}", work, done)

    def _split_keys(self, request: Request) -> None:
        asked = decode(only_frame(request), SplitKeysRequest)
        if asked.bytes_max < SPLIT_BYTES_MIN:
            raise CallerError(f"parts of {asked.bytes_max} bytes are too small; ask for {SPLIT_BYTES_MIN} or more")
        replica = self._replica(asked.tablet_id)
        store = replica.applier.store

        def work() -> SplitKeys:
            found = store.split_keys(asked.key_from, asked.key_until, asked.bytes_max)
            every = -(-len(found) // SPLIT_KEYS_MAX) or 1
            size_bytes = bytes_below(self._node.files, self._node.layout.data_of(asked.tablet_id))
            return SplitKeys(tuple(found[every - 1 :: every]), size_bytes + store.memory_bytes())

        def done(found: SplitKeys | Exception) -> None:
            found = unless_stopped(replica, found)
            replica.read_faults.note(found)
            if isinstance(found, Exception):
                _refuse(request, found, replica)
            else:
                request.reply([encode(found)])

        self._read(request, f"split_keys/{asked.tablet_id}", work, done)

    def _read(
        self, request: Request, key: str, work: Callable[[], _Found], done: Callable[[_Found | Exception], None]
    ) -> None:
        """Read a store on the pool for scans, unless the client gives up before a thread comes to it."""

        def deliver(found: _Found | Exception | None) -> None:
            if found is not None:
                done(found)

        self._node.scans.run(key, lambda: work() if request.open else None, deliver)

    def _replica(self, tablet_id: TabletId) -> Replica:
        replica = replica_of(self._node, tablet_id)
        if replica.log_only:
            raise NoRows("the replica on this node is a witness: it keeps the log and has no rows; ask another one")
        return replica


def _check_values(spec: ScanSpec) -> None:
    """Check the values of the predicates, whose types the codec does not know.

    A value that contains others may be nested so deeply that it can be decoded, and not encoded again as a part of the
    key of an open scan. That would raise in a turn of the replica, which ends the replica.

    Raises:
        CallerError: there are too many, or one is a list or a map.
    """
    for one in spec.predicates:
        found = one.values if isinstance(one, In) else (getattr(one, "value", None), getattr(one, "prefix", None))
        if any(isinstance(value, list | dict) for value in found):
            raise CallerError(f"a predicate of column {one.column} has a list or a map where one value is needed")
    values = max((len(one.values) for one in spec.predicates if isinstance(one, In)), default=0)
    if values > IN_VALUES_MAX:
        raise CallerError(f"'in' has {values} values, at most {IN_VALUES_MAX} are allowed; use several scans")


def _check_kind(kind: str, scan: ScanRequest) -> None:
    """Check that a request for a scan has no ``since``, and that a request for a diff has one and no filters.

    Raises:
        CallerError: it is not so, or ``since`` is no hybrid timestamp.
    """
    if (kind == DIFF) != (scan.since is not None):
        raise CallerError(f"{DIFF} needs since, and no other request may have it; this request is {kind}")
    if scan.since is not None and not 0 <= scan.since <= TIMESTAMP_MAX:
        raise CallerError(f"since is {scan.since}; hybrid timestamps are from 0 to {TIMESTAMP_MAX}")
    if scan.since is not None and (scan.spec.predicates or scan.spec.order is Order.KEY_DESCENDING):
        raise CallerError("a diff takes no predicates, and returns rows in ascending order of keys only")


def refuse_system_tablet(tablet_id: TabletId) -> None:
    """Refuse a change of the system tablet, whose rows are the catalog and which only masters write.

    Raises:
        CallerError: ``tablet_id`` is the system tablet.
    """
    if tablet_id == SYSTEM_TABLET:
        raise CallerError("only masters write the system tablet; send the change of a table to the masters")


def replica_of(node: Node, tablet_id: TabletId) -> Replica:
    """Return a node's replica of a tablet.

    Raises:
        Unavailable: the replica failed to start, or has not started yet.
        NoSuchTablet: the node has no replica of the tablet.
    """
    replica = node.replicas.get(tablet_id)
    if replica is not None:
        return replica
    failure = node.failed_tablets.get(tablet_id)
    if failure is not None:
        raise Unavailable(f"the replica has failed: {failure}")
    if isinstance(node.tablets, TabletLoader) and tablet_id in node.tablets.delayed:
        raise Unavailable(f"tablet {tablet_id} is not created yet: {node.tablets.delayed[tablet_id]}")
    raise NoSuchTablet(f"no tablet {tablet_id[:80]!r} on this node; it has: {_some(node.replicas)}")


def _some(tablets: Collection[TabletId]) -> str:
    """Return the first tablets by name, for a text that is sent to many clients: a node may have thousands."""
    more = len(tablets) - TABLETS_SHOWN_MAX
    shown = [*sorted(tablets)[:TABLETS_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]
    return ", ".join(shown) or "none"


def _refuse(request: Request, error: Exception, replica: Replica) -> None:
    """Refuse a request whose read of a store failed. A defect of a store fails only this request.

    If damage has made the replica FAILED, the error is ``Unavailable``, so that the client tries another replica."""
    if isinstance(error, StorageError) and replica.state is ReplicaState.FAILED:
        error = Unavailable(f"the replica has failed: {error}")
    elif not isinstance(error, StelaeError):
        log.error("the store raised an unexpected error kind=%s", request.kind, exc_info=error)
        error = HandlerFailed(f"the store raised an unexpected error in {request.kind}; the node's log has the details")
    request.refuse(error)


def _report(replica: Replica) -> ReplicaReport:
    status = replica.core.status()
    return ReplicaReport(
        tablet_id=replica.tablet_id,
        node_id=status.node_id,
        state=replica.state.value,
        role=status.role.value,
        term=status.term,
        leader=status.leader,
        last=status.last,
        durable_index=status.durable_index,
        commit=status.commit,
        applied=replica.applier.applied.index,
        failure=replica.failure,
        match_indexes=tuple((peer.node_id, peer.match_index) for peer in status.peers),
    )
