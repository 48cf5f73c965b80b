"""What a start makes of a disk that fails: that something cannot be read now is no damage (ADR 38).

A damaged replica is replaced, and never votes again under its node's uuid. So damage is what was read back whole and
is wrong. Whatever cannot be read, or written for want of space, ends ``open`` with an error that names the place, and
the next start finds every log as it was."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, cast

from stelae.spi.errors import Corrupt, Foreign, Full, FutureVersion, Locked, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.services import Files
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_failing import READS, WRITES, FailingFiles, cannot_read, no_space
from stelae.testing.wal_harness import WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries

NO_EXCUSE = (Corrupt, Foreign, FutureVersion, Locked)
"""What an error of a disk must not be taken for."""


class WalOpening:
    """Checks that run on any disk. The fixture ``harness`` is a :class:`WalHarness`, empty."""

    def test_a_start_that_cannot_read_is_an_error_and_no_damage(self, harness: WalHarness) -> None:
        check_starts(harness, lambda engine: engine.close(), READS, cannot_read)

    def test_a_start_without_space_loses_nothing_and_damages_nothing(self, harness: WalHarness) -> None:
        check_starts(harness, lambda engine: engine.close(), WRITES, no_space)


def check_starts(
    harness: WalHarness, end: Callable[[WalEngine], Any], kind: frozenset[str], error: Callable[[str], StorageError]
) -> None:
    """Let a start fail in one call after the other; the start after it has to find everything.

    Args:
        end: how the engine ended before; it may take away no more than what was not synced.
        kind: names of the calls that fail.
        error: what they fail with, given a path.
    """
    engine, held = _lived(harness)
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
            assert not isinstance(found, NO_EXCUSE), f"{what}: {found!r}"
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


def _lived(harness: WalHarness) -> tuple[WalEngine, dict[Any, Model]]:
    """Two logs: one that was collected and has a replaced suffix, and one of a few entries."""
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
    assert set(engine.logs()) == set(held), f"{what}: there are {sorted(engine.logs())}"
    for log, model in held.items():
        damage = engine.logs()[log].damage
        assert damage is None, f"{what}: log {log} is damaged: {damage}"
        check_holds(engine, model, log)
