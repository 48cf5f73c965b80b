"""What every engine declares: its name, its contract's version, its capabilities and its settings.

Settings are a frozen dataclass, filled from ``node.toml``; its fields say unit, default, bounds and reason::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config:
        segment_bytes: int = setting(
            64 << 20, unit="bytes", low=4096, high=1 << 32,
            reason="large enough that rolling is rare, small enough to collect soon",
        )

Supported field types: ``bool``, ``int``, ``float``, ``str``, and ``Literal`` of strings."""

import dataclasses
from abc import ABC
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a field accepts and why: bounds are inclusive; ``None`` means unbounded."""

    unit: str = ""  #: ``"bytes"``, ``"ms"``, ``"count"``; empty for a number, text or switch.
    low: float | None = None
    high: float | None = None
    reason: str = ""  #: One sentence for the reference: why this default, what it trades.


def setting(default: Any, *, reason: str, unit: str = "", low: float | None = None, high: float | None = None) -> Any:
    """Declare one field of a ``Config`` dataclass; ``default`` is for a silent ``node.toml``."""
    limits = Limits(unit=unit, low=low, high=high, reason=reason)
    return dataclasses.field(default=default, metadata={"limits": limits})


def limits_of(field: dataclasses.Field[Any]) -> Limits:
    """Return the limits that :func:`setting` attached to a field, or empty ones."""
    found = field.metadata.get("limits")
    return found if isinstance(found, Limits) else Limits()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmptyConfig:
    """Configuration of an engine that has no settings."""


class Engine(ABC):
    """Base of the five contracts; subclasses are registered through the hook that each of them names."""

    name: ClassVar[str]  #: Under which ``node.toml`` or the catalog chooses the engine.
    contract_version: ClassVar[int]  #: That it was made for; inherited from the contract.
    Config: ClassVar[type[Any]] = EmptyConfig
    capabilities: ClassVar[frozenset[str]] = frozenset()  #: What it can do beyond the least that its contract asks.
