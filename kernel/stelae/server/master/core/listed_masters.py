"""Compares the masters that a ``node.toml`` lists with the masters that there are, for a message.

They are compared by uuid, because a node may reach a master under another name than the others do. A difference is
harmless: the list is only for the first contact, and the newest committed config of the system tablet wins (ADR 80)."""

from __future__ import annotations

from collections.abc import Iterable

from stelae.protocol.members_text import members_text
from stelae.spi.members import Member, TabletConfig

NEXT_STEP = "the masters of the config count; list them in [masters] of every node.toml, for the next first contact"


def difference(listed: Iterable[Member], config: TabletConfig) -> str:
    """Return both sides and the next step if a list and a config differ; empty if they have the same masters."""
    mine = {member.node_id: member.address for member in listed}
    masters = {member.node_id: member.address for member in config.members}
    if mine.keys() == masters.keys():
        return ""
    sides = members_text(mine, masters), members_text(masters, mine)
    return f"[masters] lists {sides[0]}; by config {config.op_id} the masters are {sides[1]}: {NEXT_STEP}"
