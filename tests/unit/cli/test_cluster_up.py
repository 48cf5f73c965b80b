"""``stelae cluster up`` of a cluster that exists: options that are for a new one only are not ignored in silence."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stelae.cli import run_cluster
from stelae.cli.node_formatting import format_here
from stelae.cli.run_cluster import run_up
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import Unavailable


@pytest.mark.parametrize(
    ("servers", "engines", "ignored"),
    [(5, {}, ["5 tablet servers"]), (2, {"wal": "lmdb"}, ["--wal lmdb"]), (2, {}, []), (3, {}, [])],
)
def test_options_for_a_new_cluster_are_named_if_the_cluster_exists(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    servers: int,
    engines: dict[str, str],
    ignored: list[str],
) -> None:
    """`cluster up --servers 5` of a cluster of two said nothing, and started two. Three is the default: perhaps it was
    not asked for."""

    async def served(*_: object) -> None:
        return None

    ClusterWithMasters.create(tmp_path / "c", ClusterOptions(node_count=2), masters=3, formatted=format_here)
    monkeypatch.setattr(ClusterWithMasters, "start", lambda *_, **__: None)
    monkeypatch.setattr(run_cluster, "until_served", served)
    assert run_up(tmp_path / "c", 3, servers, engines, 1.0, as_json=False) == 0
    said = capsys.readouterr().err
    assert [text for text in ignored if text not in said] == []
    assert ("the cluster exists" in said) is bool(ignored)
    assert ("stelae cluster add-server" in said) is (servers == 5)


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), Unavailable("the cluster does not serve yet")])
def test_processes_that_keep_running_after_an_interrupt_or_an_error_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: BaseException
) -> None:
    """Ctrl-C said "interrupted", and the nodes ran on. An error about one node said nothing of the others."""

    async def never_served(*_: object, **__: object) -> None:
        raise ending

    monkeypatch.setattr(ClusterWithMasters, "start", lambda *_, **__: None)
    monkeypatch.setattr(NodeProcess, "running_pid", lambda node: 7 if node.name == "tserver-1" else None)
    monkeypatch.setattr(run_cluster, "until_served", never_served)
    with pytest.raises(type(ending)):
        run_up(tmp_path / "c", 1, 1, {}, 1.0, as_json=False)
    said = capsys.readouterr().err
    assert "tserver-1 keep running" in said and f"`stelae cluster down {tmp_path / 'c'}`" in said
    monkeypatch.setattr(NodeProcess, "running_pid", lambda node: None)
    with pytest.raises(type(ending)):
        run_up(tmp_path / "c", 1, 1, {}, 1.0, as_json=False)
    assert "keep running" not in capsys.readouterr().err


def test_a_full_disk_is_named_if_the_cluster_does_not_serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The logs of the nodes were empty, because there was no space for them either. Nothing named the disk."""

    async def never_served(*_: object, **__: object) -> None:
        raise Unavailable("the cluster does not serve yet")

    monkeypatch.setattr(ClusterWithMasters, "start", lambda *_, **__: None)
    monkeypatch.setattr(run_cluster, "until_served", never_served)
    for free_bytes in (300_000, 1 << 30):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free_bytes: SimpleNamespace(free=free))
        with pytest.raises(Unavailable):
            run_up(tmp_path / "c", 1, 1, {}, 1.0, as_json=False)
        assert ("is full: 292 KiB are free" in capsys.readouterr().err) is (free_bytes == 300_000)
