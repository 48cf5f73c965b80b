"""``stelae cluster down``: how long it waits for which processes. The processes and the clock are models."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from stelae.cli import run_cluster
from stelae.cli.run_cluster import run_down
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess

FOREVER_S = 1e9


class Processes:
    """Processes of nodes, by name. ``stop_s``, ``kill_s``: how long each runs after SIGTERM and SIGKILL."""

    def __init__(self, stop_s: dict[str, float], kill_s: dict[str, float]) -> None:
        self.now_s = 0.0
        self.sent: list[tuple[float, str, signal.Signals]] = []
        self._delays_s = {signal.SIGTERM: stop_s, signal.SIGKILL: kill_s}
        self._ends_s = dict.fromkeys(stop_s, FOREVER_S)
        self._pids = {name: number for number, name in enumerate(stop_s, 1000)}

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def running_pid(self, node: NodeProcess) -> int | None:
        return self._pids[node.name] if self._ends_s.get(node.name, 0) > self.now_s else None

    def signal(self, pid: int, number: signal.Signals) -> None:
        (name,) = (name for name, known in self._pids.items() if known == pid)
        self.sent.append((round(self.now_s), name, number))
        self._ends_s[name] = min(self._ends_s[name], self.now_s + self._delays_s[number].get(name, 0))

    def running(self) -> list[str]:
        return [name for name, end_s in self._ends_s.items() if end_s > self.now_s]


def processes(
    monkeypatch: pytest.MonkeyPatch, stop_s: dict[str, float], kill_s: dict[str, float] | None = None
) -> Processes:
    """Let the command see these processes and their clock instead of the machine's."""
    model = Processes(stop_s, kill_s or {})
    monkeypatch.setattr(run_cluster, "time", model)
    monkeypatch.setattr(run_cluster, "_signal", model.signal)
    monkeypatch.setattr(NodeProcess, "running_pid", lambda node: model.running_pid(node))
    return model


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    options = ClusterOptions(node_count=2)
    ClusterWithMasters.create(tmp_path / "c", options, masters=1, formatted=lambda node, node_id: None)
    return tmp_path / "c"


def down(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[list[str]]]:
    """The exit code, and the nodes that were stopped, killed, and that still run."""
    code = run_down(directory, 20, as_json=True)
    found = json.loads(capsys.readouterr().out)
    return code, [found["stopped"], found["killed"], found["running"]]


def test_slow_tablet_servers_leave_the_masters_their_time(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The masters were killed at once, because both groups had one deadline."""
    model = processes(monkeypatch, {"tserver-1": 15, "tserver-2": FOREVER_S, "master-1": 15})
    assert down(directory, capsys) == (0, [["tserver-1", "tserver-2", "master-1"], ["tserver-2"], []])
    assert model.sent == [
        (0, "tserver-1", signal.SIGTERM),
        (0, "tserver-2", signal.SIGTERM),
        (20, "tserver-2", signal.SIGKILL),
        (20, "master-1", signal.SIGTERM),
    ]


def test_the_command_ends_when_a_killed_process_has_ended(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A `stelae cluster up` right after it took the dying node for a running one, and did not start it."""
    model = processes(monkeypatch, {"master-1": FOREVER_S}, {"master-1": 3})
    assert down(directory, capsys) == (0, [["master-1"], ["master-1"], []])
    assert model.running() == []


def test_a_process_that_survives_is_told_and_does_not_keep_the_masters_running(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that waits for a broken disk ends when the disk answers, if ever."""
    model = processes(monkeypatch, {"tserver-1": FOREVER_S, "master-1": 0}, {"tserver-1": FOREVER_S})
    assert down(directory, capsys) == (1, [["master-1"], ["tserver-1"], ["tserver-1"]])
    assert model.running() == ["tserver-1"] and model.now_s < 60
    assert run_down(directory, 20, as_json=False) == 1
    assert "still run after SIGKILL: tserver-1" in capsys.readouterr().err


def test_without_a_running_process_there_is_nothing_to_wait_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = processes(monkeypatch, {})
    assert down(directory, capsys) == (0, [[], [], []]) and model.now_s == 0
