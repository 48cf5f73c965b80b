"""``set_engine`` changes one name in a ``node.toml``, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stelae.cli.engine_in_toml import set_engine
from stelae.config.contracts import EngineKind

CHANGED = [
    ('[engines]\nconsensus = "local"\n', '[engines]\nconsensus = "raft"\n'),
    ("[engines]\nconsensus='local' # small\n", '[engines]\nconsensus="raft" # small\n'),
    ('# a\r\n[engines]\r\n  consensus = "local"\r\nwal = "shared"', None),
    ('engines.consensus = "local"\n[node]\n', 'engines.consensus = "raft"\n[node]\n'),
    ('[other]\nconsensus = "local"\n[engines]\nconsensus = "local"', None),
    ('[engines]\nconsensus = "raft"', '[engines]\nconsensus = "raft"'),
]

UNCHANGED = [
    '[engines]\nwal = "shared"\n',
    "[node]\n",
    'engines = {wal = "shared", consensus = "local"}\n',
    '[engines]\n"consensus" = "local"\n',
    '[engines]\nconsensus = """local"""\n',
    "",
]


def change(path: Path) -> bool:
    return set_engine(str(path), EngineKind.CONSENSUS, "raft")


@pytest.mark.parametrize(("before", "after"), CHANGED)
def test_the_name_is_changed_and_nothing_else(tmp_path: Path, before: str, after: str | None) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(before.encode())
    path.chmod(0o640)
    assert change(path)
    wanted = after if after is not None else '"raft"'.join(before.rsplit('"local"', 1))
    assert path.read_bytes() == wanted.encode()
    assert path.stat().st_mode & 0o777 == 0o640 and os.listdir(tmp_path) == ["node.toml"]


def test_what_an_interrupted_change_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[engines]\nconsensus = "local"\n')
    (tmp_path / ".node.toml.tmp").write_text("half")
    assert change(path)
    assert path.read_text() == '[engines]\nconsensus = "raft"\n' and os.listdir(tmp_path) == ["node.toml"]


def test_the_new_file_never_has_wider_permissions_than_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, modes, rename = tmp_path / "node.toml", [], os.rename
    path.write_text('[engines]\nconsensus = "local"\n')
    path.chmod(0o600)

    def observed(source: str, target: str) -> None:
        modes.append(os.stat(source).st_mode & 0o777)
        rename(source, target)

    monkeypatch.setattr(os, "rename", observed)
    assert change(path) and modes == [0o600]


@pytest.mark.parametrize("text", UNCHANGED)
def test_a_file_without_a_line_for_the_key_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    assert not change(path)
    assert path.read_text() == text


def test_the_file_behind_a_link_is_changed_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "node.toml", tmp_path / "node.toml"
    real.write_text('[engines]\nconsensus = "local"\n')
    link.symlink_to(real)
    assert change(link)
    assert link.is_symlink() and real.read_text() == '[engines]\nconsensus = "raft"\n'


def test_a_file_that_cannot_be_replaced_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[engines]\nconsensus = "local"\n')

    def refuse(_source: str, _target: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    assert not change(path)
    assert path.read_text() == '[engines]\nconsensus = "local"\n' and os.listdir(tmp_path) == ["node.toml"]
