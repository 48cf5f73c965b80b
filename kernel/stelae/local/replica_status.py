"""How replicas stand, as the nodes themselves say: who leads, and whether one that was away has caught up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping

from stelae.client.connection import Connection
from stelae.local.node_process import NodeProcess
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.errors import RetryableError, Unavailable
from stelae.spi.ids import NodeId, TabletId

ASK_MS = 500
HEAL_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 60.0
"""As long as the nodes of a new cluster may take to start."""
POLL_S = 0.1


async def leaders(client: Connection, nodes: Iterable[NodeProcess]) -> dict[TabletId, ReplicaReport]:
    """The running leader of the newest term of each tablet; nodes that do not answer in time say nothing."""
    found: dict[TabletId, ReplicaReport] = {}
    asked = (client.status(node.node_id, deadline_ms=ASK_MS) for node in nodes)
    for reports in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(reports, RetryableError):
            continue
        if isinstance(reports, BaseException):
            raise reports
        for report in reports:
            known = found.get(report.tablet_id)
            leads = report.role == "LEADER" and report.state == "RUNNING"
            if leads and (known is None or known.term < report.term):
                found[report.tablet_id] = report
    return found


def most_led(found: Mapping[TabletId, ReplicaReport], tablets: Collection[TabletId]) -> tuple[NodeId, set[TabletId]]:
    """The node that leads most of some tablets, and those that it leads; ``Unavailable``: nobody leads any."""
    led: dict[NodeId, set[TabletId]] = {}
    for tablet_id in tablets:
        if tablet_id in found:
            led.setdefault(found[tablet_id].node_id, set()).add(tablet_id)
    if not led:
        raise Unavailable("no node says that it leads a tablet of the table")
    return max(led.items(), key=lambda one: (len(one[1]), one[0]))


async def wait_for_successors(
    client: Connection, others: Collection[NodeProcess], tablets: Collection[TabletId], killed: NodeProcess
) -> None:
    """Wait until others lead what a killed node led: started sooner, it might win the election."""
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while time.monotonic() < deadline:
        found = await leaders(client, others)
        if all(tablet_id in found for tablet_id in tablets):
            return
        await asyncio.sleep(POLL_S)
    raise Unavailable(f"no other node took over from {killed.name} within {HEAL_TIMEOUT_S:.0f} s")


async def wait_until_caught_up(
    client: Connection, nodes: Collection[NodeProcess], tablets: Collection[TabletId], restarted: NodeProcess
) -> None:
    """Wait until each tablet's leader, whichever of the nodes it is, has seen that one of them holds what it missed.

    That is what was committed when it first answered, and the time counts from there: what is committed meanwhile would
    move the mark for as long as a load goes on, and a busy machine takes long to start a process."""
    await _until_it_answers(client, restarted)
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    marks: dict[TabletId, int] = {}
    behind = dict.fromkeys(tablets, "no leader answered")
    while time.monotonic() < deadline:
        restarted.check()
        found = await leaders(client, nodes)
        for tablet_id in [tablet_id for tablet_id in behind if tablet_id in found]:
            leader = found[tablet_id]
            mark = marks[tablet_id] = marks.get(tablet_id) or leader.commit
            matched = dict(leader.match_indexes).get(restarted.node_id, -1)
            if leader.node_id == restarted.node_id or matched >= mark > 0:
                del behind[tablet_id]
            else:
                behind[tablet_id] = f"it was at {mark} then, its replica there is at {matched} now"
        if not behind:
            return
        await asyncio.sleep(POLL_S)
    seen = "; ".join(f"tablet {tablet_id}: {why}" for tablet_id, why in behind.items())
    raise _late(restarted, f"did not catch up within {HEAL_TIMEOUT_S:.0f} s of its first answer ({seen})")


async def _until_it_answers(client: Connection, restarted: NodeProcess) -> None:
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        restarted.check()
        try:
            await client.status(restarted.node_id, deadline_ms=ASK_MS)
            return
        except RetryableError:
            await asyncio.sleep(POLL_S)
    raise _late(restarted, f"did not answer within {ANSWER_TIMEOUT_S:.0f} s of its start")


def _late(restarted: NodeProcess, what: str) -> Unavailable:
    return Unavailable(f"{restarted.name} {what}; its log {restarted.log_path} ends with:\n{restarted.log_tail()}")
