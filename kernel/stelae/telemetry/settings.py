"""Sections of ``node.toml`` about what a node tells of itself."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stelae.spi.settings import setting
from stelae.wire.addresses import check_listen_host, split_address

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Section ``[metrics]``: where a node can be asked for its figures, over HTTP, at ``/metrics``."""

    enabled: bool = setting(True, reason="a node that nobody can look into is no good in production")
    listen: str = setting(
        "127.0.0.1:0", reason="port 0: the system chooses, and the node says which; see the target file"
    )
    insecure_listen: bool = setting(False, reason="figures name tablets: beyond loopback only if said in as many words")
    connections_max: int = setting(8, unit="count", low=1, high=256, reason="each has a thread; more are turned away")
    deadline_ms: int = setting(
        5_000, unit="ms", low=100, high=60_000, reason="a slow or silent scraper is cut off, and frees its thread"
    )
    tablets_max: int = setting(
        100,
        unit="count",
        low=0,
        high=10_000,
        reason="tablets with figures of their own: each adds lines to every scrape",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    """Section ``[logging]``: how a node writes its log, on standard error. The command line goes before it."""

    format: LogFormat = setting("text", reason="text for people; json, one object on each line, for machines")
    level: LogLevel = setting("info", reason="debug has every connection; warning keeps what asks for attention")
    window_s: int = setting(10, unit="s", low=1, high=3600, reason="the time in which repeats are counted")
    repeats_max: int = setting(
        5, unit="count", low=1, high=1_000_000, reason="equal lines in a window: the rest is a number"
    )
    lines_max: int = setting(
        1_000, unit="count", low=10, high=10_000_000, reason="lines from one place in a window, however they differ"
    )


def listen_address(settings: MetricsSettings) -> tuple[str, int]:
    """Return the host and port to listen on; ``ConfigError``: no address, or one that other machines reach."""
    host, port = split_address(settings.listen)
    return check_listen_host(host, insecure_listen=settings.insecure_listen), port
