"""Merges that fail to read: they begin again, and only too many failures in a row, or damage, fail the replica."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from stelae.host.flush_and_collect import Flusher
from stelae.host.read_faults import READ_ERRORS_MAX
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.store import Edit
from tests.unit.host.test_flush_and_collect import Caught, Compacting, Node


class FailingMerges(Compacting):
    """Its merges fail as often as ``errors`` has something to raise, and then work."""

    errors: ClassVar[list[StorageError]] = []

    def compact(self) -> Edit | None:
        if self.errors:
            raise self.errors.pop()
        return super().compact()


def failing_merges(*errors: StorageError) -> tuple[Node, Flusher]:
    """A flush was made, and the merge after it has failed once."""
    node = Node.create()
    node.engines, node.apply_pool = replace(node.engines, store=FailingMerges), Caught()
    flusher = node.run(10, frozenset(), [])
    FailingMerges.errors = list(errors)
    flusher.flush()
    node._drive(flusher.writer)
    return node, flusher


EIO = StorageError("Input/output error", path="/node/data/t/1")


@pytest.mark.parametrize("count", [1, READ_ERRORS_MAX - 1])
def test_a_merge_with_failed_reads_is_tried_again(count: int) -> None:
    node, flusher = failing_merges(*[EIO] * count)
    for _ in range(count):
        assert not flusher.busy and node.failures == []
        flusher.compact()
    assert FailingMerges.errors == [] and node.file.load().manifest == b"rows-10xx"


def test_a_replica_whose_merges_fail_to_read_too_often_in_a_row_fails() -> None:
    node, flusher = failing_merges(*[EIO] * READ_ERRORS_MAX)
    for _ in range(READ_ERRORS_MAX - 1):
        assert node.failures == []
        flusher.compact()
    (failure,) = node.failures
    assert failure.startswith("the store cannot merge its files: ") and "Input/output error" in failure


def test_damage_that_a_merge_finds_lets_the_replica_go_on_until_a_leader_has_handed_over() -> None:
    node, flusher = failing_merges(Corrupt("a bad page", path="/node/data/t/1", offset=4096))
    (failure,) = node.failures
    assert "cannot merge its files" in failure and "/node/data/t/1@4096" in failure
    ran: list[str] = []
    flusher.applier.between_groups(lambda: "applies", ran.append)
    assert ran == ["applies"]
