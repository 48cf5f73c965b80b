"""Compares the masters that a ``node.toml`` lists with those of the cluster.

They are compared by uuid: a node may reach a master under another name than the others do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId
from stelae.spi.members import Member


def check_listed(listed: Iterable[Member], masters: Mapping[NodeId, str], source: str) -> None:
    """Raise ``ConfigError``, with both lists, if ``[masters]`` does not list the masters of the cluster.

    The addresses are by uuid. ``source`` names where the masters of the cluster are known from."""
    mine = {member.node_id: member.address for member in listed}
    if mine.keys() == masters.keys():
        return
    raise ConfigError(
        f"[masters] lists {_text(mine)}; {source} the masters are {_text(masters)}",
        hint="Put the masters of that record into [masters], in the node.toml of every node. The masters of a cluster "
        "are fixed when it begins. A directory of another cluster: correct [node] directory or [cluster] id.",
    )


def _text(masters: Mapping[NodeId, str]) -> str:
    return ", ".join(f"{address} ({node_id[:8]})" for node_id, address in masters.items()) or "none"
