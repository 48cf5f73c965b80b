"""Plants a mutant: replaces one function of the product within a ``with`` block."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

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
    """Replace the target of a mutant, and its constants, within the block."""
    holder, name = resolve(mutant.target)
    original = inspect.getattr_static(holder, name)
    record = Planted()

    @functools.wraps(original)
    def replaced(*arguments: Any, **options: Any) -> Any:
        record.calls += 1
        return mutant.replacement(original, *arguments, **options)

    setattr(holder, name, replaced)
    try:
        with with_constants(mutant.constants):
            yield record
    finally:
        setattr(holder, name, original)


@contextmanager
def with_constants(constants: Mapping[str, int]) -> Iterator[None]:
    """Give constants of the product, named as ``module:NAME``, other values within the block."""
    with pytest.MonkeyPatch.context() as patch:
        for target, value in constants.items():
            module, _, name = target.partition(":")
            patch.setattr(importlib.import_module(module), name, value)
        yield
