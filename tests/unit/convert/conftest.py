"""Small batches, so that every log of these tests takes many."""

from __future__ import annotations

import pytest

from stelae.convert import reading


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 2000)
