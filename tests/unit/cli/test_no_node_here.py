"""A command for a stopped node that is given another directory says which one it may mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.cli.no_node_here import NoNodeHere
from stelae.cli.offline_node import OfflineNode
from tests.unit.cli.test_commands import document, run


def refusal(directory: Path) -> str:
    with pytest.raises(NoNodeHere) as refused, OfflineNode.opened(str(directory), None):
        raise AssertionError("there is no node")
    return str(refused.value)


def node(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "instance").write_bytes(b"x")
    return directory


def test_the_folder_of_a_node_toml_leads_to_the_directory_of_the_node(tmp_path: Path) -> None:
    """The message proposed to create another node in the folder of the first."""
    data, config = node(tmp_path / "tserver-1" / "data"), tmp_path / "tserver-1" / "node.toml"
    config.write_text("")
    said = refusal(tmp_path / "tserver-1")
    assert (
        "it has no file 'instance'" in said and f"; pass the directory of a node: {data}, or --config {config}" in said
    )
    assert "stelae fs format " not in said.replace("`stelae fs format`", "")


def test_a_folder_with_many_nodes_names_some_of_them(tmp_path: Path) -> None:
    for number in range(1, 8):
        node(tmp_path / f"tserver-{number}" / "data")
    said = refusal(tmp_path)
    assert said.count("/data") == 5 and said.endswith("or one of 2 more")


def test_a_directory_without_any_node_says_where_the_right_one_is_written(tmp_path: Path) -> None:
    assert refusal(tmp_path).endswith("; pass the [node] directory of its node.toml")
    assert "no file 'instance'" in str(NoNodeHere(str(tmp_path / "absent")))


@pytest.mark.parametrize("words", [("fs", "uuid"), ("tablet", "quarantine", "list")], ids=" ".join)
def test_commands_that_only_read_a_directory_name_the_right_one_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    """They proposed to create another node: stelae fs format, with the folder that was given."""
    data = node(tmp_path / "data")
    done = run(*words, str(tmp_path), "--json")
    assert done.returncode == 1 and document(done)["code"] == "NO_NODE_HERE"
    assert document(done)["error"].endswith(f"; pass the directory of a node: {data}")
