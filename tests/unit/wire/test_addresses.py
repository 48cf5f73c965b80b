"""Addresses, and where one may listen."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from stelae.spi.errors import ConfigError
from stelae.wire.addresses import check_listen_host, resolver, split_address
from tests.unit.wire.worlds import run


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:7051", ("127.0.0.1", 7051)),
        ("tcp://node-1.example:0", ("node-1.example", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":7051", "host:65536", "host:-1", "h:٣", "http://h:1", "h:1/x"]
)
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"host:port, for example"):
        split_address(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_may_be_listened_on(host: str) -> None:
    assert check_listen_host(host, insecure_listen=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "192.168.1.1"])
def test_beyond_loopback_only_if_the_settings_say_so_in_as_many_words(host: str) -> None:
    with pytest.raises(ConfigError, match="insecure_listen = true"):
        check_listen_host(host, insecure_listen=False)
    assert check_listen_host(host, insecure_listen=True) == host


def test_a_name_cannot_be_listened_on() -> None:
    with pytest.raises(ConfigError, match="numeric address"):
        check_listen_host("node-1.example", insecure_listen=True)


@pytest.mark.parametrize("name", ["no-such-host.invalid:1", "a..b:1", "x" * 70 + ".invalid:1"])
def test_a_name_that_cannot_be_resolved_is_an_answer_not_an_error(name: str) -> None:
    async def main() -> None:
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        resolver(asyncio.get_running_loop())(name, answered.set_result)
        assert await answered == []

    run(main)


def test_numbers_and_names_resolve() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for address in ("127.0.0.1:5", "localhost:5"):
            answered: asyncio.Future[object] = loop.create_future()
            resolver(loop)(address, answered.set_result)
            assert ("127.0.0.1", 5) in await answered  # type: ignore[operator]

    run(main)


@pytest.mark.parametrize(
    ("name", "hosts"), [("node-1.example", ["::1", "127.0.0.1"]), ("localhost", ["127.0.0.1", "::1"])]
)
def test_all_addresses_of_a_name_are_found_and_of_localhost_the_one_where_nodes_listen_first(
    monkeypatch: pytest.MonkeyPatch, name: str, hosts: list[str]
) -> None:
    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (one, port)) for one in ("::1", "127.0.0.1", "::1")]

    async def main() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        resolver(asyncio.get_running_loop())(f"{name}:5", answered.set_result)
        assert await answered == [(host, 5) for host in hosts]

    run(main)


def test_a_process_without_a_thread_to_spare_resolves_nothing_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error ended the round of timeouts in which the link was opened, so other links were never opened again."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            resolver(asyncio.get_running_loop())("node-1.example:5", answered.set_result)
        assert await answered == []

    run(main)
