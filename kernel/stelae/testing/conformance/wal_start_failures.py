"""Conformance checks for log engines: a disk that fails at a start is an error and not damage (ADR 38).

A damaged replica is replaced, and never votes again under its node's uuid. So only bytes that were read successfully
and are wrong are damage. If something cannot be read, or written for lack of space, ``open`` fails with an error that
names the path, and the next start finds every log unchanged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, cast

from stelae.spi.errors import Corrupt, Foreign, Full, FutureVersion, Locked, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.services import Files
from stelae.spi.wal import Append, WalEngine
from stelae.testing.failing_files import READS, WRITES, FailingFiles, cannot_read, no_space
from stelae.testing.wal_harness import WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries

OTHER_ERRORS = (Corrupt, Foreign, FutureVersion, Locked)
"""Errors that a failing disk must not cause."""


class WalStartFailures:
    """Checks that run on any disk. The fixture ``harness`` is a :class:`WalHarness`, empty."""

    def test_a_start_that_cannot_read_fails_without_damage(self, harness: WalHarness) -> None:
        check_starts(harness, lambda engine: engine.close(), READS, cannot_read)

    def test_a_start_without_space_loses_nothing_and_damages_nothing(self, harness: WalHarness) -> None:
        check_starts(harness, lambda engine: engine.close(), WRITES, no_space)


def check_starts(
    harness: WalHarness, end: Callable[[WalEngine], Any], kind: frozenset[str], error: Callable[[str], StorageError]
) -> None:
    """Let each call of a start fail in turn; the next start has to find everything.

    Args:
        harness: an empty one.
        end: ends the engine before the start. It may lose only what was not synced.
        kind: names of the calls that fail.
        error: makes the error of a failing call from its path.
    """
    engine, held = _with_two_logs(harness)
    end(engine)
    failed = 0
    for after in count():
        twin = harness.fork(after)
        files = FailingFiles(twin.files, kind, after, error)
        what = f"call {after + 1} of {', '.join(sorted(kind))}"
        try:
            engine = twin.open(cast(Files, files))
        except StorageError as found:
            failed += 1
            assert not isinstance(found, OTHER_ERRORS), f"{what}: {found!r}"
            assert isinstance(found, Full) == isinstance(error(""), Full), f"{what}: {found!r}"
            assert found.path, f"{what}: no path in {found!r}"
        else:
            files.heal()
            _check_all(engine, held, what)
            engine.close()
        engine = twin.open()
        _check_all(engine, held, f"after {what}")
        commit(engine, Append(entries=entries(61, 2, term=3)))
        engine.close()
        if files.calls <= after:
            break
    assert failed or kind is WRITES, "no start ever failed"


def _with_two_logs(harness: WalHarness) -> tuple[WalEngine, dict[Any, Model]]:
    """Write two logs: one that was collected and has a replaced suffix, and one of a few entries."""
    engine, model = harness.open(), Model()
    for log in (LOG, OTHER):
        engine.create(log, ZERO)
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    for first in range(1, 60, 12):
        given = Append(entries=entries(first, 12, size_bytes=200), commit_hint=first)
        commit(engine, given)
        model = model.append(given)
    again = Append(entries=entries(50, 11, term=2), replace_from=50)
    commit(engine, again)
    base = engine.collect(LOG, 14)
    assert base <= OpId(1, 14)
    return engine, {LOG: model.append(again), OTHER: Model(ZERO, list(entries(1, 3)))}


def _check_all(engine: WalEngine, held: dict[Any, Model], what: str) -> None:
    assert set(engine.logs()) == set(held), f"{what}: the logs are {sorted(engine.logs())}"
    for log, model in held.items():
        damage = engine.logs()[log].damage
        assert damage is None, f"{what}: log {log} is damaged: {damage}"
        check_holds(engine, model, log)
