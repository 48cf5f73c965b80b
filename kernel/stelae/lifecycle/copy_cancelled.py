"""Ends a long piece of work of a copy when the copy is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from stelae.spi.errors import RetryableError

_Item = TypeVar("_Item")


class CopyCancelled(RetryableError, code="COPY_CANCELLED"):
    """The copy was cancelled within a piece of its work. It is handled by the copy itself, and never sent."""


def unless_cancelled(items: Iterable[_Item], cancelled: Callable[[], bool]) -> Iterator[_Item]:
    """Yield the items. Before each of them, ``CopyCancelled`` is raised if the copy is cancelled."""
    for item in items:
        if cancelled():
            raise CopyCancelled("the copy is cancelled")
        yield item


def not_cancelled() -> bool:
    """Return False: the ``cancelled`` of work that nothing cancels."""
    return False
