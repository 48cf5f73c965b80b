"""Rules by which a wall clock goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.local.chaos import rules_file
from stelae.local.chaos.clock_rules import AHEAD_MS_MAX, SkewedClock
from stelae.local.chaos.node_rules import set_rules
from stelae.spi.errors import ConfigError


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_file, "LOOK_S", 0.0)


class StoppedClock:
    """A machine whose clocks stand still."""

    def monotonic_us(self) -> int:
        return 5

    def wall_us(self) -> int:
        return 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clock.json"


def test_without_a_file_or_with_an_empty_one_the_clock_is_right(path: Path) -> None:
    clock = SkewedClock(str(path), StoppedClock())
    assert clock.wall_us() == 1_000_000
    set_rules(path, [])
    assert clock.wall_us() == 1_000_000


def test_the_wall_clock_is_ahead_or_behind_and_right_again(path: Path) -> None:
    clock = SkewedClock(str(path), StoppedClock())
    set_rules(path, [{"ahead_ms": 300}])
    assert clock.wall_us() == 1_300_000
    set_rules(path, [{"ahead_ms": -300}])
    assert clock.wall_us() == 700_000
    path.unlink()
    assert clock.wall_us() == 1_000_000


def test_the_monotonic_clock_is_never_wrong(path: Path) -> None:
    set_rules(path, [{"ahead_ms": 300}])
    assert SkewedClock(str(path), StoppedClock()).monotonic_us() == 5


@pytest.mark.parametrize(
    ("rules", "fact"),
    [
        ([{"ahead_ms": AHEAD_MS_MAX + 1}], "a rule puts the clock 86400001 ms ahead"),
        ([{"ahead_s": 1}], "the rules of the clock cannot be read"),
        ([{"ahead_ms": 1}, {"ahead_ms": 2}], "there are 2 rules"),
    ],
)
def test_rules_that_are_not_possible_are_refused(path: Path, rules: list[dict[str, int]], fact: str) -> None:
    set_rules(path, rules)
    with pytest.raises(ConfigError, match=fact):
        SkewedClock(str(path), StoppedClock()).wall_us()
