"""Small batches, so that every log of these tests takes many."""

from __future__ import annotations

import pytest

from stelae.convert import log_check


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_check, "BATCH_BYTES", 2000)
