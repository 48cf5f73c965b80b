"""The part of a seed's faults, client operations and member changes that a run keeps.

A smaller scope leaves the draws of the seed as they are. So a run with fewer faults, operations or changes stays as
close to the full run as possible."""

from __future__ import annotations

import msgspec


class RunScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a run keeps.

    Attributes:
        faults: numbers of the planned faults to keep; ``None`` for all.
        operations_max: limit on the operations of each client; ``None`` for no limit.
        changes_max: limit on the member changes that are requested; ``None`` for no limit. An abort counts as one.
    """

    faults: frozenset[int] | None = None
    operations_max: int | None = None
    changes_max: int | None = None


FULL_RUN = RunScope()
"""Keeps everything."""
