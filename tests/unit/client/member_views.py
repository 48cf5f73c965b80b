"""Configs of a tablet with a leader, another voter, and perhaps a new member, as the leader describes them."""

from __future__ import annotations

from stelae.protocol.member_messages import ConfigView, MemberProgress
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig

T = TabletId("t")
LEADER, OTHER, NEW = (NodeId(letter * 32) for letter in "abc")


def config(op_id: OpId, new: MemberType | None = None, address: str = "new:1") -> TabletConfig:
    """A config with two voters, and the new member of this type."""
    members = [Member(node_id=LEADER, address="leader:1"), Member(node_id=OTHER, address="other:1")]
    if new is not None:
        members.append(Member(node_id=NEW, address=address, member_type=new))
    return TabletConfig(op_id=op_id, members=tuple(members))


def view(
    new: MemberType | None = None,
    *,
    index: int = 1,
    pending: MemberType | None = None,
    match: int = 9,
    state: str = "REPLICATE",
    log_base: OpId = ZERO,
    role: str = "LEADER",
    leader: NodeId = LEADER,
) -> ConfigView:
    """A committed config at ``index``, and one after it that is not committed, if ``pending`` is a type."""
    committed = config(OpId(1, index), new)
    current = committed if pending is None else config(OpId(1, index + 1), pending)
    known = [MemberProgress(node_id=OTHER, match_index=9, state="REPLICATE")]
    if current.member(NEW) is not None:
        known.append(MemberProgress(node_id=NEW, match_index=match, state=state))
    return ConfigView(
        tablet_id=T,
        node_id=leader,
        role=role,
        term=1,
        leader=leader,
        config=current,
        committed=committed,
        last=OpId(1, 9),
        log_base=log_base,
        progress=tuple(known) if role == "LEADER" else (),
    )
