"""The part of a master's core that answers questions: at once, after a majority has confirmed the leader, or by a
refusal."""

from __future__ import annotations

from stelae.protocol.master_errors import TooStale
from stelae.protocol.master_messages import CatalogReadRequest
from stelae.server.master.core.events import Confirm, Confirmed, Effect, MasterTick, ReadAsked, Refuse, Reply
from stelae.server.master.core.freshness import Freshness
from stelae.server.master.core.leadership import MasterLeadership
from stelae.server.master.core.read_answers import answer
from stelae.server.master.core.reconcile import ClusterView
from stelae.server.master.settings import MasterSettings
from stelae.spi.errors import NotLeader, Overloaded, RetryableError, StelaeError
from stelae.spi.ids import NodeId


class ReadRequests:
    """Answers questions. The leadership has those that wait for a majority."""

    def __init__(self, settings: MasterSettings, freshness: Freshness) -> None:
        self._settings = settings
        self._freshness = freshness

    def ask(
        self, event: ReadAsked, view: ClusterView, leadership: MasterLeadership | None, leader: NodeId | None
    ) -> list[Effect]:
        """Answer from the snapshot if it is fresh enough for the question. Otherwise ask a majority first."""
        allowed_ms, age_us = event.request.staleness_ms, self._freshness.age_us(MasterTick(view.now_us, view.wall_us))
        if allowed_ms and age_us is not None and age_us <= allowed_ms * 1000:
            return [_answer(event.token, event.request, view)]
        if leadership is None:
            error: StelaeError = NotLeader(leader)
            if allowed_ms:
                where = f"ask {leader}" if leader else "ask another master"
                fact = "of unknown age" if age_us is None else f"{age_us // 1000} ms old"
                error = TooStale(
                    f"this master's catalog is {fact}; {allowed_ms} ms are allowed: {where}, or allow more"
                )
            return [_refuse(event.token, error, leader)]
        if len(leadership.reads) >= self._settings.reads_pending_max:
            return [_refuse(event.token, Overloaded(f"{self._settings.reads_pending_max} reads wait; ask again"), None)]
        leadership.reads[event.token] = event.request
        return [Confirm(event.token)]

    def confirmed(
        self, event: Confirmed, view: ClusterView, leadership: MasterLeadership | None, leader: NodeId | None
    ) -> list[Effect]:
        """Answer the questions that waited for this confirmation. An unknown token is of an earlier leadership."""
        request = None if leadership is None else leadership.reads.pop(event.token, None)
        if request is None:
            return []
        if not event.ok:
            return [_refuse(event.token, NotLeader(leader, "no majority confirms it"), leader)]
        return [_answer(event.token, request, view)]

    def abandon(self, leadership: MasterLeadership, leader: NodeId | None) -> list[Effect]:
        """Refuse all waiting questions. The clients ask the next leader."""
        return [_refuse(token, NotLeader(leader), leader) for token in leadership.reads]


def _answer(token: int, request: CatalogReadRequest, view: ClusterView) -> Effect:
    try:
        return Reply(token, answer(view, request.question))
    except StelaeError as error:
        return _refuse(token, error, None)


def _refuse(token: int, error: StelaeError, leader: NodeId | None) -> Refuse:
    retryable = isinstance(error, RetryableError)
    return Refuse(token=token, code=error.code, detail=str(error), retryable=retryable, leader=leader)
