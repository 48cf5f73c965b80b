"""Checks the arguments of public calls, so that an error names the argument and not a detail deep inside."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from stelae.partition.schema import KeyRange
from stelae.protocol.master_messages import AlterStep
from stelae.spi.errors import BadIdentifier, CallerError, ConfigError
from stelae.spi.ids import NodeId, node_id
from stelae.spi.write import OpKind
from stelae.wire.addresses import split_address

SECONDS_MAX = 1e9
"""The longest time, about thirty years: enough for a caller that means "for ever"."""

Compression: TypeAlias = Literal["none", "lz4"]
"""How servers may compress the rows that a client reads."""


class BadArgument(CallerError, code="BAD_ARGUMENT"):
    """An argument of the wrong type, or outside its range."""

    def __init__(self, name: str, expected: str, value: Any) -> None:
        super().__init__(f"{name} must be {expected}, not {type(value).__name__} {value!r:.60}")


def seconds(name: str, value: Any, *, above_0: bool = False, most: float = SECONDS_MAX) -> float:
    """Return a time in seconds, from 0 (or above 0) to ``most``."""
    bounds = f"above 0, at most {most:g}" if above_0 else f"from 0 to {most:g}"
    # ``Real`` and ``Integral`` include the numbers of numpy.
    if isinstance(value, Real) and not isinstance(value, bool):
        number: Any = value
        if 0 <= number <= most and (number or not above_0):
            return float(number)
    raise BadArgument(name, f"a number of seconds {bounds}", value)


def whole_ms(name: str, value: Any) -> int:
    """Return a time in seconds as milliseconds: 0 for 0, and at least 1 for more."""
    return ceil(seconds(name, value) * 1_000)


def whole(name: str, value: Any, least: int, most: int = (1 << 63) - 1, *, or_none: str = "") -> int:
    """Return a whole number from ``least`` to ``most``; ``or_none``: for the error, what ``None`` would mean."""
    if isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most:
        return int(value)
    upper = "" if most == (1 << 63) - 1 else f" to {most}"
    raise BadArgument(name, f"a whole number from {least}{upper}{or_none and f', or None {or_none}'}", value)


def flag(name: str, value: Any) -> bool:
    """Return a boolean."""
    if isinstance(value, bool):
        return value
    raise BadArgument(name, "True or False", value)


def text(name: str, value: Any) -> str:
    """Return text."""
    if isinstance(value, str):
        return value
    raise BadArgument(name, "text", value)


def takes_lz4(compression: Any) -> bool:
    """Return whether a ``Compression`` is LZ4."""
    if isinstance(compression, str) and compression in get_args(Compression):
        return compression == "lz4"
    raise BadArgument("compression", "'none' or 'lz4'", compression)


def several(name: str, value: Any, of: str) -> list[Any]:
    """Return the items of a list or another iterable. Text and bytes are refused."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [*value]
    raise BadArgument(name, f"a list of {of}", value)


def kind_of_write(kind: Any) -> OpKind:
    """Return a kind of write."""
    if isinstance(kind, OpKind):
        return kind
    raise BadArgument("kind", f"a stelae.spi.write.OpKind ({', '.join(one.name for one in OpKind)})", kind)


def alter_step(step: Any) -> Any:
    """Return a step of ``alter_table``, after a check of the types of its fields."""
    kinds = get_args(AlterStep)
    if not isinstance(step, kinds):
        raise BadArgument("a step", f"one of {', '.join(kind.__name__ for kind in kinds)}", step)
    for field in msgspec.structs.fields(type(step)):
        name, value = f"{field.name} of {type(step).__name__}", getattr(step, field.name)
        if field.type is str:
            text(name, value)
        elif field.type is bool:
            flag(name, value)
        elif field.type is int:
            whole(name, value, 1)
        elif field.type is KeyRange and not isinstance(value, KeyRange):
            raise BadArgument(name, "a range made by key_range of the table", value)
    return step


def check_address(address: str) -> None:
    """Check the address of a node. Raises ``BadArgument``."""
    text("address", address)
    try:
        split_address(address)
    except ConfigError as error:
        raise BadArgument("address", "host:port of a node", address) from error


def node_uuid(given: str) -> NodeId:
    """Return the uuid of a node. Raises ``BadArgument``."""
    text("the uuid of a node", given)
    try:
        return node_id(given)
    except BadIdentifier as error:
        raise BadArgument("the uuid of a node", "32 lower-case hexadecimal digits", given) from error
