"""Plugins and entry points for tests: good ones, and one for every way of being wrong."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from stelae.config.registry import Registry
from stelae.spi.consensus import ConsensusEngine
from stelae.spi.hooks import hookimpl
from stelae.spi.policy import MasterPolicy
from stelae.spi.settings import setting
from stelae.spi.wal import WalEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class WalConfig:
    """One setting of every type."""

    segment_bytes: int = setting(1024, unit="bytes", low=16, high=4096, reason="a test")
    fill: float = setting(0.5, low=0.0, high=1.0, reason="a test")
    recycle: bool = setting(True, reason="a test")
    label: str = setting("x", reason="a test")
    mode: Literal["fast", "safe"] = setting("safe", reason="a test")


def _complete(base: type[Any]) -> dict[str, Any]:
    """Bodies for all that is abstract: these engines are looked at, never opened."""
    return {name: lambda *_, **__: None for name in base.__abstractmethods__}


def wal(name: str = "segmented", **changes: Any) -> type[WalEngine]:
    """Make a log engine class that fulfils its contract, but for ``changes``."""
    body = {"name": name, "Config": WalConfig, **_complete(WalEngine), **changes}
    return type(f"Wal_{name}", (WalEngine,), body)


def consensus(name: str = "raft") -> type[ConsensusEngine]:
    """Make a consensus engine class."""
    body = {"name": name, "message_types": {}, **_complete(ConsensusEngine)}
    return type(f"Consensus_{name}", (ConsensusEngine,), body)


def store(name: str = "columnar") -> type[Any]:
    """Make a tablet store class."""
    base = importlib.import_module("stelae.spi.store").TabletStore
    return type(f"Store_{name}", (base,), {"name": name, **_complete(base)})


def policy(name: str) -> type[MasterPolicy]:
    """Make a master policy class."""
    return type(f"Policy_{name}", (MasterPolicy,), {"name": name, **_complete(MasterPolicy)})


def copy(name: str = "streaming") -> type[Any]:
    """Make a copy transport class."""
    base = importlib.import_module("stelae.spi.copy").CopyTransport
    return type(f"Copy_{name}", (base,), {"name": name, **_complete(base)})


def plugin(**hooks: Callable[..., Any]) -> SimpleNamespace:
    """Make a plugin object with these functions, marked as hooks."""
    return SimpleNamespace(**{name: hookimpl(function) for name, function in hooks.items()})


def offering(hook: str, *engines: Any) -> SimpleNamespace:
    """Make a plugin that registers engines through one hook."""

    def implementation() -> Sequence[Any]:
        return engines

    return plugin(**{hook: implementation})


def working(*points: Point) -> Registry:
    """A registry with one engine of each kind that a node needs, and with installed plugins."""
    registry = Registry(points)  # type: ignore[arg-type]
    registry.register(offering("stelae_wal_engines", wal()), "w")
    registry.register(offering("stelae_consensus_engines", consensus()), "c")
    registry.register(offering("stelae_store_engines", store()), "s")
    registry.register(offering("stelae_copy_transports", copy()), "t")
    return registry


@dataclass
class Dist:
    """A distribution as its metadata show it."""

    name: str = "stelae-extra"
    version: str = "9.1"
    requires: list[str] | None = None


@dataclass
class Point:
    """An entry point whose import is a function of the test."""

    name: str
    load: Callable[[], Any]
    value: str = "some_module"
    dist: Any = field(default_factory=Dist)
