"""The files of rules of one local node: names them in its ``node.toml``, and replaces them while the node runs."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from stelae.local.chaos.settings import ChaosSettings
from stelae.local.node_process import NodeProcess

SECTION = "chaos"


class RulesKind(StrEnum):
    """What the rules of a file are for. The values are the names of the settings in the section ``[chaos]``."""

    NETWORK = "network_rules"
    DISK = "disk_rules"
    CLOCK = "clock_rules"


assert {*RulesKind} == {field.name for field in fields(ChaosSettings)}


def enable_rules(node: NodeProcess, *kinds: RulesKind) -> None:
    """Name files of rules in the ``node.toml`` of a node that does not run and has no section ``[chaos]`` yet.

    Without ``kinds``, files of every kind are named. The files are in the node's folder, and do not exist yet."""
    lines = [f"{kind} = {json.dumps(str((node.directory / f'{kind}.json').resolve()))}" for kind in kinds or RulesKind]
    with node.config_path.open("a") as file:
        file.write("\n".join(["", f"[{SECTION}]", *lines, ""]))


def rules_paths(node: NodeProcess) -> dict[RulesKind, Path]:
    """Return the files of rules that the ``node.toml`` of a node names. A kind without a file is not in the result.

    Raises:
        OSError, ValueError: the file cannot be read, or is not TOML.
    """
    section = tomllib.loads(node.config_path.read_text()).get(SECTION, {})
    return {kind: Path(section[kind]) for kind in RulesKind if section.get(kind)}


def set_rules(path: Path, rules: Sequence[Mapping[str, Any]]) -> None:
    """Replace a file of rules in one step. The node follows within ``rules_file.LOOK_S``."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(rules))
    os.replace(new, path)
