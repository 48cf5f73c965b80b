"""``stelae cluster up`` of a cluster that exists: options that are for a new one only are not ignored in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.cli import run_cluster
from stelae.cli.node_formatting import format_here
from stelae.cli.run_cluster import run_up
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters


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
