"""What the driver reports of a batch that it has proposed."""

from __future__ import annotations

import pytest

from stelae.host.rejection_errors import rejection_error
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.driver.batch_proposals import outcome_of
from stelae.spi.errors import NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import TabletId
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


@pytest.mark.parametrize("reason", list(RejectReason))
def test_a_rejection_crosses_the_wire_as_the_class_of_its_code(reason: RejectReason) -> None:
    error = rejection_error(Rejection(1, reason), TabletId("t"))
    received = error_of(error_fields(error))
    assert (received.code, str(received)) == (error.code, str(error))
