"""The suite's checks of durable flushes, on a store that flushes."""

from __future__ import annotations

from typing import Any, Self

import pytest

from stelae.spi.ids import OpId
from stelae.testing.conformance.store import StoreConformance, StoreHarness
from tests.conformance.durable_store import DurableStore


class TestDurable(StoreConformance):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(DurableStore)


class RunsAhead(DurableStore):
    """Opens the newest file, whether or not the superblock has the edit that belongs to it."""

    @classmethod
    def open(cls, directory: str, manifest: bytes, flushed: OpId, schemas: Any, config: Any, services: Any) -> Self:
        found = services.files.listdir(directory) if services.files.exists(directory) else []
        newest = max((int(name.removeprefix("rows-")) for name in found), default=flushed.index)
        name = f"rows-{newest}".encode() if newest else manifest
        return super().open(directory, name, OpId(1, newest) if newest else flushed, schemas, config, services)


def test_the_suite_catches_a_store_that_is_ahead_of_its_superblock() -> None:
    """The rows were right. But the kernel applies the entries again, for the results of repeated requests."""
    check = StoreConformance.test_an_edit_that_was_not_committed_leaves_the_previous_state
    check(StoreConformance(), StoreHarness(DurableStore))
    with pytest.raises(AssertionError, match=r"has applied 1\.2, and only 1\.1 is in the superblock"):
        check(StoreConformance(), StoreHarness(RunsAhead))
