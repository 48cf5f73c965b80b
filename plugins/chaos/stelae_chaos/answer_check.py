"""Checks that the errors in answers are errors that a fault can cause.

Faults make nodes silent, slow or busy. They do not damage what is stored, and the requests of clients are right. So a
request that is called wrong, a write that is taken for another one, or an internal error is a finding, even if nothing
is lost by it. Without this check it would count as a write without effect, or as a read without an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stelae_chaos.operations import REFUSED_ROWS, AppendCall, BatchWrite, ChaosFinding, ChaosOperation, Increment, shown

CHECK: Final = "answers"
SHOWN_MAX: Final = 12
"""The most operations that a finding shows."""

UNEXPLAINED: Final = frozenset(
    {
        "BAD_REQUEST",
        "BAD_VALUE",
        "CORRUPT",
        "INTERNAL",
        "MALFORMED",
        "NO_PARTITION",
        "NO_TABLE",
        "OUTSIDE_PARTITION",
        "PAYLOAD_MISMATCH",
        "SCHEMA_MISMATCH",
        "STALE_SEQUENCE",
        "TOO_LARGE",
    }
)
"""Codes of errors that no fault of a run can cause."""


def check_answers(operations: Iterable[ChaosOperation]) -> list[ChaosFinding]:
    """Return a finding for each code that no fault can cause, and for each that the kind of write cannot have."""
    wrong: dict[tuple[str, str], list[ChaosOperation]] = {}
    for one in operations:
        if one.error in UNEXPLAINED:
            wrong.setdefault((one.error, "was answered, which no fault can cause"), []).append(one)
        elif _is_impossible(one):
            wrong.setdefault((one.error, "was answered to a write that never depends on such a row"), []).append(one)
    return [
        ChaosFinding(check=CHECK, key=code, fact=f"the error {fact}, {len(found)} times", operations=_first(found))
        for (code, fact), found in sorted(wrong.items(), key=lambda item: item[0])
    ]


def _is_impossible(one: ChaosOperation) -> bool:
    """Return whether the answer is about a row on which the write does not depend.

    An upsert of a batch writes whether or not rows exist, and an insert does not need one. What an insert is answered
    about a row that exists is for the checks of its workload."""
    if isinstance(one, BatchWrite):
        return one.error in REFUSED_ROWS
    return one.error == "NOT_FOUND" and isinstance(one, AppendCall | Increment)


def _first(found: list[ChaosOperation]) -> tuple[str, ...]:
    return shown(sorted(found, key=lambda one: one.begun_us)[:SHOWN_MAX])
