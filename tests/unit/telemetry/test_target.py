"""The file that tells Prometheus where a node's metrics are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stelae.telemetry.target_file import TARGET_FILE, read_target, remove_target, write_target


def test_it_is_a_target_file_of_file_based_discovery(tmp_path: Path) -> None:
    write_target(str(tmp_path), "127.0.0.1:9", {"role": "master"})
    assert json.loads((tmp_path / TARGET_FILE).read_text()) == [
        {"targets": ["127.0.0.1:9"], "labels": {"role": "master"}}
    ]
    assert read_target(str(tmp_path)) == "127.0.0.1:9"
    assert [path.name for path in tmp_path.iterdir()] == [TARGET_FILE]


def test_it_is_replaced_and_removed(tmp_path: Path) -> None:
    write_target(str(tmp_path), "127.0.0.1:9", {})
    write_target(str(tmp_path), "127.0.0.1:10", {})
    assert read_target(str(tmp_path)) == "127.0.0.1:10"
    remove_target(str(tmp_path))
    remove_target(str(tmp_path))
    assert read_target(str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "[1]", '[{"targets": []}]', '[{"targets": [7]}]', "\udcff"])
def test_a_file_that_says_nothing_gives_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / TARGET_FILE).write_bytes(text.encode(errors="surrogateescape"))
    assert read_target(str(tmp_path)) is None
