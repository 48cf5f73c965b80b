"""The recovery epoch of a tablet: how often a tablet that lost its majority was recovered from a survivor.

The epoch is the high bits of the term, so it needs no place of its own: it is durable wherever a term is, and travels
in every message, report, op id and config id. Everything of a later epoch is above everything of an earlier one:

    term = epoch << 40 | tag << 24 | count

``tag`` is drawn for each recovery. Two recoveries of one tablet that know nothing of each other therefore have
different terms, except once in 65,536 times. ``count`` grows with each election; it has room for sixteen million, and
an overflow into the tag does no harm.

``durability.md`` rule 29. A replica *stands down* while its term is of a later epoch than the last entry of its log: it
knows that the tablet was recovered, and does not have the log of that recovery. It never campaigns, and a candidate
like it gets no vote. So once a replica has heard of a recovery, it can follow only the recovered log."""

EPOCH_BITS = 40  #: The term's bits below the epoch.
COUNT_BITS = 24  #: The term's bits below the tag.
TAG_MAX = (1 << (EPOCH_BITS - COUNT_BITS)) - 1  #: The highest tag.
EPOCH_MAX = (1 << 20) - 1  #: The highest epoch: never reached in practice, and its terms fit into every message.


EPOCHS_AHEAD_MAX = 10_000
"""By how many epochs a term may be ahead of that of the replica which gets it."""


def recovery_epoch(term: int) -> int:
    """Return the recovery epoch of a term; 0 for a tablet that was never recovered."""
    return term >> EPOCH_BITS


def recovery_id(term: int) -> int:
    """Return epoch and tag as one number, which tells recoveries apart; 0 for a tablet that was never recovered."""
    return term >> COUNT_BITS if recovery_epoch(term) else 0


def first_term(epoch: int, tag: int) -> int:
    """Return the first term of a recovery, that of its config entry.

    Args:
        epoch: 1 to ``EPOCH_MAX``.
        tag: 0 to ``TAG_MAX``, drawn at random.
    """
    if not (1 <= epoch <= EPOCH_MAX and 0 <= tag <= TAG_MAX):
        raise ValueError(f"epoch {epoch} and tag {tag}; 1 to {EPOCH_MAX}, and 0 to {TAG_MAX}")
    return epoch << EPOCH_BITS | tag << COUNT_BITS


def is_first_term(term: int) -> bool:
    """Return whether a term may be the first one of a recovery."""
    return 1 <= recovery_epoch(term) <= EPOCH_MAX and term & ((1 << COUNT_BITS) - 1) == 0


def stands_down(term: int, last_term: int) -> bool:
    """Return whether a replica knows of a recovery whose log it does not have.

    Args:
        term: the replica's term.
        last_term: the term of the last entry of its log.
    """
    return recovery_epoch(last_term) < recovery_epoch(term)


def is_too_far_ahead(term: int, own_term: int) -> bool:
    """Return whether a term is of an epoch that a correct peer cannot have reached while this replica was away.

    A replica that enters a later epoch stands down until it gets the log of that recovery. If the term is only wrong, a
    person has to recover the tablet in a later epoch still, so one wrong term must not use them all up."""
    return recovery_epoch(term) - recovery_epoch(own_term) > EPOCHS_AHEAD_MAX
