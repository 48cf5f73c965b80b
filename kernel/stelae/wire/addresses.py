"""Parse ``host:port`` addresses, and resolve host names without blocking the event loop.

ZeroMQ would resolve names on its only I/O thread, where a slow name server delays every connection, and it would keep
the answer for ever. Here each lookup has a thread of its own, and each new connection looks the name up again."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from stelae.spi.errors import ConfigError

#: Called with the numeric hosts of a name, each with the port; without any if the name cannot be resolved.
Done: TypeAlias = Callable[[Sequence[tuple[str, int]]], None]
#: ``resolve(address, done)`` calls ``done`` once, on the event loop.
Resolve: TypeAlias = Callable[[str, Done], None]


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port`` into host and port.

    Raises ``ConfigError`` if the host is missing, or the port is not a number from 0 to 65535."""
    host, _, port_text = address.removeprefix("tcp://").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise ConfigError(f"{address!r} is not an address", hint="write host:port, for example 127.0.0.1:7051")
    return host, int(port_text)


def check_listen_host(host: str, *, insecure_listen: bool) -> str:
    """Return the numeric host to listen on.

    Raises ``ConfigError`` if ``host`` is a name other than ``localhost``, or is not a loopback address and
    ``insecure_listen`` is not set."""
    host = "127.0.0.1" if host == "localhost" else host
    if not _is_numeric(host):
        hint = "give the numeric address of an interface, for example 127.0.0.1"
        raise ConfigError(f"cannot listen on the name {host!r}", hint=hint)
    if not ipaddress.ip_address(host).is_loopback and not insecure_listen:
        why = "it is reachable from other machines, and messages are neither encrypted nor authenticated yet"
        hint = "listen on 127.0.0.1, or set insecure_listen = true if the network is closed"
        raise ConfigError(f"refusing to listen on {host}: {why}", hint=hint)
    return host


def resolver(loop: asyncio.AbstractEventLoop) -> Resolve:
    """Return a ``Resolve`` that calls ``done`` on ``loop``."""

    def resolve(address: str, done: Done) -> None:
        host, port = split_address(address)
        if _is_numeric(host):
            loop.call_soon(done, [(host, port)])
            return

        def look_up() -> None:
            found = _addresses_of(host, port)
            with suppress(RuntimeError):  # The loop was closed during the lookup: no caller waits for the answer.
                loop.call_soon_threadsafe(done, found)

        try:
            # A daemon thread: a name server that never answers must not keep the process from exiting.
            threading.Thread(target=look_up, name="stelae-resolve", daemon=True).start()
        except RuntimeError:  # The process has as many threads as it may have.
            loop.call_soon(done, [])

    return resolve


def _addresses_of(host: str, port: int) -> list[tuple[str, int]]:
    """Look a name up, and return its numeric hosts, in the order of the system.

    A node that listens on ``localhost`` listens on 127.0.0.1 (``check_listen_host``), so that is tried first."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a label of the name is empty or longer than 63 characters.
        return []
    hosts = [*dict.fromkeys(str(one[4][0]) for one in found)]
    if host == "localhost":
        hosts.sort(key=lambda numeric: numeric != "127.0.0.1")
    return [(numeric, port) for numeric in hosts]


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
