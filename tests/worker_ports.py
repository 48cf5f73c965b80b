"""The ports of one worker of xdist: otherwise one worker could draw the port of a node that another has stopped."""

from __future__ import annotations

PORTS = (10_240, 32_767)
"""The ports below those of outgoing connections on most systems."""


def ports_of_worker(worker: str, workers_count: int) -> str:
    """Return the range of ports of a worker, such as ``gw0``, as ``STELAE_LOCAL_PORTS`` takes it."""
    share = (PORTS[1] - PORTS[0] + 1) // workers_count
    low = PORTS[0] + int(worker.removeprefix("gw")) * share
    return f"{low}-{low + share - 1}"
