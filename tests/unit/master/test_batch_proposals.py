"""What the driver reports of a batch that it has proposed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.rejection_errors import rejection_error
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.events import Decided, Replicate
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.core.records import ClusterRecord
from stelae.server.master.driver.batch_proposals import BatchProposals, outcome_of
from stelae.spi.consensus import Role
from stelae.spi.errors import NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import ClientId, ClusterId, TabletId
from stelae.spi.rejections import Rejection, RejectReason
from stelae.spi.write import Answer, OpResult, WriteReply
from stelae.wire.refusals import error_fields, error_of


@pytest.mark.parametrize("error", [Overloaded("the log queue is full"), NotLeader(None), Unavailable("stopping")])
def test_a_batch_that_is_refused_while_it_is_handed_over_is_in_no_log(error: StelaeError) -> None:
    assert outcome_of(error, at_once=True) is BatchOutcome.CERTAINLY_NOT


@pytest.mark.parametrize("error", [NotLeader(None, "replaced"), Unavailable("the log cannot be trusted")])
def test_an_error_after_the_batch_was_handed_over_leaves_its_outcome_unknown(error: StelaeError) -> None:
    assert outcome_of(error, at_once=False) is BatchOutcome.UNKNOWN


@pytest.mark.parametrize(
    "reason", [RejectReason.TRANSFERRING, RejectReason.OVERLOADED, RejectReason.CONFIGURING, RejectReason.NOT_LEADER]
)
def test_a_proposal_that_the_core_did_not_take_is_in_no_log(reason: RejectReason) -> None:
    """It once counted as unknown. After a transfer that found no successor the locks of such batches stayed taken for
    as long as the master led: its tables could not be changed, and once 64 batches were under way nothing could."""
    assert outcome_of(rejection_error(Rejection(1, reason), TabletId("t")), at_once=False) is BatchOutcome.CERTAINLY_NOT


def test_a_transfer_or_read_that_ended_says_nothing_of_a_batch() -> None:
    for reason in (RejectReason.LEADERSHIP_LOST, RejectReason.NO_SUCCESSOR):
        assert outcome_of(rejection_error(Rejection(1, reason), TabletId("t")), at_once=False) is BatchOutcome.UNKNOWN


def test_an_answer_without_a_refusal_leaves_the_decision_to_the_entry() -> None:
    assert outcome_of(WriteReply([Answer(1, 1, OpResult(5))]), at_once=False) is None
    refused = WriteReply([Answer(1, 1, OpResult(0, refusal="STALE_SEQUENCE"))])
    assert outcome_of(refused, at_once=False) is BatchOutcome.CERTAINLY_NOT


@pytest.mark.parametrize(
    ("role", "error", "outcome", "reason"),
    [
        (Role.FOLLOWER, None, BatchOutcome.CERTAINLY_NOT, "does not lead any more in term 3"),
        (Role.LEADER, Overloaded("the log queue is full"), BatchOutcome.CERTAINLY_NOT, "the log queue is full"),
    ],
)
def test_a_batch_that_was_not_proposed_says_why(
    role: Role, error: StelaeError | None, outcome: BatchOutcome, reason: str
) -> None:
    """The client saw retries that had no effect, and not that the disk of the leader was full, say."""
    decided: list[Decided] = []
    turns = SimpleNamespace(defer=lambda call: call(), now_us=lambda: 0, call_at=lambda _when, call: call())
    status = SimpleNamespace(role=role, term=3)
    replica: Any = SimpleNamespace(status=status, write=lambda _request, done: done(error))
    batch = CatalogBatch(puts=(ClusterRecord(cluster_id=ClusterId("c"), created_us=1),))
    proposals = BatchProposals(turns, ClientId("master"), decided.append)  # type: ignore[arg-type]
    proposals.add(Replicate(7, 3, batch), replica)
    (found,) = decided
    assert (found.token, found.outcome) == (7, outcome) and reason in found.reason


@pytest.mark.parametrize("reason", list(RejectReason))
def test_a_rejection_crosses_the_wire_as_the_class_of_its_code(reason: RejectReason) -> None:
    error = rejection_error(Rejection(1, reason), TabletId("t"))
    received = error_of(error_fields(error))
    assert (received.code, str(received)) == (error.code, str(error))
