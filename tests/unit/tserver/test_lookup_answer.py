"""Answers to lookups: portions of keys, and no more rows read than an answer has room for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from stelae.client.found_parts import found_pages
from stelae.protocol.codec import decode
from stelae.protocol.lookup_messages import LOOKUP_KEYS_MAX, LOOKUP_REPLY_BYTES, LookupReply, LookupRequest
from stelae.rows.found_rows import as_batch, plain_rows
from stelae.rows.keys import encode_key
from stelae.server.tserver.lookup_answer import FIRST_KEYS, GROWTH, LookupAnswer
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.store import FoundBatch, FoundRows
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
            found.append(decode(answer.frames()[0], LookupReply))
            left = left[len(found[-1].rows) :]
        return found


def test_small_rows_are_one_answer_in_few_portions() -> None:
    stored = SizedRows([10] * LOOKUP_KEYS_MAX)
    (answer,) = stored.answers()
    assert [tuple(row) for row in answer.rows] == [*stored.rows.values()]
    assert stored.portions == [FIRST_KEYS, LOOKUP_KEYS_MAX - FIRST_KEYS] and GROWTH * FIRST_KEYS >= LOOKUP_KEYS_MAX


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
    reply = decode(answer.frames()[0], LookupReply)
    assert len(reply.rows) == FIRST_KEYS and reply.ids is None


class TestPages:
    """A store returns the rows of many keys as batches."""

    def test_rows_of_a_batch_are_a_page_behind_the_rows_of_the_first_keys(self) -> None:
        stored = SizedRows([10] * LOOKUP_KEYS_MAX)
        answer = LookupAnswer(LookupRequest(TabletId("t"), KEYS, SCHEMA.version))
        answer.add(stored.lookup(answer.next_keys))
        answer.add(as_batch(stored.lookup(answer.next_keys)))
        assert answer.is_complete
        found = received(answer)
        assert [len(part) for part in found] == [FIRST_KEYS, LOOKUP_KEYS_MAX - FIRST_KEYS]
        assert [row for part in found for row in part] == [*stored.rows.values()]

    def test_keys_without_a_row_and_repeated_keys_keep_their_places(self) -> None:
        keys = KEYS[:5]
        batch = RowBatch.from_equal_rows(SCHEMA.layout, [(1, "a", 10), (2, "b", 20)])
        answer = LookupAnswer(LookupRequest(TabletId("t"), keys, SCHEMA.version))
        answer.add(FoundBatch(SCHEMA, batch, [1, -1, 0, 1, -1]))
        first, second = batch.to_rows()
        assert received(answer) == [[], [second, None, first, second, None]]

    def test_plain_rows_after_a_page_are_a_page_as_well(self) -> None:
        answer = LookupAnswer(LookupRequest(TabletId("t"), KEYS[:4], SCHEMA.version))
        answer.add(as_batch(FoundRows(SCHEMA, [(0, "a", 0), None])))
        answer.add(FoundRows(SCHEMA, [None, (3, "b", 3)]))
        assert received(answer) == [[], [(0, "a", 0), None], [None, (3, "b", 3)]]

    def test_a_client_that_does_not_know_the_schema_gets_plain_rows(self) -> None:
        rows = [(0, "a", 0), None, (2, "b", 2)]
        answer = LookupAnswer(LookupRequest(TabletId("t"), KEYS[:3], SCHEMA.version + 1))
        answer.add(as_batch(FoundRows(SCHEMA, rows)))
        reply = decode(answer.frames()[0], LookupReply)
        assert [row and tuple(row) for row in reply.rows] == rows
        assert reply.ids == SCHEMA.layout.ids and not reply.pages

    @pytest.mark.parametrize("sizes", [[LOOKUP_REPLY_BYTES // 4] * 64, [10] * 32 + [LOOKUP_REPLY_BYTES] * 32])
    def test_a_batch_that_is_too_large_is_cut_between_keys(self, sizes: list[int]) -> None:
        stored = SizedRows([*sizes, *([10] * (LOOKUP_KEYS_MAX - len(sizes)))])
        left = KEYS[: len(sizes)]
        while left:
            answer = LookupAnswer(LookupRequest(TabletId("t"), left, SCHEMA.version))
            answer.add(as_batch(stored.lookup(left)))
            frames = answer.frames()
            assert sum(map(len, frames)) <= 2 * LOOKUP_REPLY_BYTES + 10_000
            _, page = received(answer)
            assert page == [stored.rows[key] for key in left[: len(page)]] and page
            left = left[len(page) :]


def received(answer: LookupAnswer) -> list[list[Any]]:
    """The rows of an answer as a client reads them: those in row form, and those of each page."""
    frames = answer.frames()
    reply = decode(frames[0], LookupReply)
    pages = found_pages(reply, frames[1:], SCHEMA)
    batches = [FoundBatch(SCHEMA, page.rows, page.positions) for page in pages]
    return [[row and tuple(row) for row in reply.rows], *(list(plain_rows(batch)) for batch in batches)]
