"""Finds free ports for the nodes of a local cluster."""

from __future__ import annotations

import os
import random
import re
import socket
from contextlib import ExitStack
from pathlib import Path

from stelae.spi.errors import CallerError, StelaeError

VARIABLE = "STELAE_LOCAL_PORTS"
"""The environment variable with the range of ports to use, ``LOW-HIGH``: processes with their own never meet."""

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
"""The lowest port to use. Well-known services have ports below it."""

_USUALLY_FIRST = 32_768
"""The first port for outgoing connections on most systems."""

_ENOUGH = 1_000
"""The fewest candidates to draw from."""


class NoFreePorts(StelaeError, code="NO_FREE_PORTS"):
    """There are not enough free ports for the nodes."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now. A node whose port is in use at its start ends with an error.

    The ports are below those that the system gives to outgoing connections. An outgoing connection could take a port
    between this call and the start of the node, even the connection of a client that tries to reach that node. So could
    another process that calls this, unless ``STELAE_LOCAL_PORTS`` gives each its own range.

    Raises:
        NoFreePorts: there are not enough free ports.
        CallerError: ``STELAE_LOCAL_PORTS`` is no range of ports.
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
    given = os.environ.get(VARIABLE)
    fact = f"only {len(ports)} of {count} ports are free on 127.0.0.1" + (f" in {VARIABLE}={given}" if given else "")
    raise NoFreePorts(f"{fact}; {'give a wider range' if given else 'stop other clusters'}, or start fewer nodes")


def _candidates() -> list[int]:
    """Return the ports to try, in random order. If the range of outgoing connections leaves no room, return zeros, for
    which the system chooses a port."""
    if given := os.environ.get(VARIABLE):
        low, high = _bounds(given)
        return random.sample(range(low, high + 1), high + 1 - low)
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUALLY_FIRST
    if first - _LOWEST < _ENOUGH:
        return [0] * _ENOUGH
    return random.sample(range(_LOWEST, first), first - _LOWEST)


def _bounds(given: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", given)
    low, high = map(int, found.groups()) if found else (0, 0)
    if not 1 <= low <= high <= 65_535:
        raise CallerError(f"{VARIABLE}={given!r} is no range of ports; write it as LOW-HIGH, such as 20000-20999")
    return low, high
