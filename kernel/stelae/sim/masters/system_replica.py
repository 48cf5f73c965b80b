"""The replica of the system tablet that a simulated master's driver uses: the real one, with faults on its write path.

The added faults are those that the contract of ``Replica.write`` allows at any time: a write may be refused at once,
and a write may return an error although its entry is committed later."""

from __future__ import annotations

import random
from collections.abc import Callable

from stelae.host.apply import Applier
from stelae.host.read_faults import ReadFaults
from stelae.host.rejection_errors import NotProposed
from stelae.host.replica import Replica
from stelae.sim.draw import chance, skewed
from stelae.sim.masters.committed_log import CommittedLog
from stelae.sim.masters.steps import ChangeStep, Strike
from stelae.sim.masters.world import MastersWorld
from stelae.sim.process import Process
from stelae.spi.consensus import Status
from stelae.spi.errors import Overloaded, StelaeError, Unavailable
from stelae.spi.ids import OpId
from stelae.spi.members import MemberChange, TabletConfig
from stelae.spi.write import WriteReply, WriteRequest

REFUSED = 0.03
"""Share of the writes that are refused at once, because a queue is full."""

ANSWER_LOST = 0.06
"""Share of the writes whose caller gets an error although the entry may be committed."""

LOST_US = (0, 20_000)

WriteDone = Callable[[WriteReply | StelaeError], None]


class FaultyReplica:
    """One replica in one run of a master (``SystemReplica``).

    Attributes:
        inner: the real replica.
    """

    def __init__(
        self,
        inner: Replica,
        process: Process,
        rng: random.Random,
        world: MastersWorld,
        committed_log: CommittedLog,
        strike: Strike,
    ) -> None:
        self.inner = inner
        self._process = process
        self._rng = rng
        self._world = world
        self._log = committed_log
        self._strike = strike

    @property
    def on_status(self) -> Callable[[], None] | None:
        """As the replica."""
        return self.inner.on_status

    @on_status.setter
    def on_status(self, call: Callable[[], None] | None) -> None:
        self.inner.on_status = call

    @property
    def failure(self) -> str:
        """As the replica."""
        return self.inner.failure

    @property
    def applier(self) -> Applier:
        """As the replica."""
        return self.inner.applier

    @property
    def read_faults(self) -> ReadFaults:
        """As the replica."""
        return self.inner.read_faults

    @property
    def status(self) -> Status:
        """As the replica."""
        return self.inner.status

    def read_index(self, done: Callable[[int | StelaeError], None]) -> None:
        """As the replica."""
        self.inner.read_index(done)

    def change_members(
        self,
        change: MemberChange,
        done: Callable[[TabletConfig | StelaeError], None],
        *,
        committed_config_id: OpId | None = None,
    ) -> None:
        """As the replica."""
        self.inner.change_members(change, done, committed_config_id=committed_config_id)

    def fail(self, reason: str) -> None:
        """As the replica."""
        self.inner.fail(reason)

    def write(self, request: WriteRequest, done: WriteDone) -> None:
        """As the replica. The armed fault may strike before and after the write."""
        self._strike.pass_step(ChangeStep.PLANNED)
        if self._log.term > self.status.term:
            self._world.coverage.hit("log.proposed_by_deposed")
        if not self._world.healed and chance(self._rng, REFUSED):
            done(Overloaded("the log queue is full"))
            return
        if not self._world.healed and chance(self._rng, ANSWER_LOST):
            done = self._lose_answer(done)
        self.inner.write(request, done)
        self._strike.pass_step(ChangeStep.REPLICATED)

    def _lose_answer(self, done: WriteDone) -> WriteDone:
        """Give the caller an error instead of the answer. Return what takes the answer.

        A proposal that the consensus core did not take is answered in the same turn, by this process. No fault loses
        that answer, so it is passed on."""
        self._world.coverage.hit("log.answer_lost")
        answered = False

        def answer(result: WriteReply | StelaeError) -> None:
            nonlocal answered
            if not answered:
                answered = True
                done(result)

        error = Unavailable("the answer was lost")
        self._process.schedule(1 + skewed(self._rng, *LOST_US), "answer lost", lambda: answer(error))
        return lambda result: answer(result) if isinstance(result, NotProposed) else None
