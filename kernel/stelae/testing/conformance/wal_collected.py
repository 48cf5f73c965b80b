"""A log that is collected as it goes: an engine may write again where it has let go, and nothing may show of that.

What was collected never comes back, and who looks at it still sees it."""

from __future__ import annotations

from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry
from stelae.spi.wal import Append, WalEngine, WalSnapshot
from stelae.testing.conformance.wal_basics import needs
from stelae.testing.conformance.wal_closed import WalClosed
from stelae.testing.conformance.wal_crashes import FATES, Step, append, check_after_crash, collect, create, moments
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, commit, entries

GROUPS = 90
HELD = 6
BODY_BYTES = 3500


def collected_as_it_goes() -> list[Step]:
    """Groups of one size, so that what is written later would stand just where something older did."""
    steps = [create(LOG, ZERO)]
    for index in range(1, GROUPS + 1):
        steps.append(append(a=Append(entries=entries(index, 1, size_bytes=BODY_BYTES), commit_hint=index)))
        if index % 4 == 0 and index > HELD:
            steps.append(collect(index - HELD))
    return steps


def go_on(engine: WalEngine, upto: int) -> None:
    """Append groups of one entry up to an index, and collect all but some of them."""
    for index in range(engine.logs()[LOG].last.index + 1, upto + 1):
        commit(engine, Append(entries=entries(index, 1, size_bytes=BODY_BYTES), commit_hint=index))
        if index % 4 == 0 and index > HELD:
            engine.collect(LOG, index - HELD)


def _shown(view: WalSnapshot) -> list[Entry]:
    try:
        return list(view.entries())
    except Corrupt as error:
        raise AssertionError(f"the view is damaged: {error}") from error


class WalCollected(WalClosed):
    """Adds checks on a log that is collected while it is written."""

    def test_a_crash_while_a_log_is_collected_as_it_goes_keeps_what_was_acknowledged(
        self, harness: VirtualHarness
    ) -> None:
        steps = collected_as_it_goes()
        for operations, moment in enumerate(moments(harness, steps)):
            check_after_crash(*moment.crashed(harness, operations, FATES[operations % len(FATES)]))

    def test_a_view_reads_on_while_what_it_shows_is_collected_and_more_is_written(
        self, harness: VirtualHarness
    ) -> None:
        needs(harness, "snapshot")
        engine = harness.open()
        engine.create(LOG, ZERO)
        go_on(engine, 2 * GROUPS)
        state = engine.logs()[LOG]
        held = engine.read(LOG, state.base.index + 1, state.last.index + 1, READ_BYTES)
        view = engine.snapshot(LOG, state.base.index + 1)
        go_on(engine, 5 * GROUPS)
        assert engine.logs()[LOG].base > state.last, "all that the view shows is collected"
        assert _shown(view) == held
        view.release()
        assert engine.logs()[LOG].damage is None
        engine.close()


__all__ = ["WalCollected"]
