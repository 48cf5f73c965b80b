"""Decides whether a member may have given votes and acknowledged entries that count (``durability.md`` rule 19).

If it may, and its node does not host the tablet any more, an empty replica would act as if it had not. It could help
to elect a leader that lacks acknowledged entries. Both messages that create a replica ask here."""

from stelae.spi.ids import NodeId
from stelae.spi.members import VOTING, MemberType, TabletConfig


def type_that_counts(node: NodeId, config: TabletConfig, committed: TabletConfig) -> MemberType | None:
    """Return the type of a member; of one that has, or had, a vote: a type in ``VOTING``. ``None``: it is no member.

    A node gets an empty replica only as a member of a type in ``JOINING``, or over its tombstone as a ``PRE_WITNESS``.

    Args:
        node: the member.
        config: the config in force.
        committed: the committed config. A vote that a pending change takes away is still counted by members that do
            not know the change.
    """
    member, before = config.member(node), committed.member(node)
    if member is None:
        return None
    if member.was_voter is True:
        return MemberType.VOTER
    return before.member_type if before is not None and before.member_type in VOTING else member.member_type


def member_type(node: NodeId, config: TabletConfig) -> MemberType | None:
    """Return the type of a member in a config, whatever it was before; ``None``: it is no member."""
    member = config.member(node)
    return None if member is None else member.member_type
