"""Says in words what the recovery of a tablet loses, and what it keeps. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from stelae.recover.plan import LostMember, RankedReplica

CATALOG = "the catalog"
"""What plans name as the table of the system tablet."""

OF_CATALOG = (
    "The entries of this tablet are changes of the catalog. No row of a table is lost with them. Tables that were "
    "created, altered, renamed or dropped by a lost entry are again as they were before it: `stelae check` names the "
    "tablets on servers that no table has."
)
"""What a loss of catalog entries means."""


def loss_text(
    best: RankedReplica,
    ranking: tuple[RankedReplica, ...],
    lost: tuple[LostMember, ...],
    *,
    voters: int,
    table: str = "",
) -> tuple[str, ...]:
    """Return what is lost, and what is not, in sentences.

    Args:
        best: the survivor that is to be recovered.
        ranking: all survivors.
        lost: the members that do not answer.
        voters: the number of voters of the tablet.
        table: the name of its table, or ``CATALOG``.
    """
    sentences = [
        f"Lost: entries after {best.last} that only the lost nodes may have had. Writes among them may have been "
        f"acknowledged. Their number is unknown: {len(lost)} of {voters + _learners(lost, ranking, voters)} "
        "members do not answer."
    ]
    if best.applied_us:
        sentences.append(
            f"The newest entry that the survivor has applied was written at {moment(best.applied_us)}; what was "
            "acknowledged later may be lost."
        )
    longer = [one for one in ranking if one.last > best.last]
    for one in longer:
        sentences.append(
            f"Lost as well: entries after {best.last} on {one.address}, whose log ends at {one.last}. That replica "
            f"cannot be recovered: {one.unusable}."
        )
    known = max(one.commit for one in ranking)
    if not longer:
        sentences.append(f"Kept: every entry that any survivor knows to be committed (up to index {known}).")
    unsure = best.last.index - max(known, best.commit)
    if unsure > 0:
        sentences.append(
            f"Kept: the last {unsure} {'entry' if unsure == 1 else 'entries'} of the survivor, which no survivor knows "
            "to be committed. Clients may have got an error for these writes."
        )
    if table == CATALOG:
        sentences.append(OF_CATALOG)
    return tuple(sentences)


def moment(us: int) -> str:
    """Return a time, given in microseconds since 1970, as text."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _learners(lost: tuple[LostMember, ...], ranking: tuple[RankedReplica, ...], voters: int) -> int:
    """Return how many more members there are than voters."""
    return max(0, len(lost) + len(ranking) - voters)
