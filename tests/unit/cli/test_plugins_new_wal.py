"""The log engine that ``stelae plugins new`` makes keeps its contract as it stands, crashes and damage included.

Its own tests run the basics only. Here the whole suite runs, but for the checks that want to see a scenario which a
log that is replaced whole never gets into; that list is held to what it says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli import plugins_new
from stelae.cli.plugins_new import PluginNames
from stelae.spi.wal import WalEngine
from stelae.testing.conformance.wal import WalBasics, WalConformance
from stelae.testing.wal_harness import RealHarness, VirtualHarness

NEVER_HAPPENS = {
    "test_a_group_torn_into_sectors_leaves_a_prefix_of_it": "a commit is never torn: it is there, or it is not",
    "test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing": "no byte outlives a commit",
    "test_a_read_that_fails_is_an_error_and_not_damage": "entries are read from memory",
    "test_a_failed_sync_of_earlier_unsynced_commits_is_reported": "nothing is ever un-synced",
    "test_close_reports_a_log_that_fails_to_sync_and_closes_the_others": "nothing is left for closing to sync",
}


def checks(suite: type) -> list[str]:
    return sorted(name for name in dir(suite) if name.startswith("test_"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[WalEngine]]:
    """The engine as it is made, imported from where it was made."""
    place = tmp_path_factory.mktemp("new")
    names = PluginNames.of("wal", "lock")  # Also the name of a file in its directory: no other may have it.
    plugins_new._write(names, place / names.distribution)
    sys.path.insert(0, str(place / names.distribution / "src"))
    try:
        (engine,) = importlib.import_module(names.package).stelae_wal_engines()
        yield engine
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.split(".")[0] == names.package]:
            del sys.modules[name]


@pytest.mark.parametrize("check", sorted({*checks(WalConformance)} - {*NEVER_HAPPENS}))
def test_on_a_virtual_disk(engine: type[WalEngine], check: str) -> None:
    getattr(WalConformance(), check)(VirtualHarness(engine))


@pytest.mark.parametrize("check", checks(WalBasics))
def test_on_a_real_disk(engine: type[WalEngine], tmp_path: Path, check: str) -> None:
    getattr(WalBasics(), check)(RealHarness(engine, str(tmp_path)))


@pytest.mark.parametrize("check", NEVER_HAPPENS)
def test_a_check_that_is_left_out_would_not_meet_its_scenario(engine: type[WalEngine], check: str) -> None:
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        getattr(WalConformance(), check)(VirtualHarness(engine))
