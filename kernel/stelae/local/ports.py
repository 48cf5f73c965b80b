"""Ports for the nodes of a local cluster."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
"""Below stand the ports of well-known services."""
_USUALLY_FIRST = 32_768
_ENOUGH = 1_000


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; a node that finds its port taken says so and ends.

    They lie below those that the system gives to outgoing connections, any of which may take a port between this call
    and the node's start, a client's that tries to reach the very node before it listens among them.
    """
    choice = _outside_of_outgoing()
    with ExitStack() as held:
        ports: list[int] = []
        for port in choice:
            if len(ports) == count:
                return ports
            one = held.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(one.getsockname()[1])
        if len(ports) == count:
            return ports
    raise OSError(f"only {len(ports)} of {count} ports are free on 127.0.0.1")


def _outside_of_outgoing() -> list[int]:
    """Ports to try, in random order; zeros, the system's choice, where its own range leaves no room."""
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUALLY_FIRST
    if first - _LOWEST < _ENOUGH:
        return [0] * _ENOUGH
    return random.sample(range(_LOWEST, first), first - _LOWEST)
