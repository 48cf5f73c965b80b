"""What consensus engines share around a restore: a check of the durable state, the status without a log, and the merge
of a hard state with that of the source of a copy."""

from __future__ import annotations

from stelae.spi.consensus import HardState, LogView, Role, Status
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import TabletConfig


def refuse_contradictions(hard_state: HardState, log: LogView, commit: int, applied: int, *, repair: str) -> None:
    """Check the arguments of ``ConsensusEngine.restore`` against each other.

    A term becomes durable before any entry of it. So a log with a later term than the metadata means lost metadata.

    Args:
        hard_state: the durable term and vote.
        log: the durable log.
        commit: the highest index that is known to be committed.
        applied: the highest index that the store has applied.
        repair: what the operator should do, as the end of the error's text.

    Raises:
        Corrupt: they contradict each other.
    """
    fact = None
    if log.last.term > hard_state.term:
        fact = f"the log ends at {log.last}, but the durable term is {hard_state.term}"
    elif commit > log.last.index:
        fact = f"the commit index is {commit}, but the log ends at {log.last}"
    elif applied > max(commit, log.base.index):
        fact = f"the applied index {applied} is above the commit index {commit}"
    if fact is not None:
        raise Corrupt(f"{fact}; {repair}")


def status_without_log(node_id: NodeId, hard_state: HardState, last: OpId | None) -> Status:
    """Return the status of a core without a log: a tombstone, or a copy that is under way.

    Args:
        last: where the log of the replica ended; ``None``: not known, which is shown as 0.0.
    """
    no_config = TabletConfig(op_id=ZERO, members=())
    known = last or ZERO
    return Status(
        node_id=node_id,
        role=Role.NON_PARTICIPANT,
        term=hard_state.term,
        voted_for=hard_state.voted_for,
        leader=None,
        last=known,
        durable_index=known.index,
        commit=0,
        applied=0,
        serving=False,
        config=no_config,
        committed_config=no_config,
    )


def merged(local: HardState, source_term: int) -> HardState:
    """Return the hard state of a replica after a copy from a source in ``source_term``.

    Source: "Consensus metadata merge" of the tablet-copy design; ``durability.md`` rule 20. The highest term wins. At
    or below the local term the local vote stays. A higher term begins without a vote: the source's vote is the vote of
    another member. A promise (``promised_us``) was given by this replica, so it stays in any case."""
    if source_term <= local.term:
        return local
    return HardState(source_term, None, local.promised_us)
