"""In `make soak` the suites draw more histories: they belong to the product, and know nothing of our checks."""

from __future__ import annotations

import pytest

from stelae.testing.conformance import store_apply, wal_generated, wal_histories
from tests.at_length import times

store_apply.HISTORIES = times(store_apply.HISTORIES)
wal_generated.HISTORIES = times(wal_generated.HISTORIES)
wal_histories.HISTORIES = times(wal_histories.HISTORIES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the checks that draw histories."""
    for item in items:
        if isinstance(item, pytest.Function) and item.originalname.startswith("test_random_"):
            item.add_marker(pytest.mark.fuzzer)
