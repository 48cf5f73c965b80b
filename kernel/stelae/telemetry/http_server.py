"""Serves ``/metrics`` over HTTP on threads of its own, so that the node never waits for a scraper.

There are at most ``connections_max`` threads, and one request on each connection, which has ``deadline_ms`` in all. The
library limits the request line and the headers. One collection runs at a time. A connection beyond a limit is closed
and counted."""

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
"""Seconds between two searches for connections past their deadline."""


class MetricsServer:
    """One node's HTTP listener for metrics.

    It is created before the node, so that a wrong address stops the node at once.

    Args:
        settings: address and limits.
        metrics: counts the scrapes.

    Raises:
        ConfigError: the address is in use, does not exist, or can be reached by other machines and is not allowed.
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
        """``host:port`` as the system assigned it."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def start(self, registry: CollectorRegistry) -> None:
        """Start answering requests with the metrics of ``registry``."""
        self._server.registry = registry
        self._thread.start()

    def close(self) -> None:
        """Stop answering and end open connections. Closing twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.cut_off()

    def _serve(self) -> None:
        try:
            self._server.serve_forever(SWEEP_S)
        except Exception:
            log.exception("metrics server stopped")


class _Server(ThreadingMixIn, TCPServer):
    """A server with a bounded number of threads, and a deadline for each connection."""

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
        """Count a failed scrape."""
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
        """End connections past their deadline. A read by their thread then ends at once."""
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
    """Answers one request."""

    server: _Server
    server_version = "stelae"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with every metric, in the requested format."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"metrics are at {PATH}")
            return
        try:
            encoder, content_type = choose_encoder(", ".join(self.headers.get_all("Accept", [])))
        except Exception:  # The parser of versions may raise anything. Every client reads the plain format.
            encoder, content_type = choose_encoder("")
        try:
            with self.server.collecting:
                body = encoder(self.server.registry)
        except Exception:
            log.exception("metrics cannot be collected")
            self.send_error(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the metrics cannot be collected; the node's log has the reason"
            )
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # Counted before the body is sent, so that a client which has the whole body is counted.
        self.server.metrics.count("metrics_scrapes")
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in one line. Every refusal counts as a failed scrape."""
        self.server.failed()
        text = f"{code} {message or HTTPStatus(code).phrase}\n".encode("utf-8", "replace")
        self.send_response(code, HTTPStatus(code).phrase)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes are too frequent."""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
