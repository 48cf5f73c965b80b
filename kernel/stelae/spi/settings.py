"""The base class of all engines, and the declaration of their settings.

Settings are a frozen dataclass that is filled from ``node.toml``. Each field has a unit, a default, bounds and a
reason::

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
    """The limits of a field. Bounds are inclusive; ``None`` means that there is none."""

    unit: str = ""  #: ``"bytes"``, ``"ms"``, ``"count"``; empty for a number without unit, a text or a switch.
    low: float | None = None
    high: float | None = None
    reason: str = ""  #: One sentence for the reference: the reason for the default, or its trade-off.


def setting(default: Any, *, reason: str, unit: str = "", low: float | None = None, high: float | None = None) -> Any:
    """Declare one field of a ``Config`` dataclass. ``default`` is used if ``node.toml`` does not set the field."""
    limits = Limits(unit=unit, low=low, high=high, reason=reason)
    return dataclasses.field(default=default, metadata={"limits": limits})


def limits_of(field: dataclasses.Field[Any]) -> Limits:
    """Return the limits that :func:`setting` gave to a field, or empty limits."""
    found = field.metadata.get("limits")
    return found if isinstance(found, Limits) else Limits()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmptyConfig:
    """The configuration of an engine without settings."""


class Engine(ABC):
    """The base class of the five contracts. Each contract names the hook through which its engines are registered."""

    name: ClassVar[str]  #: The name by which ``node.toml`` or the catalog chooses the engine.
    contract_version: ClassVar[int]  #: The version of the contract that the engine implements; inherited from it.
    Config: ClassVar[type[Any]] = EmptyConfig
    capabilities: ClassVar[frozenset[str]] = frozenset()  #: What the engine can do beyond its contract's minimum.
