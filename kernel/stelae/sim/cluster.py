"""The simulated cluster: three nodes, the network between them, and the entry point for client requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.host.replica import Replica
from stelae.protocol.lookup_messages import LookupReply
from stelae.rows.keys import encode_key
from stelae.rows.operation_encoding import sequence_ranges_of
from stelae.sim.client_gateway import ClientGateway
from stelae.sim.coverage import Coverage
from stelae.sim.draw import stream
from stelae.sim.engines import SimEngines
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import SCHEMA, AnswerKind, ClientAnswer, ClientOperation
from stelae.sim.invariants.convergence import ReplicaContents
from stelae.sim.network import Network
from stelae.sim.node import SimNode
from stelae.sim.node_links import FramesInFlight
from stelae.sim.node_start import TABLET, NodeContext
from stelae.sim.profile import Profile
from stelae.sim.range_counts import count_answered, count_sent
from stelae.sim.scheduler import Scheduler
from stelae.sim.table import VALUE, RowCells, encode_write
from stelae.spi.errors import NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import ClientId, NodeId
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import TabletStore
from stelae.spi.write import OpResult, WriteReply, WriteRequest, decode_request, encode_request

EARLY_FLUSH_US = 300
"""Time between two flush requests to a replica that has applied entries which are not durable in its log.

It is short, so that several requests fall into one sync."""

REFUSALS = {
    "PAYLOAD_MISMATCH": AnswerKind.MISMATCH,
    "STALE_SEQUENCE": AnswerKind.STALE,
    "SCHEMA_MISMATCH": AnswerKind.REFUSED,
}


class SimCluster:
    """All nodes of a run. Implements ``workload.WorkloadTablet``."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        engines: SimEngines,
        scheduler: Scheduler,
        facts: FactFeed,
        coverage: Coverage,
    ) -> None:
        self._facts = facts
        self._coverage = coverage
        self._scheduler = scheduler
        self._early_flushes: set[int] = set()
        self.network = Network(scheduler, stream(seed, "network"), profile, coverage)
        self._reads_by_lookup = profile.lookups
        self._node_ids = [node.node_id for node in facts.world.nodes]
        context = NodeContext(
            seed=seed,
            profile=profile,
            engines=engines,
            network=self.network,
            coverage=coverage,
            facts=facts,
            node_ids=self._node_ids,
            arrive=self._arrive,
        )
        self.nodes = [
            SimNode(context, scheduler, view, profile.clock_error_us[view.position]) for view in facts.world.nodes
        ]
        self.gateway = ClientGateway(self.nodes, self._node_ids, self.network, facts)

    def start(self) -> None:
        """Start every node."""
        for node in self.nodes:
            node.start()

    def stop(self) -> None:
        """End the process of every node, because the run is over."""
        for node in self.nodes:
            node.stop()

    def replica_contents(self) -> list[ReplicaContents]:
        """Return the contents of all live members that have rows."""
        found = []
        for view in self._facts.world.members():
            replica = self.nodes[view.position].replica
            if replica is None or replica.log_only:
                continue
            applier = replica.applier
            found.append(
                ReplicaContents(
                    position=view.position,
                    applied=applier.applied.index,
                    checksum=applier.store.checksum(),
                    results=applier.results.dump(),
                    rows=_rows(applier.store),
                )
            )
        return found

    def is_converged(self) -> bool:
        """Return true if all members that are not lost serve, have the same durable log, and have applied it."""
        members = [self.nodes[view.position] for view in self._facts.world.members()]
        replicas = [node.replica for node in members if not node.given_up]
        ends = set()
        for replica in replicas:
            if replica is None or not replica.status.serving:
                return False
            status = replica.status
            ends.add((status.last, status.last.index - status.durable_index))
            ends.add((replica.applier.applied, 0))
        return len(ends) == 1

    # -- requests at critical moments ------------------------------------------------------------

    def request_early_read_index(self, position: int) -> None:
        """Ask the core of a leader that does not serve yet for a read index.

        The replica itself would refuse such a request, so it goes to the core directly."""

        def ask() -> None:
            replica = self.nodes[position].replica
            if replica is not None and not replica.status.serving:
                self._coverage.hit("read.before_serving")
                replica.deliver(replica.reads.request(_ignore))

        self._scheduler.after(0, "read.before_serving", lambda: self.nodes[position].run(ask))

    def request_early_flush(self, position: int) -> None:
        """Ask a replica to flush, repeatedly, while it has applied entries that are not durable in its log.

        The replica must refuse each time."""
        if position not in self._early_flushes:
            self._early_flushes.add(position)
            self._scheduler.after(EARLY_FLUSH_US, "flush.asked_ahead", lambda: self._repeat_early_flush(position))

    def _repeat_early_flush(self, position: int) -> None:
        self._early_flushes.discard(position)
        node = self.nodes[position]
        replica = node.replica
        if replica is None or self._facts.world.holds(node.view, replica.applier.applied):
            return

        def ask() -> None:
            # Calls that were held back during a pause ran first, so check the condition again.
            if not self._facts.world.holds(node.view, replica.applier.applied):
                self._coverage.hit("flush.asked_ahead")
                replica.flusher.flush()

        node.run(ask)
        self.request_early_flush(position)

    # -- WorkloadTablet --------------------------------------------------------------------------

    def write(
        self,
        client: int,
        node: int,
        operations: Sequence[ClientOperation],
        first_incomplete: int,
        answer: Callable[[ClientOperation, ClientAnswer], None],
    ) -> None:
        """Send writes of one client, in one request for each version of the schema that they were made for."""
        for version in sorted({operation.schema.version for operation in operations}):
            same_version = [operation for operation in operations if operation.schema.version == version]
            self._write(client, node, same_version, first_incomplete, answer)

    def _write(
        self,
        client: int,
        node: int,
        operations: Sequence[ClientOperation],
        first_incomplete: int,
        answer: Callable[[ClientOperation, ClientAnswer], None],
    ) -> None:
        request = _request(operations, first_incomplete)
        count_sent(self._coverage, operations, request.sequences)
        data = encode_request(request)

        def answered(result: WriteReply | StelaeError) -> None:
            if isinstance(result, Overloaded) and "memory" in str(result):
                self._coverage.hit("store.pushed_back")
            answers = self._answers(node, operations, result)
            count_answered(self._coverage, request.sequences, {asked.sequence: found.kind for asked, found in answers})
            self._reply(node, client, lambda: _answer_all(answer, answers))

        def serve() -> None:
            replica = self.nodes[node].replica
            if replica is not None:
                replica.write(decode_request(data), answered)

        self.network.send((len(self.nodes) + client, node), "write", lambda: self.nodes[node].run(serve))

    def read(self, client: int, node: int, operation: ClientOperation, answer: Callable[[ClientAnswer], None]) -> None:
        """Send one read: a lookup, or a scan of one row."""
        if not self._reads_by_lookup:
            self._read_by_scan(client, node, operation, answer)
            return

        def answered(found: LookupReply | StelaeError) -> None:
            if isinstance(found, StelaeError):
                answer(self._retry(node, found))
            else:
                answer(ClientAnswer(kind=AnswerKind.DONE, node=node, value=_found_value(found)))

        self.gateway.look_up(client, node, [operation.rows[0].key], answered)

    # -- inside ----------------------------------------------------------------------------------

    def _read_by_scan(
        self, client: int, node: int, operation: ClientOperation, answer: Callable[[ClientAnswer], None]
    ) -> None:
        def serve() -> None:
            replica = self.nodes[node].replica
            if replica is None:
                return

            def confirmed(result: int | StelaeError) -> None:
                if isinstance(result, StelaeError):
                    found = self._retry(node, result)
                else:
                    found = self._read_row(replica, node, operation.rows[0].key, result)
                self._reply(node, client, lambda: answer(found))

            replica.read_index(confirmed)

        self.network.send((len(self.nodes) + client, node), "read", lambda: self.nodes[node].run(serve))

    def _read_row(self, replica: Replica, node: int, key: int, at: int) -> ClientAnswer:
        """Read the value of a key. As on a server, a read that finds damage is noted, and another replica is asked."""
        try:
            value = _value(replica.applier.store, key, at)
        except StelaeError as error:
            replica.read_faults.note(error)
            return self._retry(node, Unavailable(str(error)))
        return ClientAnswer(kind=AnswerKind.DONE, node=node, value=value)

    def _arrive(self, target: int, message: FramesInFlight) -> None:
        node = self.nodes[target]
        running = node.running
        if running is not None:
            node.run(lambda: running.link.receive(message))

    def _reply(self, node: int, client: int, deliver: Callable[[], None]) -> None:
        self.network.send((node, len(self.nodes) + client), "reply", deliver)

    def _answers(
        self, node: int, operations: Sequence[ClientOperation], result: WriteReply | StelaeError
    ) -> list[tuple[ClientOperation, ClientAnswer]]:
        if isinstance(result, StelaeError):
            return [(operation, self._retry(node, result)) for operation in operations]
        by_sequence = {a.first_sequence + n: a.result for a in result.answers for n in range(a.count)}
        return [
            (operation, self._answer(node, by_sequence[operation.sequence]))
            for operation in operations
            if operation.sequence in by_sequence
        ]

    def _answer(self, node: int, result: OpResult) -> ClientAnswer:
        if result.refusal:
            kind = REFUSALS.get(result.refusal, AnswerKind.RETRY)
            return ClientAnswer(kind=kind, node=node)
        errors = tuple((error.row, error.code.name) for error in result.errors)
        return ClientAnswer(kind=AnswerKind.DONE, node=node, errors=errors, timestamp=result.timestamp)

    def _retry(self, node: int, error: StelaeError) -> ClientAnswer:
        leader = None
        if isinstance(error, NotLeader) and error.leader is not None:
            leader = self._node_ids.index(NodeId(error.leader))
        return ClientAnswer(kind=AnswerKind.RETRY, node=node, leader=leader)


def _request(operations: Sequence[ClientOperation], first_incomplete: int) -> WriteRequest:
    numbered = [(asked.sequence, encode_write(asked)) for asked in operations]
    client, version = ClientId(operations[0].client), operations[0].schema.version
    return WriteRequest(TABLET, client, first_incomplete, version, sequence_ranges_of(numbered))


def _value(store: TabletStore, key: int, at: int) -> str | None:
    low = encode_key(SCHEMA, (key,))
    high = encode_key(SCHEMA, (key + 1,))
    with store.scan(ScanSpec(columns=(VALUE,), key_from=low, key_until=high), at) as cursor:
        rows = [row for batch in cursor for row in batch.to_rows()]
    return str(rows[0][0]) if rows else None


def _found_value(reply: LookupReply) -> str | None:
    (row,) = reply.rows
    return None if row is None else str(row[(reply.ids or ()).index(VALUE)])


def _rows(store: TabletStore) -> dict[int, RowCells]:
    with store.scan(ScanSpec(order=Order.KEY)) as cursor:
        return {row[0]: row[1:] for batch in cursor for row in batch.to_rows()}


def _answer_all(
    answer: Callable[[ClientOperation, ClientAnswer], None], answers: list[tuple[ClientOperation, ClientAnswer]]
) -> None:
    for asked, found in answers:
        answer(asked, found)


def _ignore(_result: int | StelaeError) -> None:
    """Drop the read index: no caller waits for it."""
