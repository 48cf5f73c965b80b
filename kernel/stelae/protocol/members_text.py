"""Lists of members or masters in words, for messages that compare two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stelae.spi.ids import NodeId

DIGITS = 8
"""How many digits of a uuid a list has, if they are enough to tell all members apart."""


def members_text(members: Mapping[NodeId, str], beside: Iterable[NodeId] = ()) -> str:
    """Return the addresses of members, each with the first digits of its uuid.

    A uuid is shown completely if another one begins with the same digits. ``beside``: the members of the list that this
    one is compared with."""
    known = {*members, *beside}

    def shown(node_id: NodeId) -> str:
        alike = [other for other in known if other[:DIGITS] == node_id[:DIGITS]]
        return node_id[:DIGITS] if len(alike) == 1 else node_id

    return ", ".join(f"{address} ({shown(node_id)})" for node_id, address in members.items()) or "none"
