"""Divides keys among requests for lookups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from stelae.protocol.lookup_messages import LOOKUP_KEYS_MAX, LOOKUP_REQUEST_BYTES

_Item = TypeVar("_Item")


def fit_together(keys: Sequence[bytes]) -> bool:
    """Return whether one request takes all these keys."""
    return len(keys) <= LOOKUP_KEYS_MAX and sum(map(len, keys)) <= LOOKUP_REQUEST_BYTES


def divided(
    items: Iterable[_Item], keys_of: Callable[[_Item], Sequence[bytes]], keys_max: int | None = None
) -> Iterator[list[_Item]]:
    """Divide items in their order among requests of up to ``keys_max`` keys and ``LOOKUP_REQUEST_BYTES``.

    ``keys_max``: ``None`` is ``LOOKUP_KEYS_MAX``.

    An item that is larger is a request by itself. If no server accepts it, that must not fail other items."""
    most = LOOKUP_KEYS_MAX if keys_max is None else keys_max
    chosen: list[_Item] = []
    count = size_bytes = 0
    for item in items:
        keys = keys_of(item)
        own_bytes = sum(map(len, keys))
        count, size_bytes = count + len(keys), size_bytes + own_bytes
        if chosen and (count > most or size_bytes > LOOKUP_REQUEST_BYTES):
            yield chosen
            chosen, count, size_bytes = [], len(keys), own_bytes
        chosen.append(item)
    if chosen:
        yield chosen
