"""The main job: three nodes, one tablet, a real data set, and two leaders killed half way.

1. Three nodes start as processes, and elect a leader.
2. The rows of the source are inserted, many calls in flight.
3. At 30 % the leader is killed with SIGKILL and started again; from 50 % on the load only trickles
   until the restarted replica has acknowledged the leader's tail; at 60 % the new leader is killed.
4. At the end all replicas must agree, and every acknowledged row is compared with the source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae.client.client import Client, Tablet
from stelae.local.cluster import LocalCluster
from stelae.local.loading import Load
from stelae.local.node_process import NodeProcess
from stelae.local.sources import Source
from stelae.local.verify import Verdict, read_back, wait_for_agreement
from stelae.spi.errors import RetryableError, Unavailable
from stelae.spi.ids import NodeId

FIRST_KILL = 0.30
HOLD = 0.50
SECOND_KILL = 0.60
START_TIMEOUT_S = 15.0
CATCH_UP_TIMEOUT_S = 15.0
POLL_S = 0.05
GAP_ALLOWANCE_MS = 1000
"""What a gap may last beyond two election timeouts."""


@dataclass(slots=True, kw_only=True)
class Kill:
    """One kill. ``within_load`` is false if there was nothing left to be acknowledged."""

    what: str
    acked_at_kill: int
    at: float
    within_load: bool
    unavailable_ms: int = 0


@dataclass(slots=True, kw_only=True)
class DemoReport:
    """What happened; the fields of the ``--json`` document."""

    rows_source: int
    rows_acked: int = 0
    rows_read: int = 0
    rows_lost: int = 0
    rows_wrong: int = 0
    kills: list[Kill] = field(default_factory=list)
    election_timeout_ms: int = 0
    replicas_agree: bool = False
    rows_per_s: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def gap_ms_max(self) -> int:
        """The longest gap that counts as healthy."""
        return 2 * self.election_timeout_ms + GAP_ALLOWANCE_MS

    @property
    def ok(self) -> bool:
        """True if nothing was lost or wrong, replicas agree, and every gap was short enough."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """The ``--json`` document."""
        kills = [
            {"what": kill.what, "acked_at_kill": kill.acked_at_kill, "unavailable_ms": kill.unavailable_ms}
            for kill in self.kills
        ]
        names = ("rows_source", "rows_acked", "rows_read", "rows_lost", "rows_wrong")
        return {
            **{name: getattr(self, name) for name in names},
            "kills": kills,
            "election_timeout_ms": self.election_timeout_ms,
            "replicas_agree": self.replicas_agree,
            "rows_per_s": self.rows_per_s,
            "problems": self.problems,
            "ok": self.ok,
        }


Progress = Callable[[str, int, int], None]
"""``progress(phase, done, total)``: what is going on, and how far it is in rows."""


class Demo:
    """One run on a cluster that was created and not yet started.

    Args:
        cluster: of three nodes.
        source: what to load.
        election_timeout_ms: of the cluster's nodes.
        progress: told how far it is.
        outlive: the nodes are to go on after this process.
    """

    def __init__(
        self, cluster: LocalCluster, source: Source, *, election_timeout_ms: int, progress: Progress, outlive: bool
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._progress = progress
        self._outlive = outlive
        self.report = DemoReport(rows_source=len(source.rows), election_timeout_ms=election_timeout_ms)
        self._kill_due = asyncio.Event()
        self._kill_at = 0

    async def run(self) -> DemoReport:
        """Start, load, kill, verify. The nodes still run when this returns.

        Raises:
            StelaeError: a node does not start or ends, or the load cannot go on.
        """
        self._progress("starting three nodes", 0, 0)
        self._cluster.start(outlive=self._outlive)
        client = await self._connect()
        try:
            tablet = await client.tablet(self._cluster.tablet_id)
            load = await self._load(client, tablet)
            self._progress("waiting until all replicas agree", 0, 0)
            agreement = await wait_for_agreement(client, self._cluster, self._cluster.check)
            self.report.replicas_agree = agreement.agree
            verdict = await read_back(tablet, self._source, load.acked, self._progress)
            self._judge(load, verdict, agreement.detail)
        finally:
            client.close()
        return self.report

    async def _connect(self) -> Client:
        """Connect as soon as a leader serves; a node that ends meanwhile is reported at once."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            self._cluster.check()
            try:
                client = await Client.connect(self._cluster.addresses, timeout_s=1.0)
                if await self._serves(client):
                    return client
                client.close()
            except RetryableError as error:
                if time.monotonic() > deadline:
                    raise Unavailable(f"the nodes do not serve: {error}") from error
            if time.monotonic() > deadline:
                raise Unavailable("the nodes have elected no leader in time")
            await asyncio.sleep(POLL_S)

    async def _serves(self, client: Client) -> bool:
        if len(client.nodes) < len(self._cluster.nodes):
            return False
        return await self._some_leader(client, client.nodes)

    async def _some_leader(self, client: Client, nodes: Sequence[NodeId]) -> bool:
        for node in nodes:
            try:
                reports = await client.status(node, deadline_ms=500)
            except RetryableError:
                continue
            if any(r.role == "LEADER" and r.state == "RUNNING" for r in reports):
                return True
        return False

    # -- load and kills --------------------------------------------------------------------------

    async def _load(self, client: Client, tablet: Tablet) -> Load:
        total = len(self._source.rows)
        load = Load(tablet, self._source.rows, lambda: self._acked(load))
        self._kill_at = int(total * FIRST_KILL)
        load.hold_from(int(total * HOLD))
        began = time.monotonic()
        loading = asyncio.create_task(load.run())
        killing = asyncio.create_task(self._kill_twice(client, tablet, load))
        try:
            # Whichever ends first with an error ends the run.
            await asyncio.gather(loading, killing)
        finally:
            for task in (loading, killing):
                task.cancel()
            await asyncio.gather(loading, killing, return_exceptions=True)
        ended = time.monotonic()
        self.report.rows_per_s = int(load.acked_count / (ended - began))
        self._measure_gaps(load, ended)
        return load

    def _acked(self, load: Load) -> None:
        self._progress("loading", load.acked_count, len(self._source.rows))
        if load.acked_count >= self._kill_at or not load.running:
            self._kill_due.set()

    async def _kill_twice(self, client: Client, tablet: Tablet, load: Load) -> None:
        first = await self._kill_leader(client, tablet, load)
        await self._wait_for_successor(client, first)
        first.start(outlive=self._outlive)
        await self._wait_until_caught_up(client, tablet, load, first)
        self._kill_at = int(len(self._source.rows) * SECOND_KILL)
        self._kill_due.clear()
        load.release()
        second = await self._kill_leader(client, tablet, load)
        second.start(outlive=self._outlive)

    async def _kill_leader(self, client: Client, tablet: Tablet, load: Load) -> NodeProcess:
        await self._kill_due.wait()
        node = self._cluster.node(tablet.leader.current)
        kill = Kill(
            what=f"SIGKILL of the leader, {node.name}",
            acked_at_kill=load.acked_count,
            at=time.monotonic(),
            within_load=load.running and load.acked_count < len(self._source.rows),
        )
        node.kill()
        self.report.kills.append(kill)
        self._progress(f"killed {node.name}, the leader", load.acked_count, load.acked_count)
        return node

    async def _wait_for_successor(self, client: Client, killed: NodeProcess) -> None:
        """Until another node leads: started sooner, the killed one might win the election."""
        deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
        others = [node.node_id for node in self._cluster.nodes if node is not killed]
        while time.monotonic() < deadline:
            if await self._some_leader(client, others):
                return
            await asyncio.sleep(POLL_S)
        raise Unavailable(f"no other node took over from {killed.name} in time")

    async def _wait_until_caught_up(self, client: Client, tablet: Tablet, load: Load, restarted: NodeProcess) -> None:
        """Until the leader's view is that the restarted replica holds its whole tail."""
        deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
        seen = "no leader answered"
        while time.monotonic() < deadline:
            restarted.check()
            await asyncio.sleep(POLL_S)
            try:
                reports = await client.status(tablet.leader.current, deadline_ms=500)
            except RetryableError as error:
                seen = str(error)
                continue
            for report in reports:
                matched = dict(report.match_indexes).get(restarted.node_id, -1)
                if report.role == "LEADER" and matched >= report.commit > 0:
                    return
                seen = f"{report.role} of term {report.term} at {report.commit}, it at {matched}"
        raise Unavailable(
            f"{restarted.name} did not catch up within {CATCH_UP_TIMEOUT_S:.0f} s ({seen}); "
            f"its log {restarted.log_path} ends with:\n{restarted.log_tail()}"
        )

    def _measure_gaps(self, load: Load, ended: float) -> None:
        ends = [*(kill.at for kill in self.report.kills[1:]), ended]
        for kill, until in zip(self.report.kills, ends, strict=False):
            kill.unavailable_ms = round(load.acks.longest_gap_ms(kill.at, until))

    # -- verdict ---------------------------------------------------------------------------------

    def _judge(self, load: Load, verdict: Verdict, disagreement: str) -> None:
        report = self.report
        report.rows_acked = load.acked_count
        report.rows_read = verdict.read
        report.rows_lost = verdict.lost
        report.rows_wrong = verdict.wrong
        problems = [*load.problems[:5], *verdict.examples]
        if report.rows_acked != report.rows_source:
            problems.append(f"{report.rows_source - report.rows_acked} rows were not acknowledged")
        if report.rows_lost:
            problems.append(f"{report.rows_lost} acknowledged rows are lost")
        if report.rows_wrong:
            problems.append(f"{report.rows_wrong} rows differ from the source")
        if not report.replicas_agree:
            problems.append(f"replicas do not agree: {disagreement}")
        if len(report.kills) != 2 or not all(kill.within_load for kill in report.kills):
            problems.append("a kill did not land within the load")
        for kill in report.kills:
            if kill.unavailable_ms > report.gap_ms_max:
                problems.append(
                    f"after {kill.what}: no acknowledgement for {kill.unavailable_ms} ms; "
                    f"at most {report.gap_ms_max} ms are allowed"
                )
        report.problems = problems
