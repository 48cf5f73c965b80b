"""A log that is gone is no log that verifies: the superblocks say which logs a node must have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stelae.spi.errors import Corrupt
from tests.unit.cli.stopped_nodes import on_disk
from tests.unit.cli.test_wal import document, invoke
from tests.unit.lifecycle.copy_node import tombstone_disk
from tests.unit.lifecycle.disk_node import OTHER, TABLET


def test_replicas_with_their_logs_are_well(whole: Path) -> None:
    found = document("verify", str(whole))
    assert found["ok"] and len(found["logs"]) == 2 and found["lost"] == []


@pytest.mark.parametrize("tablets", [(TABLET,), (TABLET, OTHER)], ids=["one", "all"])
def test_a_replica_without_its_log_is_not_well_and_is_not_converted(whole: Path, tablets: tuple[str, ...]) -> None:
    """With an empty folder in place of the logs, as of a disk that is not mounted, all logs were ok and converted."""
    for tablet in tablets:
        shutil.rmtree(whole / "wals" / tablet)
    found = document("verify", str(whole), code=1)
    assert not found["ok"] and len(found["logs"]) == 2 - len(tablets)
    assert [(one["tablet_id"], one["reason"]) for one in found["lost"]] == [
        (tablet, "the log is gone") for tablet in sorted(tablets)
    ]
    said = invoke("verify", str(whole), code=1)[1]
    assert f"tablet {TABLET}: the log is gone" in said
    for words in (("--dry-run",), ()):
        with pytest.raises(Corrupt, match=r"logs are lost .*; nothing was changed") as refused:
            invoke("convert", str(whole), "--to", "shared", *words)
        assert f"{TABLET}: the log is gone" in str(refused.value)
    assert not (whole / "quarantine").exists() or not [*(whole / "quarantine").iterdir()]


def test_a_deleted_replica_needs_no_log(tmp_path: Path) -> None:
    assert document("verify", str(on_disk(tombstone_disk(), tmp_path)))["lost"] == []
