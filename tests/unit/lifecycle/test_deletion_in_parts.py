"""A deletion whose log engine copies the log in parts: each part is a job of its own, so appends run in between."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.spi.errors import StelaeError
from stelae.spi.ids import LogId
from tests.unit.lifecycle.disk_node import TABLET
from tests.unit.lifecycle.test_tablet_copy import lagging


def test_the_log_is_copied_in_as_many_jobs_as_the_engine_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = lagging()
    calls: list[tuple[int, str]] = []
    jobs = [0]
    submit_job, set_aside = node.submit_job, node.wal.set_aside

    def counted(work: Any, done: Any) -> None:
        jobs[0] += 1
        submit_job(work, done)

    def copy_aside(log: LogId, directory: str) -> bool:
        assert not node.disk.exists(directory), "it comes before set_aside"
        calls.append((jobs[0], directory))
        return len(calls) < 4

    def note_set_aside(log: LogId, directory: str) -> None:
        calls.append((jobs[0], directory))
        set_aside(log, directory)

    monkeypatch.setattr(node, "submit_job", counted)
    monkeypatch.setattr(node.wal, "copy_aside", copy_aside)
    monkeypatch.setattr(node.wal, "set_aside", note_set_aside)
    answers: list[StelaeError | None] = []
    node.manager.delete(TABLET, "evicted", answers.append, seen=None)
    assert answers == [None]
    first, place = calls[0]
    assert calls == [(first + number, place) for number in range(5)]
