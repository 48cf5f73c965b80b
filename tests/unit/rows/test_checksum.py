"""The logical checksum: the same for the same rows, and for no others."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.rows.checksum import LogicalChecksum

ROWS = [(1, "a", None), (2, "b", 1.5), (3, "", True)]


def checksum(*parts: list[tuple[Any, ...]]) -> str:
    found = LogicalChecksum()
    for part in parts:
        found.add(part)
    return found.hex()


def test_neither_order_nor_batches_matter() -> None:
    assert checksum(ROWS) == checksum(ROWS[::-1]) == checksum(ROWS[1:], [], ROWS[:1])


@pytest.mark.parametrize("other", [ROWS[:2], [*ROWS, ROWS[0]], [*ROWS[:2], (3, "", 1)], [*ROWS[:2], ("", 3, True)]])
def test_other_rows_have_another_checksum(other: list[tuple[Any, ...]]) -> None:
    assert checksum(other) != checksum(ROWS)


def test_the_published_form_does_not_change() -> None:
    assert checksum([]) == "0" * 32 + "-0"
    assert checksum(ROWS) == "c1e38621250254d223077571f88b1ddf-3"
