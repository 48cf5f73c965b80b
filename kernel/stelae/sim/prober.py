"""A client that reads at every change of leadership, when wrong reads are most likely.

As soon as a new leader serves, the prober reads from it. If another node still believes that it
leads, the prober writes through the new leader. Once the write is answered, it reads the same key
from the old leader, whose answer must be at least as new as that write. It also asks the old leader
for a snapshot as of the write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from stelae.sim.draw import below
from stelae.sim.history import AnswerKind, ClientAction, ClientAnswer, ClientOperation, HistoryRow
from stelae.sim.workload import WorkloadContext

NUMBER: Final = 99
"""Position of the prober on the network, above all clients."""

NAME: Final = "prober"

READS: Final = 2
ROUNDS_MAX: Final = 4


class Prober:
    """Reads and writes at every change of leadership in a run.

    Args:
        scan: asks the node at a position for a snapshot at a hybrid timestamp.
    """

    def __init__(self, context: WorkloadContext, rng: random.Random, scan: Callable[[int, int], None]) -> None:
        self._context = context
        self._scan = scan
        self._rng = rng
        self._sequence = 0

    def leader_serves(self, position: int) -> None:
        """Probe a node that has begun to serve as leader."""
        self._context.coverage.hit("prober.leader")
        for _ in range(READS):
            self._read(position, self._key())
        self._challenge(position, ROUNDS_MAX)

    def _challenge(self, position: int, rounds: int) -> None:
        """If another node still believes that it leads, write through the new leader and then read from that node."""
        if rounds == 0 or not self._rivals(position):
            return
        self._sequence += 1
        operation = self._begin(self._sequence, ClientAction.UPSERT, self._key())

        def answered(_: ClientOperation, answer: ClientAnswer) -> None:
            if answer.kind not in (AnswerKind.DONE, AnswerKind.REFUSED) or operation.answered is not None:
                return
            self._end(operation, answer)
            if answer.kind is AnswerKind.REFUSED:
                return
            for rival in self._rivals(position):
                self._context.coverage.hit("prober.rival")
                self._read(rival, operation.rows[0].key)
                self._scan(rival, answer.timestamp)
            self._challenge(position, rounds - 1)

        self._context.tablet.write(NUMBER, position, [operation], 1, answered)

    def _rivals(self, position: int) -> list[int]:
        return [node.position for node in self._context.facts.world.leaders() if node.position != position]

    def _read(self, position: int, key: int) -> None:
        operation = self._begin(0, ClientAction.READ, key)

        def answered(answer: ClientAnswer) -> None:
            if answer.kind is AnswerKind.DONE and operation.answered is None:
                self._end(operation, answer)

        self._context.tablet.read(NUMBER, position, operation, answered)

    def _begin(self, sequence: int, action: ClientAction, key: int) -> ClientOperation:
        row = HistoryRow(key, f"{NAME}.{sequence}", more=sequence)
        schema = self._context.table.schema
        operation = ClientOperation(client=NAME, sequence=sequence, action=action, rows=(row,), schema=schema)
        self._context.history.begin(operation)
        self._context.facts.invoked(operation)
        return operation

    def _end(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        self._context.history.end(operation, answer)
        self._context.facts.answered(operation, answer)

    def _key(self) -> int:
        return below(self._rng, self._context.profile.keys)
