"""Conformance checks for log engines: a log that was set aside is read back."""

from __future__ import annotations

from stelae.spi.ids import OpId
from stelae.spi.log import Entry
from stelae.testing.wal_harness import WalHarness, fake_services
from stelae.testing.wal_model import LOG


def quarantine_of(harness: WalHarness) -> str:
    """Return a directory for a log that is set aside, beside the engine's."""
    return f"{harness.directory.rpartition('/')[0]}/quarantine/tablet-a.1"


def check_aside(harness: WalHarness, base: OpId, held: list[Entry]) -> None:
    """Check that a log in ``quarantine_of`` has exactly these entries, if the engine can read it (ADR 33).

    A replica is restored only if its log ends exactly where its tombstone says (durability rule 23). The log is read
    twice: reading must change nothing."""
    opened_aside = getattr(harness.engine_type, "opened_aside", None)
    if opened_aside is None:
        return
    services = fake_services(harness.files)
    for _ in range(2):
        with opened_aside(quarantine_of(harness), LOG, harness.config, services) as (state, found):
            assert (state.base, state.last) == (base, held[-1].op_id if held else base)
            assert list(found) == held
