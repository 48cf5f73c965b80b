"""Which folders are the backups of a table, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stelae.client.times import to_datetime
from stelae_spark_sink.backup import backup_root, functions
from stelae_spark_sink.backup.backup_root import BackupRoot, State
from stelae_spark_sink.backup.chains import NoBackup
from stelae_spark_sink.backup.folder_names import backup_folder, table_folder
from stelae_spark_sink.backup.manifest import Kind
from tests.unit.spark_sink.backups import at_second, backup

ROOT = "/backups"


class MemoryFiles:
    """The files of one folder. Stands in for ``HadoopFiles``."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self._content = content

    def absolute(self, path: str) -> str:
        return path

    def folders(self, path: str) -> Sequence[str]:
        inside = [name[len(path) + 1 :] for name in self._content if name.startswith(f"{path}/")]
        return sorted({name.partition("/")[0] for name in inside if "/" in name})

    def read(self, path: str) -> bytes | None:
        return self._content.get(path)

    def remove(self, path: str) -> None:
        for name in [name for name in self._content if name == path or name.startswith(f"{path}/")]:
            del self._content[name]


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of the folder, by path."""
    made: dict[str, bytes] = {}
    monkeypatch.setattr(backup_root, "HadoopFiles", lambda spark: MemoryFiles(made))
    return made


def root() -> BackupRoot:
    return BackupRoot(None, ROOT)  # type: ignore[arg-type]


def store(content: dict[str, bytes], table: str, table_id: str, second: int, **more: Any) -> str:
    """Store a full backup of a table; return its folder."""
    manifest = backup(f"{table_id}-{second}", second, table=table, table_id=table_id).manifest
    name = backup_folder(at_second(second), Kind.FULL, f"{second:08x}")
    folder = f"{ROOT}/{table_folder(table, table_id)}/{name}"
    content[f"{folder}/manifest.json"] = more.get("manifest", manifest.to_bytes())
    content[f"{folder}/rows/part-0.parquet"] = b"rows"
    return folder


def folders(table: str | None) -> Mapping[str, State]:
    return {entry.folder: entry.state for entry in root().entries(table)}


def test_clean_leaves_the_backups_of_a_table_whose_folder_begins_in_the_same_way(content: dict[str, bytes]) -> None:
    """``web.hits`` and ``web_hits`` both have folders that begin with ``web_hits.``: those of both were removed."""
    own = [store(content, "web_hits", "t1", second) for second in (1, 2)]
    other = [store(content, "web.hits", "t2", second) for second in (1, 2)]
    before = to_datetime(at_second(9))
    removed = functions.clean_backups(None, ROOT, "web_hits", before=before)  # type: ignore[arg-type]
    assert [one.folder for one in removed] == [own[0]]
    assert folders(None) == dict.fromkeys([own[1], *other], State.WHOLE)


def test_a_damaged_backup_of_another_table_does_not_concern_a_table(content: dict[str, bytes]) -> None:
    """Restore, verify and clean of ``web_hits`` failed for it."""
    own = store(content, "web_hits", "t1", 1)
    store(content, "web.hits", "t2", 1)
    store(content, "web.hits", "t2", 2, manifest=b"{}")
    assert [one.folder for one in root().backups("web_hits")] == [own]
    assert folders("web_hits") == {own: State.WHOLE}


def test_the_backups_under_other_names_and_those_without_a_manifest_are_of_the_table(content: dict[str, bytes]) -> None:
    first, renamed = store(content, "hits", "t1", 1), store(content, "web.hits", "t1", 2)
    unfinished = store(content, "web.hits", "t1", 3)
    del content[f"{unfinished}/manifest.json"]
    damaged = store(content, "hits", "t1", 4, manifest=b"{}")
    assert folders("web.hits") == folders("hits") == {
        first: State.WHOLE, damaged: State.DAMAGED, renamed: State.WHOLE, unfinished: State.UNFINISHED
    }  # fmt: skip
    del content[f"{renamed}/manifest.json"]
    assert len(folders("web.hits")) == 4, "its first backup under the new name was stopped"


def test_the_tables_with_backups_are_named_where_a_table_has_none(content: dict[str, bytes]) -> None:
    """The message was: tables with backups: none."""
    store(content, "web.hits", "t2", 1)
    store(content, "visits", "t3", 1, manifest=b"{}")
    with pytest.raises(NoBackup, match=r"no backup of a table 'webhits'; tables with backups: web\.hits$"):
        functions.verify_backups(None, ROOT, "webhits")  # type: ignore[arg-type]
