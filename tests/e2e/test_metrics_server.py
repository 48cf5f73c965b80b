"""The listener for metrics under scrapers that behave, and under those that do not."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from stelae.machine.metrics import NodeMetrics
from stelae.spi.errors import ConfigError
from stelae.telemetry.http_server import MetricsServer
from stelae.telemetry.settings import MetricsSettings
from stelae.wire.addresses import split_address

WAIT_S = 20.0
"""Longest wait for a server's answer; reached only by a defect."""


class One(Collector):
    """A figure; ``before`` runs each time it is asked for."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        self.before()
        yield GaugeMetricFamily("answer", "what it is", value=42)


class Served:
    """A server and how to talk to it."""

    def __init__(self, server: MetricsServer, metrics: NodeMetrics) -> None:
        self.server, self.metrics = server, metrics

    def connect(self) -> socket.socket:
        return socket.create_connection(split_address(self.server.address), WAIT_S)

    def ask(
        self, method: str = "GET", path: str = "/metrics", headers: dict[str, str] | None = None
    ) -> tuple[int, str, str]:
        host, port = split_address(self.server.address)
        connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()

    def send(self, data: bytes) -> bytes:
        """Send bytes and return what comes until the server closes; it may close before all is sent."""
        received = b""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                while more := connection.recv(65536):
                    received += more
            except ConnectionError:
                pass
        return received

    def failed(self) -> int:
        return self.metrics.counts().get("metrics_scrapes_failed", 0)


@contextmanager
def serving(collector: Collector | None = None, listen: str = "127.0.0.1:0", **settings: int) -> Iterator[Served]:
    metrics = NodeMetrics()
    server = MetricsServer(MetricsSettings(listen=listen, **settings), metrics)
    registry = CollectorRegistry()
    registry.register(collector or One())
    server.start(registry)
    try:
        yield Served(server, metrics)
    finally:
        server.close()
        server.close()


def test_figures_come_in_the_format_that_was_asked_for() -> None:
    with serving() as served:
        status, kind, text = served.ask()
        assert status == 200 and kind.startswith("text/plain; version=0.0.4") and "\nanswer 42.0\n" in text
        wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        status, kind, text = served.ask(path="/metrics?x=1", headers=wanted)
        assert status == 200 and kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
        assert served.metrics.counts() == {"metrics_scrapes": 2}


def test_a_version_that_is_none_gets_the_plain_format() -> None:
    with serving() as served:
        status, kind, _ = served.ask(headers={"Accept": "application/openmetrics-text; version=new.er"})
        assert status == 200 and kind.startswith("text/plain")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/../x", 404), ("POST", "/metrics", 501), ("HEAD", "/metrics", 501)],
)
def test_anything_else_is_refused_in_one_line(method: str, path: str, status: int) -> None:
    with serving() as served:
        found, _, text = served.ask(method, path)
        assert found == status and text.count("\n") == (method != "HEAD")
        assert served.failed() == 1
        assert served.ask()[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\na: " + b"x" * 200_000 + b"\r\n\r\n",
        b"\x00" * 1000 + b"\r\n\r\n",
    ],
)
def test_garbage_harms_nobody(data: bytes) -> None:
    with serving() as served:
        assert b"answer" not in served.send(data)
        assert served.ask()[0] == 200


def test_who_says_nothing_is_cut_off_and_others_are_served_meanwhile() -> None:
    with serving(deadline_ms=300) as served, served.connect() as silent:
        assert served.ask()[0] == 200
        assert silent.recv(1) == b""


def test_who_sends_a_byte_now_and_then_is_cut_off_at_the_deadline_too() -> None:
    with serving(deadline_ms=300) as served, served.connect() as slow:
        with pytest.raises(OSError):
            while True:
                slow.sendall(b"G")
                slow.settimeout(0.05)
                try:
                    if slow.recv(1) == b"":
                        raise ConnectionError("closed")
                except TimeoutError:
                    pass
        assert served.ask()[0] == 200


def test_who_comes_when_all_threads_are_taken_is_turned_away_until_one_is_free() -> None:
    with serving(connections_max=2, deadline_ms=60_000) as served:
        with served.connect() as first, served.connect() as second:
            first.sendall(b"GET")
            second.sendall(b"GET")
            with served.connect() as third:
                assert third.recv(1) == b""
            assert served.failed() == 1
            second.sendall(b" /metrics HTTP/1.0\r\n\r\n")
            while second.recv(65536):
                pass
        assert served.ask()[0] == 200


def test_a_collection_that_fails_is_an_answer_and_the_next_may_succeed() -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    one = One(fail)
    with serving(one) as served:
        status, _, text = served.ask()
        assert status == 500 and "cannot be collected" in text and "boom" not in text
        one.before = lambda: None
        assert served.ask()[0] == 200


def test_closing_ends_connections_that_wait() -> None:
    with serving(deadline_ms=60_000) as served, served.connect() as waiting:
        served.ask()  # The one before has been accepted by then.
        served.server.close()
        assert waiting.recv(1) == b""
        with pytest.raises(OSError):
            served.connect()


def test_an_address_that_is_taken_is_an_error_of_the_configuration() -> None:
    with serving() as served:
        with pytest.raises(ConfigError) as caught:
            MetricsServer(MetricsSettings(listen=served.server.address), NodeMetrics())
        assert served.server.address in caught.value.fact and "enabled = false" in caught.value.hint


def test_an_address_of_no_interface_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"cannot be served at 192\.0\.2\.1:9"):
        MetricsServer(MetricsSettings(listen="192.0.2.1:9", insecure_listen=True), NodeMetrics())


def test_one_that_was_never_started_closes_too() -> None:
    server = MetricsServer(MetricsSettings(), NodeMetrics())
    address = server.address
    server.close()
    with pytest.raises(OSError):
        socket.create_connection(split_address(address), WAIT_S)
