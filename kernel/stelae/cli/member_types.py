"""The types of members that users write on the command line, with what each of them means."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.errors import CallerError
from stelae.spi.members import MemberType

_MEANING = {
    MemberType.VOTER: "votes, and may lead",
    MemberType.NON_VOTER: "has all rows, and never votes",
    MemberType.PRE_VOTER: "becomes a VOTER by itself once it has caught up",
    MemberType.WITNESS: "votes soon and has the log only, and becomes a VOTER by itself once it has copied the rows",
}

OF_NEW_MEMBERS = (MemberType.PRE_VOTER, MemberType.NON_VOTER, MemberType.WITNESS)
OF_MEMBERS = (MemberType.VOTER, MemberType.NON_VOTER, MemberType.PRE_VOTER)


def member_type(argument: str, given: str, offered: Sequence[MemberType]) -> MemberType:
    """Return the type that a user has written in any case.

    Args:
        argument: how the user knows the argument.

    Raises:
        CallerError: it is not one of those that are offered. The message has them all.
    """
    name = given.strip().upper()
    if name in offered:
        return MemberType(name)
    known = "; ".join(f"{one}: {_MEANING[one]}" for one in offered)
    raise CallerError(f"{argument} must be the type of a member, not {given[:80]!r}. {known}")
