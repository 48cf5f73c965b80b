"""Planting a mutant: replacing one function of the product for the length of a ``with`` block."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.mutants import Mutant


class Planted:
    """A mutant in place. ``calls`` counts how often the replaced function was entered."""

    def __init__(self) -> None:
        self.calls = 0


def resolve(target: str) -> tuple[Any, str]:
    """Return the object that holds the function of ``module:path`` and the function's name.

    Raises:
        AttributeError: there is no such function any more.
    """
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    holder: Any = importlib.import_module(module)
    for owner in owners:
        holder = getattr(holder, owner)
    if not callable(getattr(holder, name)):
        raise AttributeError(f"{target} is no function")
    return holder, name


@contextmanager
def planted(mutant: Mutant) -> Iterator[Planted]:
    """Replace the mutant's target within the block."""
    holder, name = resolve(mutant.target)
    original = inspect.getattr_static(holder, name)
    record = Planted()

    @functools.wraps(original)
    def replaced(*arguments: Any, **options: Any) -> Any:
        record.calls += 1
        return mutant.replacement(original, *arguments, **options)

    setattr(holder, name, replaced)
    try:
        yield record
    finally:
        setattr(holder, name, original)
