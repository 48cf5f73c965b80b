"""The check of a ``Config``, the class with the settings of an engine or a service."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

PLAIN_TYPES = (bool, int, float, str)


def config_problem(config: object) -> str | None:
    """Return why a class cannot be the settings of a plugin; ``None`` if it can."""
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
        return "is not a dataclass"
    dataclass: Any = config
    if not dataclass.__dataclass_params__.frozen:
        return "is not frozen"
    required = [f.name for f in dataclasses.fields(config) if f.default is dataclasses.MISSING]
    if required:
        return f"has no default for {required[0]}"
    try:
        hints = typing.get_type_hints(config)
    except Exception as error:  # A name that is imported for type checks alone, for example.
        return f"has a type that cannot be found: {error}"
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        if not _is_supported(hint):
            shown = hint.__name__ if isinstance(hint, type) else hint
            return f"has {field.name} of type {shown}; supported: bool, int, float, str and Literal of strings"
    try:
        config()
    except Exception as error:
        return f"refuses its own defaults: {error!r}"
    return None


def _is_supported(hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return len(parts) == 1 and _is_supported(parts[0])
    if typing.get_origin(hint) is Literal:
        return all(isinstance(choice, str) for choice in typing.get_args(hint))
    return hint in PLAIN_TYPES
