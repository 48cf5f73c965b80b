"""Finds free ports for the nodes of a local cluster."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
"""The lowest port to use. Well-known services have ports below it."""

_USUALLY_FIRST = 32_768
"""The first port for outgoing connections on most systems."""

_ENOUGH = 1_000
"""The fewest candidates to draw from."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now. A node whose port is in use at its start ends with an error.

    The ports are below those that the system gives to outgoing connections. An outgoing connection could take a port
    between this call and the start of the node, even the connection of a client that tries to reach that node.

    Raises:
        OSError: there are not enough free ports.
    """
    candidates = _candidates()
    with ExitStack() as sockets:
        ports: list[int] = []
        for port in candidates:
            if len(ports) == count:
                return ports
            one = sockets.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(one.getsockname()[1])
        if len(ports) == count:
            return ports
    raise OSError(f"only {len(ports)} of {count} ports are free on 127.0.0.1")


def _candidates() -> list[int]:
    """Return the ports to try, in random order. If the range of outgoing connections leaves no room, return zeros, for
    which the system chooses a port."""
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUALLY_FIRST
    if first - _LOWEST < _ENOUGH:
        return [0] * _ENOUGH
    return random.sample(range(_LOWEST, first), first - _LOWEST)
