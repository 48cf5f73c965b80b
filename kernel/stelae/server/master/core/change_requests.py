"""The part of a master's core that serves changes: their clients, those that wait, and the outcomes.

An unexpected exception while a change is planned ends that one request. That is safe, because planning is pure: it
reads the catalog and draws from the random generator, and its result is only a value. Locks, operations and effects
follow after it. What applies a committed batch has no such guard: there, an exception ends the master."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from stelae.protocol.master_errors import ChangeFailed, NotReplicated, OutcomeUnknown, TableBusy
from stelae.protocol.master_messages import ChangeOutcome, ChangeReply
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.master.core.ddl import plan_change
from stelae.server.master.core.events import ChangeAsked, Decided, Effect, EntryApplied, Refuse, Replicate, Reply
from stelae.server.master.core.exactly_once import identified, known_verdict, refusal
from stelae.server.master.core.leadership import MasterLeadership, WaitingChange
from stelae.server.master.core.mutations import Context, Mutation
from stelae.server.master.core.operations import BatchOutcome, Settled
from stelae.server.master.core.reconcile import ClusterView
from stelae.server.master.settings import MasterSettings
from stelae.spi.errors import CallerError, NotLeader, Overloaded, RetryableError, StelaeError
from stelae.spi.ids import NodeId, OpId
from stelae.wire.refusals import HandlerFailed

log = logging.getLogger(__name__)

_Made = TypeVar("_Made")


class ChangeRequests:
    """Serves changes. It keeps only random generators. All other state belongs to the leadership that it gets."""

    def __init__(
        self, settings: MasterSettings, rng: random.Random, tokens: Iterator[int], limits: LimitSettings = DEFAULTS
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._rng = rng
        self._tokens = tokens

    def ask(self, event: ChangeAsked, view: ClusterView, leadership: MasterLeadership) -> list[Effect]:
        """Answer a request from an outcome on record, begin it, or let it wait for a lock.

        If it waits already, because its client asks again, the new request takes the place of the old one."""
        effects = self._answer_at_once(event, view, leadership)
        if effects:
            return effects
        for place, one in enumerate(leadership.waiting):
            if one.is_asked_again(event):
                leadership.waiting[place] = WaitingChange(event, one.wanted)
                return [_refuse(one.event.token, TableBusy("this request waits, and its client has asked again"))]
        return self._begin_or_wait(event, view, leadership)

    def begin(self, mutation: Mutation, leadership: MasterLeadership, asked: int | None = None) -> list[Effect]:
        """Return the effects that replicate the mutation. There are none if a lock that it needs is taken."""
        token = next(self._tokens)
        operation = leadership.operations.begin(token, mutation, asked)
        return [] if operation is None else [Replicate(token, leadership.term, operation.batch)]

    def retry(self, view: ClusterView, leadership: MasterLeadership) -> list[Effect]:
        """Try the requests again that wait for locks, oldest first.

        Planning may take long, so one whose locks are still taken is not planned."""
        waiting, leadership.waiting = leadership.waiting, deque()
        effects: list[Effect] = []
        for one in waiting:
            answer = self._answer_at_once(one.event, view, leadership)
            if answer:
                effects += answer
            elif leadership.operations.locks.are_free(one.wanted):
                effects += self._begin_or_wait(one.event, view, leadership)
            else:
                leadership.waiting.append(one)
        return effects

    def decided(self, event: Decided, leadership: MasterLeadership, applied: OpId) -> list[Effect]:
        """Note the outcome of a batch, and answer its client."""
        settled = leadership.operations.decided(event.token, event.outcome, event.op_id, applied)
        return [] if settled is None else self._tell_outcome(settled, event.reason)

    def applied(self, event: EntryApplied, leadership: MasterLeadership) -> list[Effect]:
        """Note that an entry is applied. An operation may wait for it."""
        settled = leadership.operations.applied(event.batch, event.op_id)
        return [effect for one in settled for effect in self._tell_outcome(one)]

    def abandon(self, leadership: MasterLeadership, leader: NodeId | None) -> list[Effect]:
        """Refuse all waiting requests, because this master has stepped down.

        The clients ask the next leader, with the same identity."""
        effects: list[Effect] = [_refuse(one.event.token, NotLeader(leader), leader) for one in leadership.waiting]
        for operation in leadership.operations.abandon():
            if operation.asked is not None:
                effects.append(_refuse(operation.asked, _unknown("this master leads no more"), leader))
        return effects

    def _answer_at_once(self, event: ChangeAsked, view: ClusterView, leadership: MasterLeadership) -> list[Effect]:
        """Return the answer that needs no plan, or nothing."""

        def answer() -> list[Effect]:
            verdict = known_verdict(view.catalog, event.request)
            if verdict is not None:
                return [_tell(event.token, verdict)]
            if leadership.is_full:
                limit = self._settings.changes_in_flight_max
                raise Overloaded(f"{limit} changes are under way; ask again")
            return []

        return _or_refused(event, answer)

    def _begin_or_wait(self, event: ChangeAsked, view: ClusterView, leadership: MasterLeadership) -> list[Effect]:
        """Plan a change, and begin it or let it wait for a lock."""
        planned = _or_refused(event, lambda: self._plan(event, view))
        if not isinstance(planned, Mutation):
            return planned
        effects = self.begin(planned, leadership, event.token)
        if effects:
            return effects
        if len(leadership.waiting) >= self._settings.changes_in_flight_max:
            return [_refuse(event.token, TableBusy("another change of the same table or name is under way; ask again"))]
        leadership.waiting.append(WaitingChange(event, planned.locks))
        return []

    def _plan(self, event: ChangeAsked, view: ClusterView) -> Mutation:
        context = Context(
            wall_us=view.wall_us,
            settings=self._settings,
            limits=self._limits,
            servers_live=view.servers.live_count(view.now_us),
            warm=view.servers.is_warm(view.now_us),
            rng=self._rng,
        )
        request = event.request
        try:
            mutation = identified(plan_change(view.catalog, request.change, context), request, view.wall_us)
            return mutation.check_size(self._settings)
        except RetryableError:
            raise
        except Exception as error:
            return refusal(request, _reason(event, error), view.wall_us).check_size(self._settings)

    def _tell_outcome(self, settled: Settled, reason: str = "") -> list[Effect]:
        operation = settled.operation
        if operation.asked is None:
            return []
        if settled.outcome is BatchOutcome.COMMITTED:
            assert operation.answer is not None
            return [_tell(operation.asked, operation.answer)]
        if settled.outcome is BatchOutcome.CERTAINLY_NOT:
            fact = f"the change could not be replicated, and has no effect: {reason}"
            return [_refuse(operation.asked, NotReplicated(f"{fact}; ask again"))]
        return [_refuse(operation.asked, _unknown(reason))]


def _or_refused(event: ChangeAsked, work: Callable[[], _Made]) -> _Made | list[Effect]:
    """Return what ``work`` makes, which changes nothing else, or the refusal that answers the request if it raises."""
    try:
        return work()
    except (CallerError, RetryableError) as error:
        return [_refuse(event.token, error)]
    except Exception:
        # Without an outcome on record, a delayed copy of the request may be carried out, so this is no CallerError.
        log.exception("change refused without a record client=%s sequence=%d", *_identity(event))
        return [_refuse(event.token, HandlerFailed("unexpected error; the log of the master has its traceback"))]


def _reason(event: ChangeAsked, error: Exception) -> CallerError:
    """Return what is put on record as the reason why a change was refused."""
    if isinstance(error, CallerError):
        return error
    change = type(event.request.change).__name__
    log.exception("change not planned change=%s client=%s sequence=%d", change, *_identity(event))
    return ChangeFailed(change, error)


def _identity(event: ChangeAsked) -> tuple[str, int]:
    return event.request.client_id, event.request.sequence


def _unknown(reason: str) -> OutcomeUnknown:
    fact = f"whether the change is committed is not known: {reason}"
    return OutcomeUnknown(f"{fact}; ask again under the same identity")


def _tell(token: int, verdict: ChangeOutcome) -> Effect:
    if isinstance(verdict, ChangeReply):
        return Reply(token, verdict)
    return Refuse(token=token, code=verdict.code, detail=verdict.detail, retryable=False)


def _refuse(token: int, error: StelaeError, leader: NodeId | None = None) -> Refuse:
    retryable = isinstance(error, RetryableError)
    return Refuse(token=token, code=error.code, detail=str(error), retryable=retryable, leader=leader)
