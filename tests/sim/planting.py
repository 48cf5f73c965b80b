"""Plants a mutant: replaces one function of the product within a ``with`` block."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.mutants import Mutant


class Planted:
    """A planted mutant. ``calls`` is the number of calls of the replaced function."""

    def __init__(self) -> None:
        self.calls = 0


def resolve(target: str) -> tuple[Any, str]:
    """Return the owner of the function ``module:path`` and the name of the function.

    Raises:
        AttributeError: there is no such function.
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
    """Replace the target of a mutant within the block."""
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
