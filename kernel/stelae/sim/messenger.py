"""The messenger of a simulated client: implements the ports of production's writer in virtual time.

As with the real messenger, every attempt has one outcome: the first answer, or an error if no answer arrives in time.
Later answers are dropped. Some attempts end early, as after a lost connection; the node may have received the
request."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from stelae.client.writer_core import ATTEMPT_MS
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.sim.client_gateway import ClientGateway
from stelae.sim.coverage import Coverage
from stelae.sim.draw import between, chance
from stelae.sim.profile import Profile
from stelae.sim.scheduler import Scheduler
from stelae.spi.errors import DeadlineExceeded, StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer

CONNECTION_LOST: Final = 0.4
"""Share of the attempts that end early if no answer arrives soon."""


class VirtualMessenger:
    """The ports of one writer (``stelae.client.writer_core.WriterPorts``).

    Attributes:
        answering: position of the node whose answer is being processed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        gateway: ClientGateway,
        number: int,
        rng: random.Random,
        profile: Profile,
        coverage: Coverage,
    ) -> None:
        self._scheduler = scheduler
        self._gateway = gateway
        self._number = number
        self._rng = rng
        self._profile = profile
        self._coverage = coverage
        self._label = f"writer-{number}"
        self.answering = 0

    def now_s(self) -> float:
        """Return the virtual seconds since the start of the run."""
        return self._scheduler.now_us / 1_000_000

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """Run ``call`` after a delay in virtual seconds."""
        return self._scheduler.after(int(delay_s * 1_000_000), f"{self._label}.later", call)

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` as the next event."""
        self._scheduler.after(0, f"{self._label}.turn", call)

    def send(self, to: NodeId, request: bytes, answered: Callable[[Buffer | StelaeError], None]) -> None:
        """Send a request. ``answered`` runs exactly once."""
        node = self._gateway.node_ids.index(to)
        t_us = self._profile.election_timeout_ms * 1_000
        open_ = True

        def once(answer: Buffer | StelaeError) -> None:
            nonlocal open_
            if open_:
                open_ = False
                timer.cancel()
                self.answering = node
                answered(answer)

        if chance(self._rng, CONNECTION_LOST):
            error: StelaeError = Unavailable("the connection was lost")
            wait_us = between(self._rng, t_us // 4, t_us)
        else:
            error, wait_us = DeadlineExceeded("no answer to write within its deadline"), ATTEMPT_MS * 1_000

        def give_up() -> None:
            self._coverage.hit(f"writer.attempt_{error.code.lower()}")
            once(error)

        timer = self._scheduler.after(wait_us, f"{self._label}.attempt", give_up)
        self._gateway.write(self._number, node, request, once)

    def ask_if_gone(self, error: NoSuchTablet) -> None:
        """Do nothing: the simulated tablet is never dropped."""
