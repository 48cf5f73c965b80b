"""Answers to lookups: portions of keys, and no more rows read than an answer has room for."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from stelae.protocol.codec import decode
from stelae.protocol.lookup_messages import LOOKUP_KEYS_MAX, LOOKUP_REPLY_BYTES, LookupReply, LookupRequest
from stelae.rows.keys import encode_key
from stelae.server.tserver.lookup_answer import FIRST_KEYS, GROWTH, LookupAnswer
from stelae.spi.ids import TabletId
from stelae.spi.store import FoundRows
from stelae.testing.conformance.store_harness import SCHEMA
from stelae.testing.conformance.store_shapes import changed

KEYS = tuple([encode_key(SCHEMA, (number,)) for number in range(LOOKUP_KEYS_MAX)])


class SizedRows:
    """Rows of some sizes, and the portions in which they were looked up."""

    def __init__(self, sizes: Sequence[int]) -> None:
        texts = {size: "x" * size for size in sizes}
        sized = enumerate(zip(KEYS, sizes, strict=True))
        self.rows = {key: (number, texts[size], number) for number, (key, size) in sized}
        self.portions: list[int] = []

    def lookup(self, keys: Sequence[bytes]) -> FoundRows:
        self.portions.append(len(keys))
        return FoundRows(SCHEMA, [self.rows[key] for key in keys])

    def answers(self) -> list[LookupReply]:
        """Ask for all keys, again for those without an answer, as a client does."""
        found: list[LookupReply] = []
        left = KEYS
        while left:
            answer = LookupAnswer(LookupRequest(TabletId("t"), left, SCHEMA.version))
            while not answer.is_complete:
                answer.add(self.lookup(answer.next_keys))
            found.append(decode(answer.encoded(), LookupReply))
            left = left[len(found[-1].rows) :]
        return found


def test_small_rows_are_one_answer_in_few_portions() -> None:
    stored = SizedRows([10] * LOOKUP_KEYS_MAX)
    (answer,) = stored.answers()
    assert [tuple(row) for row in answer.rows] == [*stored.rows.values()]
    assert stored.portions == [FIRST_KEYS, GROWTH * FIRST_KEYS, LOOKUP_KEYS_MAX - (GROWTH + 1) * FIRST_KEYS]


@pytest.mark.parametrize("size", [5_000, 60_000, 300_000])
def test_the_rows_of_large_keys_are_read_about_once(size: int) -> None:
    """Each answer read the rows of all keys that were left."""
    stored = SizedRows([size] * LOOKUP_KEYS_MAX)
    answers = stored.answers()
    assert sum(len(answer.rows) for answer in answers) == LOOKUP_KEYS_MAX
    per_answer = LOOKUP_REPLY_BYTES // size + 1
    assert sum(stored.portions) <= len(answers) * max(FIRST_KEYS, per_answer + 2)


def test_rows_of_any_sizes_come_in_the_order_of_their_keys() -> None:
    rng = random.Random(5)
    stored = SizedRows([int(10 ** rng.uniform(0, 5.5)) for _ in KEYS])
    answers = stored.answers()
    assert [tuple(row) for answer in answers for row in answer.rows] == [*stored.rows.values()]
    assert sum(stored.portions) < 3 * LOOKUP_KEYS_MAX + FIRST_KEYS * len(answers)


def test_an_answer_has_rows_of_one_schema_version() -> None:
    wider = changed(SCHEMA, add={"id": 4, "name": "price", "type": "double", "default": 1.5}, rename={})
    answer = LookupAnswer(LookupRequest(TabletId("t"), KEYS, SCHEMA.version))
    answer.add(FoundRows(SCHEMA, [(number, "a", number) for number in range(FIRST_KEYS)]))
    answer.add(FoundRows(wider, [(number, "a", number, 1.5) for number in range(len(answer.next_keys))]))
    assert answer.is_complete
    reply = decode(answer.encoded(), LookupReply)
    assert len(reply.rows) == FIRST_KEYS and reply.ids is None
