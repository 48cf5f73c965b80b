"""Parse ``host:port`` addresses, and resolve host names without blocking the event loop.

ZeroMQ would resolve names on its only I/O thread, where a slow name server delays every connection, and it would keep
the answer for ever. Here each lookup has a short-lived thread, and each new connection looks the name up again."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from stelae.spi.errors import ConfigError

#: Called with a numeric host and a port, or with ``None`` if the name cannot be resolved.
Done: TypeAlias = Callable[[tuple[str, int] | None], None]
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
            loop.call_soon(done, (host, port))
            return

        def look_up() -> None:
            answer: tuple[str, int] | None = None
            # UnicodeError: a label of the name is empty or longer than 63 characters.
            with suppress(OSError, UnicodeError):
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                answer = (str(found[0][4][0]), port)
            with suppress(RuntimeError):  # The loop was closed during the lookup: no caller waits for the answer.
                loop.call_soon_threadsafe(done, answer)

        # A daemon thread: a name server that never answers must not keep the process from exiting.
        threading.Thread(target=look_up, name="stelae-resolve", daemon=True).start()

    return resolve


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
