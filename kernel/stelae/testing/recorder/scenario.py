"""Scenarios of recorded engines: functions that return steps, which two processes find by the same name.

The recorded child does the steps on the real engine. The checking child does them on the fake engine, to know what the
log may hold at the moment of a crash."""

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
from stelae.testing.conformance.wal_crash_scenarios import (
    CrashRun,
    CrashStep,
    append,
    collect,
    cool,
    create,
    every_operation,
    reused_name,
)
from stelae.testing.conformance.wal_crash_scenarios import unsynced as committed_without_sync
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
        arguments: the function's arguments.
        setup: functions without arguments that are called first, as ``module:name``. Tests plant bugs with them.
        also: a further check of the state after a crash, as ``module:name``, called with harness and stage; or empty.
    """

    engine: str
    config: msgspec.Raw
    scenario: str
    arguments: tuple[int, ...] = ()
    setup: tuple[str, ...] = ()
    also: str = ""

    def steps(self) -> list[CrashStep]:
        """The steps of the scenario."""
        found: list[CrashStep] = named(self.scenario)(*self.arguments)
        return found

    def engine_type(self) -> type[WalEngine]:
        """The engine's class."""
        found: type[WalEngine] = named(self.engine)
        return found

    def settings(self) -> Any:
        """The engine's settings."""
        return msgspec.json.decode(self.config, type=self.engine_type().Config)

    def prepare(self) -> None:
        """Call the functions of ``setup``."""
        for name in self.setup:
            named(name)()


class ScenarioStage(msgspec.Struct, frozen=True):
    """How far a scenario has come: how many steps are done, and whether the next one has begun."""

    done: int = 0
    begun: bool = False


def named(reference: str) -> Any:
    """Return the object that ``module:name`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def reopen(engine: WalEngine, run: CrashRun) -> None:
    """Close the engine and open it again, which makes everything durable.

    The caller of the steps closes and opens the engine; this step only changes the run."""
    for log, possible in run.possible.items():
        run.possible[log] = possible[-1:]


class _EngineWithoutPower:
    """An engine on which every call raises ``PowerLost``."""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **options: object) -> None:
            raise PowerLost(name)

        return call


def run_until(steps: list[CrashStep], stage: ScenarioStage) -> CrashRun:
    """Return what a scenario had done at a stage, with what a crash may leave of the step under way."""
    engine, run = VirtualHarness(MemoryWal).open(), CrashRun()
    for step in steps[: stage.done]:
        step(engine, run)
    if stage.begun and steps[stage.done] is not reopen:
        with suppress(PowerLost):
            steps[stage.done](cast(WalEngine, _EngineWithoutPower()), run)
    return run


# -- scenarios -------------------------------------------------------------------------------------


def no_steps() -> list[CrashStep]:
    """Return no steps: the engine is opened and closed."""
    return []


def every_operation_and_restarts() -> list[CrashStep]:
    """Return steps with every operation of an engine, and a clean restart in the middle and at the end."""
    steps = every_operation()
    return [*steps[:9], reopen, *steps[9:], reopen]


def unsynced_commits(kept: int) -> list[CrashStep]:
    """Return commits without sync, made durable by a sync, by a commit with sync, and by closing.

    ``kept`` is 1 for an engine whose commits are durable without that, otherwise 0."""
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


def reused_name_and_restart() -> list[CrashStep]:
    """Return steps in which a name is used by one log after the other, and a restart."""
    return [*reused_name(), reopen]


def log_set_aside() -> list[CrashStep]:
    """Return steps that set one of two logs aside, into a directory beside the engine's."""
    given = Append(entries=entries(1, 40, size_bytes=300))
    return [
        create(LOG, ZERO),
        create(OTHER, ZERO),
        append(a=Append(entries=entries(1, 2)), b=given),
        set_aside_other,
        append(a=Append(entries=entries(3, 2))),
        reopen,
    ]


def set_aside_other(engine: WalEngine, run: CrashRun) -> None:
    """Set the second log aside; a crash may leave it in the engine.

    The path is relative: the working directory of both children is the one above the engine's."""
    run.possible.pop(OTHER, None)
    engine.set_aside(OTHER, QUARANTINE)


def check_quarantine(harness: RealHarness, stage: ScenarioStage) -> None:
    """Check that a log which is gone is complete in quarantine, and that setting it aside can be repeated."""
    engine = harness.open()
    if OTHER in engine.logs() and engine.logs()[OTHER].last.index and stage.done >= 3:
        engine.set_aside(OTHER, QUARANTINE)
    if stage.done >= 3:
        assert OTHER not in engine.logs()
        moved = harness.files.listdir(QUARANTINE)
        assert sum(len(harness.files.read_bytes(f"{QUARANTINE}/{name}")) for name in moved) > 12_000
    engine.close()


def random_history(seed: int, kept: int) -> list[CrashStep]:
    """Return random steps on one log: appends, replacements, commits without sync, collection, restarts."""
    unsynced = partial(committed_without_sync, kept=bool(kept))
    rng, model, settled, collected = random.Random(seed), Model(), True, 0
    steps: list[CrashStep] = [create(LOG, ZERO)]
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
    """Return an append that replaces a suffix, sometimes by nothing."""
    first = collected + 1 + below(rng, model.last.index - collected + 1)
    count = 0 if chance(rng, 0.2) else 1 + below(rng, 6)
    size = pick(rng, (0, 10, 200, 900, 5000))
    return Append(entries=entries(first, count, model.last.term + 1, size), replace_from=first)


def synced(given: Append) -> CrashStep:
    """Return a step that commits to the first log with sync. Earlier commits may be unsynced."""

    def step(engine: WalEngine, run: CrashRun) -> None:
        newest = run.possible[LOG][-1]
        run.possible[LOG] = run.possible[LOG] + newest.possible_after(given)
        assert isinstance(engine.commit({LOG: given}, sync=True)[LOG], Durable)
        run.possible[LOG] = [newest.append(given)]

    return step


def sync_all(engine: WalEngine, run: CrashRun) -> None:
    """Make every commit without sync durable."""
    assert engine.commit({}, sync=True) == {}
    for log, possible in run.possible.items():
        run.possible[log] = possible[-1:]
