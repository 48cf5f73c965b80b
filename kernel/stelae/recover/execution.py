"""Carries out a plan of recovery, tablet by tablet. Every step can be repeated.

1. All nodes of the plan are asked again. If a member that the plan counts as lost runs again, or a survivor does not
   answer, or its log is another one than the plan saw, nothing is done: the plan is out of date.
2. The other survivors stand down, and give their vote to the chosen one. This is durable before step 3.
3. The chosen survivor becomes the only voter. It compares its log and config with the plan before.

If step 2 was done and step 3 fails, the tablet stays without a leader until a plan is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from stelae.client.connection import Connection
from stelae.client.counted import counted
from stelae.protocol.codec import decode, encode
from stelae.protocol.recovery_messages import RECOVER, STAND_DOWN, RecoverReply, RecoverRequest, StandDownRequest
from stelae.recover.plan import RecoveryPlan, TabletPlan
from stelae.recover.planning import RUNS, SurveyedNode
from stelae.recover.survey import survey_nodes
from stelae.spi.errors import AlreadyRecovered, RetryableError, StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.recovery_epoch import recovery_id

TABLETS_MAX = 16
"""How many tablets are recovered at the same time."""

PAUSE_S = 0.2
"""Pause before a request is repeated, in seconds."""

NEW_PLAN = "make a new plan with `stelae recover plan`"


class RecoveryResult(StrEnum):
    """The outcome of a recovery, for one tablet."""

    RECOVERED = "RECOVERED"
    DONE_ALREADY = "DONE_ALREADY"  #: This plan was applied to the tablet before.
    FAILED = "FAILED"


class RecoveryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one tablet."""

    tablet_id: TabletId
    result: RecoveryResult
    text: str  #: For a failure: the reason, and what to do next.


async def apply_plan(
    connection: Connection, plan: RecoveryPlan, *, timeout_s: float, done: Callable[[RecoveryOutcome], None]
) -> list[RecoveryOutcome]:
    """Recover every tablet of a plan. ``done`` is called with each result; one failure does not stop the others.

    Args:
        timeout_s: how long to repeat the requests of one tablet.
    """
    turns = asyncio.Semaphore(TABLETS_MAX)

    async def one(tablet: TabletPlan) -> RecoveryOutcome:
        async with turns:
            try:
                outcome = await _recover(connection, tablet, timeout_s)
            except StelaeError as error:
                outcome = _failed(tablet, f"{error.code}: {error}")
        done(outcome)
        return outcome

    return list(await asyncio.gather(*map(one, plan.tablets)))


async def until_whole(
    connection: Connection, plan: RecoveryPlan, *, timeout_s: float, progress: Callable[[str], None]
) -> list[TabletId]:
    """Wait until each tablet has as many voters as the masters want; return those that do not have them in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    waiting = {tablet.tablet_id: tablet for tablet in plan.tablets if tablet.replicas_wanted > 1}
    while waiting and asyncio.get_running_loop().time() < deadline:
        nodes = {tablet.survivor.node_id: tablet.survivor.address for tablet in waiting.values()}
        found = await survey_nodes(connection, nodes.items(), list(waiting))
        for tablet_id, tablet in list(waiting.items()):
            view = found[tablet.survivor.node_id].views.get(tablet_id)
            voters = 0 if view is None or view.config is None else len(view.config.voters())
            if voters >= tablet.replicas_wanted:
                del waiting[tablet_id]
        progress(f"{len(waiting)} of {counted(len(plan.tablets), 'tablet')} still without all replicas")
        if waiting:
            await asyncio.sleep(PAUSE_S)
    return sorted(waiting)


async def _recover(connection: Connection, tablet: TabletPlan, timeout_s: float) -> RecoveryOutcome:
    asked = {node.node_id: node.address for node in (tablet.survivor, *tablet.others)}
    asked |= {member.node_id: member.address for member in tablet.lost}
    found = await survey_nodes(connection, asked.items(), (tablet.tablet_id,))
    if _is_done(tablet, found):
        text = f"node {tablet.survivor.address} was recovered by this plan before"
        return RecoveryOutcome(tablet_id=tablet.tablet_id, result=RecoveryResult.DONE_ALREADY, text=text)
    if (changed := _changed(tablet, found)) is not None:
        return _failed(tablet, changed)
    deadline = asyncio.get_running_loop().time() + timeout_s
    for other in tablet.others:
        request = encode(StandDownRequest(tablet.tablet_id, tablet.term, tablet.survivor.node_id))
        await _ask(connection, other.node_id, STAND_DOWN, request, deadline)
    request = encode(RecoverRequest(tablet.tablet_id, tablet.term, tablet.last, tablet.config_id))
    try:
        answer = await _ask(connection, tablet.survivor.node_id, RECOVER, request, deadline)
    except AlreadyRecovered as repeated:  # An answer was lost, or somebody else applied the plan at the same time.
        return RecoveryOutcome(tablet_id=tablet.tablet_id, result=RecoveryResult.RECOVERED, text=str(repeated))
    config = decode(answer[0], RecoverReply).config
    text = f"node {tablet.survivor.address} is the only voter, by config {config.op_id}"
    return RecoveryOutcome(tablet_id=tablet.tablet_id, result=RecoveryResult.RECOVERED, text=text)


def _is_done(tablet: TabletPlan, found: Mapping[NodeId, SurveyedNode]) -> bool:
    views = [node.views[tablet.tablet_id] for node in found.values() if tablet.tablet_id in node.views]
    wanted = recovery_id(tablet.term)
    return any(recovery_id(view.last.term) == wanted and view.serving for view in views)


def _changed(tablet: TabletPlan, found: Mapping[NodeId, SurveyedNode]) -> str | None:
    """Return what is not as the plan says, and what to do next, or ``None``."""
    last = {ranked.node_id: ranked.last for ranked in tablet.ranking} | {tablet.survivor.node_id: tablet.last}
    for planned in (tablet.survivor, *tablet.others):
        node = found[planned.node_id]
        view = node.views.get(tablet.tablet_id)
        if view is None or view.state not in RUNS:
            why = node.problem or (f"its replica is {view.state}" if view is not None else "it has no replica any more")
            return f"survivor {planned.address}: {why}; start it again, or {NEW_PLAN}"
        if view.role == "LEADER" and view.serving:
            return f"{planned.address} leads the tablet, so it has its majority; no recovery is needed"
        known = last.get(planned.node_id, view.last)
        if view.last != known and recovery_id(view.last.term) != recovery_id(tablet.term):
            fact = f"the log of survivor {planned.address} ends at {view.last}, and at {known} in the plan"
            return f"{fact}: the tablet was written or recovered since; {NEW_PLAN}"
    for member in tablet.lost:
        view = found[member.node_id].views.get(tablet.tablet_id)
        if view is not None and view.state in RUNS:
            fact = f"{member.address}, which the plan counts as lost, runs again"
            return f"{fact}; the tablet may have its majority: {NEW_PLAN}"
    return None


async def _ask(connection: Connection, node: NodeId, kind: str, request: bytes, deadline: float) -> list[bytes]:
    """Ask until the deadline. Errors that may pass are repeated: a repeated request has one effect."""
    loop = asyncio.get_running_loop()
    while True:
        left_ms = max(1, int((deadline - loop.time()) * 1000))
        try:
            return [bytes(frame) for frame in (await connection.ask(node, kind, request, deadline_ms=left_ms)).body]
        except RetryableError:
            if loop.time() + PAUSE_S >= deadline:
                raise
            await asyncio.sleep(PAUSE_S)


def _failed(tablet: TabletPlan, text: str) -> RecoveryOutcome:
    return RecoveryOutcome(tablet_id=tablet.tablet_id, result=RecoveryResult.FAILED, text=text)
