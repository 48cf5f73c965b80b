"""What a recorded engine lives through: steps that two processes make out of the same few words.

The child that is recorded does the steps on the real engine. The one that judges does them on the fake engine, to
know what the log may hold at the moment of a crash; so a scenario is named, not handed over."""

from __future__ import annotations

import importlib
import random
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec

from stelae.sim.disk_faults import PowerLost
from stelae.sim.draw import below, chance, pick
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Durable, WalEngine
from stelae.testing.conformance.wal_crashes import (
    CrashRun,
    Step,
    a_full_life,
    a_name_used_again,
    append,
    collect,
    cool,
    create,
)
from stelae.testing.conformance.wal_crashes import unsynced as committed_without_sync
from stelae.testing.wal_harness import RealHarness, VirtualHarness
from stelae.testing.wal_memory import MemoryWal
from stelae.testing.wal_model import LOG, OTHER, Model, entries

HISTORY_STEPS = 30
QUARANTINE = "./quarantine/b.7"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a child needs to know of the engine and of the scenario.

    Attributes:
        engine: the engine's class, as ``module:name``.
        config: its settings, as JSON.
        scenario: a function that returns the steps, as ``module:name``.
        arguments: what it is called with.
        setup: functions without arguments that are called first, as ``module:name``; tests plant bugs so.
        also: a check of the scenario's own for what a crash left, as ``module:name``, called with a harness.
    """

    engine: str
    config: msgspec.Raw
    scenario: str
    arguments: tuple[int, ...] = ()
    setup: tuple[str, ...] = ()
    also: str = ""

    def steps(self) -> list[Step]:
        """The steps of the scenario."""
        found: list[Step] = named(self.scenario)(*self.arguments)
        return found

    def engine_type(self) -> type[WalEngine]:
        """The engine's class."""
        found: type[WalEngine] = named(self.engine)
        return found

    def settings(self) -> Any:
        """The engine's settings."""
        return msgspec.json.decode(self.config, type=self.engine_type().Config)

    def prepare(self) -> None:
        """Call what is to be called first."""
        for name in self.setup:
            named(name)()


class ScenarioStage(msgspec.Struct, frozen=True):
    """How far a scenario had come: so many steps were done, and whether the next had begun."""

    done: int = 0
    begun: bool = False


def named(reference: str) -> Any:
    """What ``module:name`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def reopen(engine: WalEngine, life: CrashRun) -> None:
    """Close cleanly and open again. Whoever does the steps does that; what was not synced is durable then."""
    for log, possible in life.possible.items():
        life.possible[log] = possible[-1:]


class _DeadEngine:
    """Whatever it is asked, power was lost before."""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **options: object) -> None:
            raise PowerLost(name)

        return call


def life_at(steps: list[Step], stage: ScenarioStage) -> CrashRun:
    """What a scenario had done at a stage, and what a crash may have made of the step under way."""
    engine, life = VirtualHarness(MemoryWal).open(), CrashRun()
    for step in steps[: stage.done]:
        step(engine, life)
    if stage.begun and steps[stage.done] is not reopen:
        with suppress(PowerLost):
            steps[stage.done](cast(WalEngine, _DeadEngine()), life)
    return life


# -- scenarios -------------------------------------------------------------------------------------


def nothing() -> list[Step]:
    """Opened and closed."""
    return []


def full_life() -> list[Step]:
    """Everything that an engine does, and a clean restart in the middle and at the end."""
    steps = a_full_life()
    return [*steps[:9], reopen, *steps[9:], reopen]


def unsynced_life(kept: int) -> list[Step]:
    """Commits without sync, made durable by a sync, by a commit with sync, and by closing; or by themselves."""
    unsynced = partial(committed_without_sync, kept=bool(kept))
    return [
        create(LOG, ZERO),
        synced(Append(entries=entries(1, 3))),
        *(unsynced(Append(entries=(one,))) for one in entries(4, 4, size_bytes=900)),
        unsynced(Append(entries=entries(6, 2, term=2), replace_from=6)),
        sync_all,
        unsynced(Append(entries=entries(8, 1, term=2))),
        synced(Append(entries=entries(9, 1, term=4))),
        unsynced(Append(entries=entries(10, 3, term=5, size_bytes=700))),
        reopen,
    ]


def name_used_again() -> list[Step]:
    """A name is used by one log after the other."""
    return [*a_name_used_again(), reopen]


def set_aside_life() -> list[Step]:
    """One of two logs is set aside, under the directory that the engine's own is in."""
    given = Append(entries=entries(1, 40, size_bytes=300))
    return [
        create(LOG, ZERO),
        create(OTHER, ZERO),
        append(a=Append(entries=entries(1, 2)), b=given),
        set_aside_other,
        append(a=Append(entries=entries(3, 2))),
        reopen,
    ]


def set_aside_other(engine: WalEngine, life: CrashRun) -> None:
    """Set the second log aside; a crash may leave it here. Relative: both children work beside the engine."""
    life.possible.pop(OTHER, None)
    engine.set_aside(OTHER, QUARANTINE)


def check_quarantine(harness: RealHarness, stage: ScenarioStage) -> None:
    """Once a log has gone it is in quarantine, whole; else setting it aside can be repeated."""
    engine = harness.open()
    if OTHER in engine.logs() and engine.logs()[OTHER].last.index and stage.done >= 3:
        engine.set_aside(OTHER, QUARANTINE)
    if stage.done >= 3:
        assert OTHER not in engine.logs()
        moved = harness.files.listdir(QUARANTINE)
        assert sum(len(harness.files.read_bytes(f"{QUARANTINE}/{name}")) for name in moved) > 12_000
    engine.close()


def history(seed: int, kept: int) -> list[Step]:
    """A random life of one log: appends, replacements, commits without sync, collection, restarts."""
    unsynced = partial(committed_without_sync, kept=bool(kept))
    rng, model, settled, collected = random.Random(seed), Model(), True, 0
    steps: list[Step] = [create(LOG, ZERO)]
    for _ in range(HISTORY_STEPS):
        kind = pick(rng, ("append",) * 6 + ("replace",) * 3 + ("collect", "cool", "reopen"))
        if kind in ("append", "replace"):
            given = _addition(rng, model) if kind == "append" else _replacement(rng, model, collected)
            settled = chance(rng, 0.7)
            steps.append(synced(given) if settled else unsynced(given))
            model = model.append(given)
        elif kind == "collect" and settled:
            collected = max(collected, below(rng, model.last.index + 1))
            steps.append(collect(collected))
        else:
            steps.append(cool if kind == "cool" and settled else reopen)
            settled = True
    return [*steps, reopen]


def _addition(rng: random.Random, model: Model) -> Append:
    last = model.last
    size = pick(rng, (0, 10, 200, 900, 5000))
    return Append(entries=entries(last.index + 1, 1 + below(rng, 6), max(1, last.term), size))


def _replacement(rng: random.Random, model: Model, collected: int) -> Append:
    """What replaces a suffix, now and then nothing."""
    first = collected + 1 + below(rng, model.last.index - collected + 1)
    count = 0 if chance(rng, 0.2) else 1 + below(rng, 6)
    size = pick(rng, (0, 10, 200, 900, 5000))
    return Append(entries=entries(first, count, model.last.term + 1, size), replace_from=first)


def synced(given: Append) -> Step:
    """Commit to the first log with sync, whatever of it was not synced before."""

    def step(engine: WalEngine, life: CrashRun) -> None:
        newest = life.possible[LOG][-1]
        life.possible[LOG] = life.possible[LOG] + newest.possible_after(given)
        assert isinstance(engine.commit({LOG: given}, sync=True)[LOG], Durable)
        life.possible[LOG] = [newest.append(given)]

    return step


def sync_all(engine: WalEngine, life: CrashRun) -> None:
    """Make everything durable that was committed without sync."""
    assert engine.commit({}, sync=True) == {}
    for log, possible in life.possible.items():
        life.possible[log] = possible[-1:]
