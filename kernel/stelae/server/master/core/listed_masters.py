"""The masters that a ``node.toml`` lists, held against the masters that there are.

They are compared by uuid: a node may reach a master under another name than the others do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId
from stelae.spi.members import Member


def check_listed(listed: Iterable[Member], masters: Mapping[NodeId, str], source: str) -> None:
    """``ConfigError``, with both sides: the list in ``[masters]`` is not that of the masters, whose addresses are given
    by uuid. ``source``: who says which masters there are."""
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
