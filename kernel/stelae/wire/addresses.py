"""Addresses: ``host:port`` taken apart, and names resolved without ever stalling a thread of ours.

The library would resolve on its one I/O thread, where a slow name server holds up everybody, and
keep the answer. Here each look-up has a short-lived thread, and each new connection asks again."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from stelae.spi.errors import ConfigError

Done: TypeAlias = Callable[[tuple[str, int] | None], None]  #: Takes a numeric host and port.
Resolve: TypeAlias = Callable[[str, Done], None]  #: ``resolve(address, done)`` calls ``done`` once, on the loop.


def split_address(address: str) -> tuple[str, int]:
    """Take ``host:port`` or ``[v6]:port`` apart; ``ConfigError``: no host, or no port between 0 and 65535."""
    host, _, port_text = address.removeprefix("tcp://").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise ConfigError(f"{address!r} is no address", hint="write host:port, for example 127.0.0.1:7051")
    return host, int(port_text)


def check_listen_host(host: str, *, insecure_listen: bool) -> str:
    """Return the numeric host to listen on; ``ConfigError``: a name, or not loopback without ``insecure_listen``."""
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
    """Return a ``Resolve`` that delivers on ``loop``; ``None`` stands for no answer."""

    def resolve(address: str, done: Done) -> None:
        host, port = split_address(address)
        if _is_numeric(host):
            loop.call_soon(done, (host, port))
            return

        def look_up() -> None:
            answer: tuple[str, int] | None = None
            # UnicodeError: a label that is empty or above 63 characters.
            with suppress(OSError, UnicodeError):
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                answer = (str(found[0][4][0]), port)
            with suppress(RuntimeError):  # the loop was closed meanwhile, and nobody waits any more
                loop.call_soon_threadsafe(done, answer)

        # A daemon: a name server that never answers must not keep the process from ending.
        threading.Thread(target=look_up, name="stelae-resolve", daemon=True).start()

    return resolve


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
