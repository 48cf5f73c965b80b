"""The files of rules that a ``node.toml`` names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stelae.local.chaos.node_rules import RulesKind, enable_rules, rules_paths, set_rules
from stelae.local.node_process import NodeProcess
from stelae.spi.ids import NodeId


@pytest.fixture
def node(tmp_path: Path) -> NodeProcess:
    made = NodeProcess("tserver-1", NodeId("a" * 32), "127.0.0.1:1", tmp_path)
    made.config_path.write_text('[node]\nlisten = "127.0.0.1:1"\n')
    return made


def test_a_node_without_the_section_has_no_rules(node: NodeProcess) -> None:
    assert rules_paths(node) == {}


def test_every_kind_of_rules_has_a_file_of_its_own_in_the_folder_of_the_node(node: NodeProcess) -> None:
    enable_rules(node)
    paths = rules_paths(node)
    assert {*paths} == {*RulesKind}
    assert {path.parent for path in paths.values()} == {node.directory.resolve()}
    assert len({*paths.values()}) == len(RulesKind)


def test_only_the_kinds_that_are_named_are_enabled(node: NodeProcess) -> None:
    enable_rules(node, RulesKind.DISK)
    assert {*rules_paths(node)} == {RulesKind.DISK}


def test_rules_are_replaced_as_a_whole_and_nothing_else_is_left(node: NodeProcess) -> None:
    enable_rules(node, RulesKind.CLOCK)
    path = rules_paths(node)[RulesKind.CLOCK]
    set_rules(path, [{"ahead_ms": 1}])
    set_rules(path, [{"ahead_ms": 2}])
    assert json.loads(path.read_text()) == [{"ahead_ms": 2}]
    assert sorted(found.name for found in node.directory.iterdir()) == [path.name, "node.toml"]
