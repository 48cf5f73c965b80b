"""The log engine that ``stelae plugins new`` makes keeps its contract as it stands, crashes and damage included.

Its own tests run the whole suite, except for the checks of a scenario that a log which is replaced whole never gets
into. That list is checked here."""

from __future__ import annotations

import importlib
import re
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
    "test_a_flipped_bit_before_a_later_entry_of_an_open_log_is_reported_or_harms_nothing": "no byte outlives a commit",
    "test_a_read_that_fails_is_an_error_and_not_damage": "entries are read from memory",
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


def test_its_own_tests_crash_it_and_leave_out_nothing_else(engine: type[WalEngine]) -> None:
    """They ran the basics only, and a plugin author whose change lost entries in a crash saw every test pass."""
    text = (Path(str(sys.modules[engine.__module__].__file__)).parents[2] / "tests/test_conformance.py").read_text()
    assert "class TestOnVirtualDisk(WalConformance):" in text
    assert set(re.findall(r"^    (test_\w+) = None$", text, re.MULTILINE)) == {*NEVER_HAPPENS}
