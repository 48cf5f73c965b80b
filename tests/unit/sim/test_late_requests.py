"""Late repetitions of requests for replicas: they reach the process that they were sent to, and no later one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from stelae.sim.hosting.late_requests import LateRequests
from stelae.spi.ids import NodeId

PEER = NodeId("b" * 32)


class Process:
    """Keeps what is scheduled."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def schedule(self, delay_us: int, label: str, call: Callable[[], None]) -> None:
        self.calls.append(call)


def test_a_repetition_reaches_the_process_of_its_request_and_no_later_one() -> None:
    process: Any = Process()
    sent: list[tuple[NodeId, str]] = []
    starts = {PEER: 1}
    requests = LateRequests[str](
        process, "kind", random.Random(1), lambda to, asked: sent.append((to, asked)), starts.__getitem__
    )
    for _ in range(20):
        requests.send(PEER, "asked")
    assert len(sent) == 20 and 0 < len(process.calls) < 20, "a share of them is repeated"
    process.calls.pop()()
    assert len(sent) == 21
    starts[PEER] = 2
    for call in process.calls:
        call()
    assert len(sent) == 21
