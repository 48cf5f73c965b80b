"""Clients: writes with identities, reads, retries at whichever node, repetitions on purpose.

A client keeps several writes open, finds the leader by asking around, and repeats every write
under its identity until it is answered. Some answered writes it sends once more, long after, and
some identities it misuses with another payload: both must change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stelae.sim.coverage import Coverage
from stelae.sim.draw import below, between, chance, pick, skewed
from stelae.sim.history import Action, Answer, AnswerKind, History, Operation
from stelae.sim.plan import NODES
from stelae.sim.profile import Profile
from stelae.sim.scheduler import Scheduler, Timer
from stelae.sim.watch import Watch

WRITES = (Action.UPSERT, Action.UPSERT, Action.UPSERT, Action.INSERT, Action.UPDATE, Action.DELETE)
BATCH_MAX = 3


class Tablet(Protocol):
    """How clients reach the replicas: over the network, so answers may never come, or twice."""

    def write(
        self,
        client: int,
        node: int,
        operations: Sequence[Operation],
        first_incomplete: int,
        answer: Callable[[Operation, Answer], None],
    ) -> None:
        """Send writes of one client in one request."""
        ...

    def read(self, client: int, node: int, operation: Operation, answer: Callable[[Answer], None]) -> None:
        """Send one read."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all clients of a run share."""

    scheduler: Scheduler
    tablet: Tablet
    history: History
    watch: Watch
    profile: Profile
    coverage: Coverage


class Client:
    """One client.

    Args:
        number: from 0; clients sit on the network behind the nodes.
        operations_max: how many operations it begins at most; ``None`` for no bound.
    """

    def __init__(self, around: Surroundings, number: int, rng: random.Random, operations_max: int | None) -> None:
        self._around = around
        self._number = number
        self._rng = rng
        self._left = operations_max
        self._name = f"client-{number}"
        self._sequence = 0
        self._values = 0
        self._lag = between(rng, 0, 8)
        self._open: dict[int, Operation] = {}
        self._answered: dict[int, Operation] = {}
        self._target = below(rng, NODES)
        self._reading: Operation | None = None
        self._retry: dict[int, Timer] = {}
        self.stopping = False

    @property
    def name(self) -> str:
        """Client id under which its writes are numbered."""
        return self._name

    @property
    def idle(self) -> bool:
        """True when no write waits for an answer. Reads have no effect and may be given up."""
        return not self._open

    def start(self) -> None:
        """Begin to act, now and then, until ``stopping``."""
        around = self._around
        think_us = skewed(self._rng, *around.profile.think_us)
        around.scheduler.after(think_us, f"{self._name}.act", self._act)

    def _act(self) -> None:
        if self.stopping or self._left == 0:
            return
        if chance(self._rng, self._around.profile.reads):
            self._begin_read()
        elif len(self._open) < self._around.profile.in_flight_max:
            self._begin_writes()
        self.start()

    # -- reads -----------------------------------------------------------------------------------

    def _begin_read(self) -> None:
        """One read at a time; a read that is not answered is given up for a new one."""
        if self._reading is not None and self._reading.answered is None:
            self._target = below(self._rng, NODES)
        operation = self._new(0, Action.READ, below(self._rng, self._around.profile.keys))
        self._reading = operation

        def answered(answer: Answer) -> None:
            if operation.answered is not None or self._reading is not operation:
                return
            self._reading = None
            if answer.kind is AnswerKind.DONE:
                self._settle(operation, answer)
            else:
                self._turn_to(answer)

        self._around.tablet.read(self._number, self._target, operation, answered)

    # -- writes ----------------------------------------------------------------------------------

    def _begin_writes(self) -> None:
        room = self._around.profile.in_flight_max - len(self._open)
        batch = []
        for _ in range(between(self._rng, 1, min(BATCH_MAX, room))):
            self._sequence += 1
            key = below(self._rng, self._around.profile.keys)
            operation = self._new(self._sequence, pick(self._rng, WRITES), key)
            self._open[operation.sequence] = operation
            batch.append(operation)
        self._send(batch)

    def _send(self, batch: Sequence[Operation]) -> None:
        for operation in batch:
            self._arm(operation)
        tablet = self._around.tablet
        tablet.write(self._number, self._target, batch, self._first_incomplete(), self._on_answer)

    def _arm(self, operation: Operation) -> None:
        """Ask again, somewhere else, if there is no answer in time."""
        t_us = self._around.profile.election_timeout_ms * 1_000
        wait_us = between(self._rng, t_us // 2, t_us * 2)
        self._again(operation, wait_us, elsewhere=True)

    def _again(self, operation: Operation, wait_us: int, *, elsewhere: bool) -> None:
        pending = self._retry.pop(operation.sequence, None)
        if pending is not None:
            pending.cancel()

        def resend() -> None:
            self._around.coverage.hit("client.retry")
            if elsewhere:
                self._target = below(self._rng, NODES)
            self._send([operation])

        label = f"{self._name}.retry"
        self._retry[operation.sequence] = self._around.scheduler.after(wait_us, label, resend)

    def _first_incomplete(self) -> int:
        """What the client will never ask for again lies below; it keeps some answers a while."""
        lowest = min(self._open, default=self._sequence + 1)
        first = max(1, lowest - self._lag)
        for sequence in [s for s in self._answered if s < first]:
            self._answered.pop(sequence).settled = True
        return first

    def _on_answer(self, operation: Operation, answer: Answer) -> None:
        self._around.coverage.hit(f"answer.{answer.kind}")
        if answer.kind is AnswerKind.RETRY:
            if operation.answered is None and not operation.imposed:
                self._turn_to(answer)
                self._again(operation, skewed(self._rng, 1_000, 60_000), elsewhere=False)
            return
        if operation.answered is not None or operation.imposed:
            self._around.watch.answered(operation, answer)
            return
        self._settle(operation, answer)
        del self._open[operation.sequence]
        self._answered[operation.sequence] = operation
        self._retry.pop(operation.sequence).cancel()
        self._perhaps_repeat(operation)

    def _perhaps_repeat(self, operation: Operation) -> None:
        """Send an answered write once more, much later; or another one under its identity."""
        if self.stopping or not chance(self._rng, self._around.profile.repeats):
            return
        repeated = operation
        if chance(self._rng, 0.3):
            repeated = Operation(
                client=self._name,
                sequence=operation.sequence,
                action=Action.UPSERT,
                key=operation.key,
                value=self._value(),
                imposed=True,
                settled=True,
            )

        def send() -> None:
            self._around.coverage.hit("client.imposed" if repeated.imposed else "client.repeated")
            first = min(operation.sequence, self._first_incomplete())
            tablet = self._around.tablet
            target = below(self._rng, NODES)
            tablet.write(self._number, target, [repeated], first, self._on_answer)

        delay_us = skewed(self._rng, 1_000, 3_000_000)
        self._around.scheduler.after(delay_us, f"{self._name}.repeat", send)

    # -- both ------------------------------------------------------------------------------------

    def _new(self, sequence: int, action: Action, key: int) -> Operation:
        if self._left is not None:
            self._left = max(0, self._left - 1)
        operation = Operation(client=self._name, sequence=sequence, action=action, key=key, value=self._value())
        self._around.history.begin(operation)
        self._around.watch.invoked(operation)
        return operation

    def _value(self) -> str:
        """A value that no other write of the run carries."""
        self._values += 1
        padding = skewed(self._rng, 0, self._around.profile.value_bytes_max)
        return f"{self._name}.{self._values}." + "x" * padding

    def _settle(self, operation: Operation, answer: Answer) -> None:
        self._around.history.end(operation, answer)
        self._around.watch.answered(operation, answer)

    def _turn_to(self, answer: Answer) -> None:
        """Ask next whom the answer names, else anybody."""
        known = answer.leader is not None and answer.leader != answer.node
        self._target = answer.leader if known and answer.leader is not None else below(self._rng, NODES)
