"""A run without processes: what it leaves in a cluster that others use, and what its report says then."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.spi.errors import Unavailable
from stelae_chaos import run as module
from stelae_chaos.history import LastRows
from stelae_chaos.operations import ChaosFinding
from stelae_chaos.report import ChaosReport
from stelae_chaos.run import ChaosRun, NoFaultPossible, RunOptions


class Stage:
    """A substitute for the cluster of a run, with what was done to it."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.drop_error: Exception | None = None
        self.addresses: list[str] = []
        self.nodes = self.masters = self.servers = ()

    def check(self) -> None:
        """All nodes run."""

    async def create(self, client: Any, names: Any, replicas: int) -> None:
        self.created += names.all()

    async def drop(self, client: Any, names: Any) -> None:
        if self.drop_error is not None:
            raise self.drop_error
        self.created.clear()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()

    @asynccontextmanager
    async def connected() -> Any:
        async def get_table(name: str) -> Any:
            return SimpleNamespace(tablets=[SimpleNamespace(tablet_id=name)])

        yield SimpleNamespace(catalog=SimpleNamespace(get_table=get_table))

    async def connect(*_: Any, **__: Any) -> Any:
        return connected()

    async def nothing(*_: Any, **__: Any) -> Any:
        return []

    async def read(*_: Any) -> LastRows:
        return LastRows([], [], [])

    monkeypatch.setattr(module, "until_served", nothing)
    monkeypatch.setattr(module, "connect_async", connect)
    monkeypatch.setattr(module, "Connection", SimpleNamespace(connect=connect))
    monkeypatch.setattr(module, "create_tables", made.create)
    monkeypatch.setattr(module, "drop_tables", made.drop)
    monkeypatch.setattr(module, "settle", nothing)
    monkeypatch.setattr(module, "ChaosTables", SimpleNamespace(open=nothing))
    monkeypatch.setattr(module, "read_everything", read)
    monkeypatch.setattr(ChaosRun, "_load", nothing)
    monkeypatch.setattr(ChaosReport, "require_load", lambda report: None)
    return made


def made(stage: Stage, *kinds: str) -> ChaosRun:
    options = RunOptions(seconds=1, seed=1, kinds=kinds, clients=1, name="x", outlive=True)
    listener = SimpleNamespace(phase=lambda *_: None, event=lambda *_: None)
    return ChaosRun(stage, options, listener)  # type: ignore[arg-type]


def test_a_run_without_a_possible_fault_leaves_no_tables(stage: Stage) -> None:
    with pytest.raises(NoFaultPossible):
        asyncio.run(made(stage, "lose-disk").run())
    assert stage.created == []


def test_a_clean_run_drops_its_tables(stage: Stage) -> None:
    report = asyncio.run(made(stage, "kill-one").run())
    assert report.clean and stage.created == []


def test_tables_that_cannot_be_dropped_are_a_finding_of_the_report(stage: Stage) -> None:
    stage.drop_error = Unavailable("no master answers")
    report = asyncio.run(made(stage, "kill-one").run())
    fact = "the tables of the run, chaos-x-*, cannot be dropped: no master answers"
    assert report.settled and report.findings == [ChaosFinding(check="health", key="", fact=fact)]
