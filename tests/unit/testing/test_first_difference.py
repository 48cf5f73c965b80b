"""Where a commit began to write: everything before it was durable, so every bit of it is flipped."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.wal_damage import first_difference, flips


@pytest.mark.parametrize(
    ("before", "after", "offset"),
    [
        (b"abcd", b"abcd", 0),
        (b"", b"", 0),
        (b"", b"ab", 0),
        (b"abcd", b"abcdef", 4),
        (b"ab\0\0\0\0", b"abcd\0\0", 2),
        (b"abcd", b"xbcd", 0),
        (b"abcdef", b"abcd", 4),
        (b"abcd", b"abXdef", 2),
    ],
)
def test_a_file_differs_where_its_bytes_do_or_where_it_became_longer(before: bytes, after: bytes, offset: int) -> None:
    assert first_difference(before, after) == offset


def test_all_of_a_file_that_only_grew_was_durable_before_and_is_looked_at() -> None:
    before = bytes(range(1, 200))
    after = before + b"more"
    assert len(list(flips(after[: first_difference(before, after)]))) == len(before)


def test_filling_is_looked_at_once_and_everything_else_byte_by_byte() -> None:
    contents = b"a" * 1023 + bytes(3000) + b"bc" + b"\xff" * 1024
    offsets = [offset for offset, _ in flips(contents)]
    assert offsets == [*range(1024), 4023, 4024, 4025]
