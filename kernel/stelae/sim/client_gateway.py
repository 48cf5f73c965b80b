"""Carries client requests to replicas over the virtual network, encoded with production's codecs.

A request or its answer may get lost on the network. The server side is production code: the write path of the replica,
``Replica.change_schema``, ``stelae.server.tserver.scan_time``, which chooses the time of a scan, and
``stelae.server.tserver.lookups``. A request to a node that does not run is lost. Errors travel as the fields that the
real messenger sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from stelae.client.found_parts import found_pages
from stelae.host.replica import Replica
from stelae.protocol.codec import decode, encode
from stelae.protocol.lookup_messages import LookupReply, LookupRequest
from stelae.protocol.tablet_messages import ScanRequest
from stelae.rows.found_rows import plain_rows
from stelae.rows.keys import encode_key
from stelae.server.frames import Frames
from stelae.server.tserver.scan_time import choose_time
from stelae.sim.coverage import Coverage
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import SCHEMA
from stelae.sim.invariants import ObservedLookup, ObservedScan
from stelae.sim.network import Network
from stelae.sim.node import SimNode
from stelae.sim.node_start import TABLET
from stelae.sim.short_scans import ShortScans
from stelae.spi.errors import NoRows, SchemaMismatch, StelaeError, TooOld, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import FoundBatch
from stelae.spi.write import WriteReply, decode_request, encode_reply
from stelae.wire.refusals import error_fields, error_of

Answered: TypeAlias = Callable[[bytes | StelaeError], None]
TimeAnswered: TypeAlias = Callable[[int | StelaeError], None]
RowsAnswered: TypeAlias = Callable[[LookupReply | StelaeError], None]
Serve: TypeAlias = Callable[[Replica], None]

SCAN_ROWS_MAX: Final = 1_000
"""Rows in one batch of a scan: more than the table has keys, so one batch holds all rows."""


class ClientGateway:
    """Sends the requests of clients to the replicas of a run."""

    def __init__(self, nodes: Sequence[SimNode], node_ids: Sequence[NodeId], network: Network, facts: FactFeed) -> None:
        self._nodes = nodes
        self._network = network
        self._facts = facts
        self._coverage: Coverage = facts.coverage
        self.node_ids = node_ids

    def write(self, client: int, node: int, request: bytes, answered: Answered) -> None:
        """Send an encoded ``WriteRequest``; ``answered`` gets the encoded reply."""

        def done(result: WriteReply | StelaeError) -> None:
            answer = encode_reply(result) if isinstance(result, WriteReply) else _received_error(result)
            self._reply(node, client, lambda: answered(answer))

        self._ask(client, node, "write", lambda replica: replica.write(decode_request(request), done), done)

    def alter(self, client: int, node: int, schema: bytes, answered: Callable[[StelaeError | None], None]) -> None:
        """Send the next schema. ``answered`` gets ``SchemaMismatch`` if the change is refused permanently."""

        def done(result: WriteReply | StelaeError) -> None:
            error = _refusal(result) if isinstance(result, WriteReply) else _received_error(result)
            self._reply(node, client, lambda: answered(error))

        serve: Serve = lambda replica: replica.change_schema(Schema.from_bytes(schema), done)  # noqa: E731
        self._ask(client, node, "alter", serve, done)

    def scan(self, client: int, node: int, request: ScanRequest, at_least: int, answered: TimeAnswered) -> None:
        """Send a scan of all rows. ``answered`` gets the hybrid timestamp at which the rows were read.

        Args:
            at_least: lowest hybrid timestamp at which the scan may be served: the reader must see all up to it.
        """
        data = encode(request)

        def refused(error: StelaeError) -> None:
            self._reply(node, client, lambda: answered(_received_error(error)))

        def serve(replica: Replica) -> None:
            scan = decode(data, ScanRequest)

            def chosen(at: int | StelaeError) -> None:
                found = at if isinstance(at, StelaeError) else self._read(node, replica, scan, at, at_least)
                if isinstance(found, StelaeError):
                    refused(found)
                else:
                    self._reply(node, client, lambda: answered(found))

            running = self._nodes[node].running
            if running is not None:
                choose_time(running.read_node, replica, scan, chosen)

        self._ask(client, node, "scan", serve, refused)

    def look_up(self, client: int, node: int, keys: Sequence[int], answered: RowsAnswered) -> None:
        """Look up the latest rows of keys. ``answered`` gets the reply of production's ``Lookups``."""

        def done(_: int, found: Frames | Exception) -> None:
            if isinstance(found, Exception):
                answer: LookupReply | StelaeError = _received_error(_expected(found))
            else:
                answer = decode(found[0], LookupReply)
            self._reply(node, client, lambda: answered(answer))

        # The client knows no version of the schema, so the reply names its columns.
        self._look_up(client, node, LookupRequest(TABLET, _encoded(keys), 0), done)

    def look_up_at(self, client: int, node: int, keys: Sequence[int], at: int) -> None:
        """Look up keys as of a hybrid timestamp. The invariants check what the replica answers."""
        view = self._nodes[node].view
        schema = [*self._facts.world.agreed.schemas.values()][-1]

        def done(floor: int, found: Frames | Exception) -> None:
            if not isinstance(found, Exception):
                reply = decode(found[0], LookupReply)
                self._coverage.hit("lookup.page" if reply.pages else "lookup.served")
                rows = [*reply.rows]
                for page in found_pages(reply, found[1:], schema):
                    rows += plain_rows(FoundBatch(schema, page.rows, page.positions))
                ids = reply.ids or schema.layout.ids
                self._facts.looked_up(view, ObservedLookup(at, floor, ids, tuple(zip(keys, rows, strict=True))))
            elif isinstance(found, TooOld):
                self._coverage.hit("lookup.too_old")
                self._facts.scanned(view, ObservedScan(at, floor, None, found.floor))
            else:
                self._coverage.hit(f"lookup.{_expected(found).code.lower()}")

        self._look_up(client, node, LookupRequest(TABLET, _encoded(keys), schema.version, at), done)

    def scan_shortly(self, client: int, node: int, spec: ScanSpec, at: int) -> None:
        """Read all rows as of a hybrid timestamp by scans with a limit. The invariants check them."""
        sim_node = self._nodes[node]
        view, data = sim_node.view, encode(ScanRequest(TABLET, spec, at))

        def serve(replica: Replica) -> None:
            running, asked, floor = sim_node.running, decode(data, ScanRequest), view.floor
            if running is None:
                return
            open_scans = running.open_scans

            def chosen(served: int | StelaeError) -> None:
                if isinstance(served, StelaeError):
                    done(served)
                else:
                    ShortScans(open_scans, replica, self._facts.world.agreed.schemas.values, asked, served, done).read()

            def done(found: tuple[Schema, list[tuple[Any, ...]]] | Exception) -> None:
                if isinstance(found, TooOld):
                    self._coverage.hit("short_scan.too_old")
                    self._facts.scanned(view, ObservedScan(at, floor, None, found.floor))
                elif isinstance(found, Exception):
                    self._coverage.hit(f"short_scan.{_expected(found).code.lower()}")
                else:
                    self._coverage.hit("short_scan.read")
                    schema, rows = found
                    in_order = rows[::-1] if spec.order is Order.KEY_DESCENDING else rows
                    self._facts.scanned(view, ObservedScan(at, floor, tuple(in_order), schema=schema))

            choose_time(running.read_node, replica, asked, chosen)

        self._ask(client, node, "short_scan", serve, lambda _: None)

    def _look_up(
        self, client: int, node: int, request: LookupRequest, done: Callable[[int, Frames | Exception], None]
    ) -> None:
        """Send a lookup. ``done`` gets the history floor at its arrival, and the answer or the error."""
        data = encode(request)

        def serve(replica: Replica) -> None:
            sim_node = self._nodes[node]
            if sim_node.running is not None:
                asked = decode(data, LookupRequest)
                sim_node.running.lookups.look_up(replica, asked, partial(done, sim_node.view.floor), lambda: True)

        self._ask(client, node, "lookup", serve, partial(done, 0))

    def _read(self, node: int, replica: Replica, scan: ScanRequest, at: int, at_least: int) -> int | StelaeError:
        """Read all rows as of the chosen time and report them to the invariants."""
        view, store = self._nodes[node].view, replica.applier.store
        floor, schema = view.floor, store.schema
        rows = []
        try:
            with store.scan(scan.spec, at) as cursor:
                while (batch := cursor.next_batch(SCAN_ROWS_MAX)) is not None:
                    rows += batch.to_rows()
        except TooOld as error:
            self._coverage.hit("scan.too_old")
            self._facts.scanned(view, ObservedScan(at, floor, None, error.floor))
            return error
        except NoRows as error:
            self._coverage.hit("scan.no_rows")
            return error
        if scan.spec.order is Order.KEY_DESCENDING:
            rows.reverse()
        self._coverage.hit(f"scan.{_kind(scan, at, replica)}")
        self._facts.scanned(view, ObservedScan(at, floor, tuple(rows), schema=schema, at_least=at_least))
        return at

    def _ask(self, client: int, node: int, label: str, serve: Serve, refuse: Callable[[StelaeError], None]) -> None:
        def arrived() -> None:
            replica = self._nodes[node].replica
            if replica is None:
                refuse(Unavailable("the replica has failed"))
            else:
                serve(replica)

        self._network.send((len(self._nodes) + client, node), label, lambda: self._nodes[node].run(arrived))

    def _reply(self, node: int, client: int, deliver: Callable[[], None]) -> None:
        self._network.send((node, len(self._nodes) + client), "reply", deliver)


def _kind(scan: ScanRequest, at: int, replica: Replica) -> str:
    """Name the case of ``scan_time`` by which a scan was served."""
    if scan.at is None:
        return "linearizable" if scan.at_least is None else "fresh"
    return "settled" if at <= replica.applier.timestamp else "led"


def _encoded(keys: Sequence[int]) -> tuple[bytes, ...]:
    return tuple([encode_key(SCHEMA, (key,)) for key in keys])


def _refusal(reply: WriteReply) -> StelaeError | None:
    (answer,) = reply.answers
    return SchemaMismatch(answer.result.detail) if answer.result.refusal else None


def _expected(found: Exception) -> StelaeError:
    """Return the error with which a replica refuses a request. Any other exception is a defect, and is raised."""
    if not isinstance(found, StelaeError):
        raise found
    return found


def _received_error(error: StelaeError) -> StelaeError:
    return error_of(error_fields(error))
