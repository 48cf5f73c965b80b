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
from stelae.server.tserver.lookup_answer import FIRST_KEYS, GROWTH_WITHOUT_ROWS, LookupAnswer
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.store import FoundBatch, FoundRows
from stelae.testing.conformance.store_harness import SCHEMA
from stelae.testing.conformance.store_shapes import changed

KEYS = tuple([encode_key(SCHEMA, (number,)) for number in range(LOOKUP_KEYS_MAX)])


class SizedRows:
    """Rows of some sizes, and the portions in which they were looked up.

    Args:
        sizes: of the rows, by key; 0: the key has no row.
        batch_min: from this number of keys on, rows come as a batch.
    """

    def __init__(self, sizes: Sequence[int], batch_min: int = 10_000) -> None:
        texts = {size: "x" * size for size in sizes}
        sized = enumerate(zip(KEYS, sizes, strict=False))
        self.rows = {key: (number, texts[size], number) if size else None for number, (key, size) in sized}
        self.batch_min = batch_min
        self.portions: list[int] = []
        self.answer_bytes: list[int] = []

    def lookup(self, keys: Sequence[bytes]) -> FoundRows | FoundBatch:
        self.portions.append(len(keys))
        found = FoundRows(SCHEMA, [self.rows[key] for key in keys])
        return as_batch(found) if len(keys) >= self.batch_min else found

    def answers(self) -> list[list[Any]]:
        """Ask for all keys, again for those without an answer, as a client does. Return the rows of each answer."""
        found: list[list[Any]] = []
        left = [*self.rows]
        while left:
            answer = LookupAnswer(LookupRequest(TabletId("t"), tuple(left), SCHEMA.version))
            while not answer.is_complete:
                answer.add(self.lookup(answer.next_keys))
            self.answer_bytes.append(sum(map(len, answer.frames())))
            found.append([row for part in received(answer) for row in part])
            left = left[len(found[-1]) :]
        return found


def received(answer: LookupAnswer) -> list[list[Any]]:
    """The rows of an answer as a client reads them: those in row form, and those of each page."""
    frames = answer.frames()
    reply = decode(frames[0], LookupReply)
    pages = found_pages(reply, frames[1:], SCHEMA)
    batches = [FoundBatch(SCHEMA, page.rows, page.positions) for page in pages]
    return [[row and tuple(row) for row in reply.rows], *(list(plain_rows(batch)) for batch in batches)]


BATCHES = pytest.mark.parametrize("batch_min", [100, 10_000])
"""A store that returns many rows as a batch, and one that does not."""


@BATCHES
def test_small_rows_are_one_answer_in_few_portions(batch_min: int) -> None:
    stored = SizedRows([10] * LOOKUP_KEYS_MAX, batch_min)
    (answer,) = stored.answers()
    assert answer == [*stored.rows.values()]
    assert stored.portions == [FIRST_KEYS, LOOKUP_KEYS_MAX - FIRST_KEYS]


@BATCHES
@pytest.mark.parametrize("size", [5_000, 60_000, 300_000])
def test_the_rows_of_large_keys_are_read_about_once(size: int, batch_min: int) -> None:
    """Each answer read the rows of all keys that were left."""
    stored = SizedRows([size] * LOOKUP_KEYS_MAX, batch_min)
    answers = stored.answers()
    assert [row for answer in answers for row in answer] == [*stored.rows.values()]
    per_answer = LOOKUP_REPLY_BYTES // size + 1
    assert sum(stored.portions) <= len(answers) * max(FIRST_KEYS, per_answer + 2)


@BATCHES
def test_rows_of_any_sizes_come_in_the_order_of_their_keys(batch_min: int) -> None:
    rng = random.Random(5)
    stored = SizedRows([int(10 ** rng.uniform(0, 5.5)) * (rng.random() < 0.8) for _ in KEYS], batch_min)
    answers = stored.answers()
    assert [row for answer in answers for row in answer] == [*stored.rows.values()]
    assert sum(stored.portions) < 3 * LOOKUP_KEYS_MAX + FIRST_KEYS * len(answers)
    assert max(stored.answer_bytes) < 3.2 * LOOKUP_REPLY_BYTES


@BATCHES
@pytest.mark.parametrize("rows_before", [0, 1, 5])
def test_keys_without_rows_say_little_of_the_size_of_later_rows(rows_before: int, batch_min: int) -> None:
    """All others were read in one step, whatever their size."""
    before = [10] * rows_before + [0] * (FIRST_KEYS - rows_before)
    stored = SizedRows([*before, *([60_000] * (LOOKUP_KEYS_MAX - FIRST_KEYS))], batch_min)
    answers = stored.answers()
    assert [row for answer in answers for row in answer] == [*stored.rows.values()]
    assert max(stored.portions) <= GROWTH_WITHOUT_ROWS * FIRST_KEYS


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
