"""Serves ``/metrics`` over HTTP, on threads of its own: whatever a scraper does, the node does not wait for it.

What can go wrong is bounded: ``connections_max`` threads, one request on each connection, and ``deadline_ms`` for all
of it, however it is spent; the library bounds the request line and the headers. One collection runs at a time. What is
beyond a bound is closed, and counted."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from stelae.spi.errors import ConfigError
from stelae.spi.services import Metrics
from stelae.telemetry.settings import MetricsSettings, listen_address

log = logging.getLogger(__name__)

PATH = "/metrics"
SWEEP_S = 0.2
"""How often connections past their deadline are looked for."""


class MetricsServer:
    """One node's listener. Made before the node, so that an address that cannot be had stops it at once.

    Args:
        settings: where to listen, and the bounds.
        metrics: counts the scrapes.

    Raises:
        ConfigError: the address is taken, does not exist, or is one that other machines reach.
    """

    def __init__(self, settings: MetricsSettings, metrics: Metrics) -> None:
        host, port = listen_address(settings)
        try:
            self._server = _Server(host, port, settings, metrics)
        except OSError as error:
            hint = "choose another port for [metrics] listen, 0 for any, or set enabled = false"
            raise ConfigError(f"metrics cannot be served at {settings.listen}: {error.strerror}", hint=hint) from error
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)

    @property
    def address(self) -> str:
        """``host:port`` as it was given by the system."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def start(self, registry: CollectorRegistry) -> None:
        """Begin to answer."""
        self._server.registry = registry
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more; what is under way is cut off. Closing twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.cut_off()

    def _serve(self) -> None:
        try:
            self._server.serve_forever(SWEEP_S)
        except Exception:
            log.exception("metrics are not served any more")


class _Server(ThreadingMixIn, TCPServer):
    """Threads, their number, and their deadlines."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, host: str, port: int, settings: MetricsSettings, metrics: Metrics) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.registry = CollectorRegistry()
        self.metrics = metrics
        self.collecting = threading.Lock()
        self._connections_max = settings.connections_max
        self._deadline_s = settings.deadline_ms / 1000
        self._open: dict[socket.socket, float] = {}
        super().__init__((host, port), _Handler)

    def failed(self) -> None:
        """Note a scrape that came to nothing."""
        self.metrics.count("metrics_scrapes_failed")

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) >= self._connections_max:
            self.failed()
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic() + self._deadline_s
        request.settimeout(self._deadline_s)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off who has had its time: a read by a thread of ours then ends at once."""
        now = time.monotonic()
        for connection, due in list(self._open.items()):
            if now >= due:
                _shut(connection)

    def cut_off(self) -> None:
        """End every connection."""
        for connection in list(self._open):
            _shut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.failed()
        log.debug("scrape failed client=%s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    server_version = "stelae"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with every figure, in the format that was asked for."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"figures are at {PATH}")
            return
        try:
            encoder, content_type = choose_encoder(", ".join(self.headers.get_all("Accept", [])))
        except Exception:  # Its parser of versions raises what it likes; the plain format suits everybody.
            encoder, content_type = choose_encoder("")
        try:
            with self.server.collecting:
                body = encoder(self.server.registry)
        except Exception:
            log.exception("metrics cannot be collected")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the figures cannot be collected; the log says why")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # Before the body: who has all of it finds itself counted.
        self.server.metrics.count("metrics_scrapes")
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in one line; every refusal is a scrape that came to nothing."""
        self.server.failed()
        text = f"{code} {message or HTTPStatus(code).phrase}\n".encode("utf-8", "replace")
        self.send_response(code, HTTPStatus(code).phrase)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no event."""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
