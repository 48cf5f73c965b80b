"""The sections of ``node.toml`` about metrics and the log."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stelae.spi.settings import setting
from stelae.wire.addresses import check_listen_host, split_address

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Section ``[metrics]``: where a node serves its metrics over HTTP, at ``/metrics``."""

    enabled: bool = setting(True, reason="a node in production needs metrics")
    listen: str = setting(
        "127.0.0.1:0", reason="with port 0 the system chooses a port, and the node writes it to the target file"
    )
    insecure_listen: bool = setting(
        False, reason="metrics contain the names of tablets, so other machines reach them only if this is set"
    )
    connections_max: int = setting(
        8, unit="count", low=1, high=256, reason="each connection has a thread; further ones are closed"
    )
    deadline_ms: int = setting(
        5_000,
        unit="ms",
        low=100,
        high=60_000,
        reason="a slow or silent scraper is disconnected, which frees its thread",
    )
    tablets_max: int = setting(
        100,
        unit="count",
        low=0,
        high=10_000,
        reason="tablets with metrics of their own: each adds lines to every scrape",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    """Section ``[logging]``: how a node writes its log to standard error. Options of the command line override it."""

    format: LogFormat = setting("text", reason="text is for people; json, one object on each line, is for machines")
    level: LogLevel = setting("info", reason="debug shows every connection; warning shows only what needs attention")
    window_s: int = setting(
        10, unit="s", low=1, high=3600, reason="the length of the window in which lines are counted"
    )
    repeats_max: int = setting(
        5, unit="count", low=1, high=1_000_000, reason="equal lines in a window; further ones are only counted"
    )
    lines_max: int = setting(
        1_000,
        unit="count",
        low=10,
        high=10_000_000,
        reason="lines from one place in the code in a window, even if they differ",
    )


def listen_address(settings: MetricsSettings) -> tuple[str, int]:
    """Return the host and port to listen on.

    Raises:
        ConfigError: it is not an address, or other machines can reach it and ``insecure_listen`` is false.
    """
    host, port = split_address(settings.listen)
    return check_listen_host(host, insecure_listen=settings.insecure_listen), port
