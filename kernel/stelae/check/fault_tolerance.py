"""Says which faults a config of a tablet survives."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.members import VOTING, MemberType


def losses_survived(voters: int, *, down: int, with_rows: int) -> int:
    """Return how many more voters may fail, whichever they are, until the tablet serves no requests.

    It needs a majority, and a voter that has the rows. Negative: it lacks one of them now.

    Args:
        voters: the voters of the config, witnesses among them.
        down: how many of them do not run.
        with_rows: how many of those that run have the rows.
    """
    return min(_majority_survives(voters, down), with_rows - 1)


def _majority_survives(voters: int, down: int) -> int:
    return voters - down - (voters // 2 + 1)


def tolerance_text(types: Sequence[MemberType], down: int = 0) -> str:
    """Return in words which faults a config survives.

    Args:
        types: the type of each member.
        down: how many of the voters do not run.
    """
    voters = sum(one in VOTING for one in types)
    if not voters:
        return "no majority: there is no voter"
    with_rows = sum(one is MemberType.VOTER for one in types)
    more = _majority_survives(voters, down)
    if more >= 0:
        # A tablet without a replica that has rows serves no requests, even with a majority.
        more = min(more, max(with_rows - down - 1, 0))
    majority = f"{voters // 2 + 1} of {_counted(voters, 'voter')}"
    if more < 0:
        return f"no majority: {majority} must run, but {down} {'is' if down == 1 else 'are'} down"
    if more == 0:
        if with_rows < voters and _majority_survives(voters, down) > 0:
            have = "has" if with_rows == 1 else "have"
            return f"survives the loss of no VOTER: {with_rows} of {_counted(voters, 'voter')} {have} the rows"
        return f"survives the loss of no voter: the {majority} that run are all needed" if down else _none(voters)
    return f"survives the loss of any {_counted(more, 'voter')} ({majority} must run{_witnesses(voters - with_rows)})"


def losses_text(losses: Sequence[int]) -> str:
    """Return in short which faults all of several tablets survive: the losses that the weakest of them does."""
    least = min(losses, default=-1)
    return "-" if least < 0 else "no loss" if least == 0 else f"{least} loss" + ("" if least == 1 else "es")


def _none(voters: int) -> str:
    if voters == 1:
        return "survives the loss of no voter: there is only one"
    return f"survives the loss of no voter: all {voters} must run; an odd number of voters is better"


def _witnesses(count: int) -> str:
    if not count:
        return ""
    return f"; {_counted(count, 'witness', 'witnesses')} among them {'has' if count == 1 else 'have'} the log only"


def _counted(count: int, what: str, several: str = "") -> str:
    return f"{count} {what if count == 1 else several or what + 's'}"
