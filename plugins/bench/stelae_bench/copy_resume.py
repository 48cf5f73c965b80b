"""The part ``resume``: a copy whose target, and one whose source, is killed in the middle and started again.

It counts the bytes that cross the network in all, and compares them with those of a copy that is not disturbed."""

from __future__ import annotations

import asyncio
import time

from stelae.local.node_process import NodeProcess
from stelae.spi.errors import Unavailable
from stelae_bench.copy_context import CopyBench
from stelae_bench.copy_nodes import BYTES_FETCHED, BYTES_SENT
from stelae_bench.copy_report import ResumeRound
from stelae_bench.copy_tables import TIMEOUT_S, CopiedTable

KILLED_AT = 0.4
"""The part of the bytes that the target has stored when a process is killed."""

SECONDS = 4.0
"""About how long a copy takes with the limit that is set, so that it can be met in the middle."""

POLL_S = 0.005


class CopyResume:
    """Kills processes during copies of a table that is loaded already."""

    def __init__(self, bench: CopyBench, copied: CopiedTable) -> None:
        self._bench = bench
        self._copied = copied

    async def measure(self) -> None:
        """Measure each case once: what is counted does not depend on the speed of the machine."""
        bench = self._bench
        bench.note("resume: a copy without a kill")
        whole_bytes = await self._undisturbed()
        bench.note("resume: the target is killed")
        bench.report.resumes["target_killed"] = await self._target_killed(whole_bytes)
        bench.note("resume: the source is killed")
        bench.report.resumes["source_killed"] = await self._source_killed(whole_bytes)

    async def _undisturbed(self) -> int:
        target = await self._bench.nodes.new_server()
        await self._copied.add(target)
        return await self._ended(target, self._bench.nodes.counter(target, BYTES_FETCHED))

    async def _target_killed(self, whole_bytes: int) -> ResumeRound:
        nodes, source, target = self._bench.nodes, await self._copied.source(), await self._slow_target(whole_bytes)
        before = nodes.counter(source, BYTES_SENT)
        await self._begun(target, whole_bytes)
        target.kill()
        stored = nodes.stage_bytes(target, self._copied.tablet_id)
        target.start()
        await self._copied.until_voter(target.node_id)
        sent = nodes.counter(source, BYTES_SENT) - before
        return ResumeRound(whole_bytes=whole_bytes, stored_bytes=stored, moved_bytes=await self._ended(target, sent))

    async def _source_killed(self, whole_bytes: int) -> ResumeRound:
        nodes, source, target = self._bench.nodes, await self._copied.source(), await self._slow_target(whole_bytes)
        stored = await self._begun(target, whole_bytes)
        source.kill()
        source.start()
        await self._copied.until_voter(target.node_id)
        fetched = nodes.counter(target, BYTES_FETCHED)
        return ResumeRound(whole_bytes=whole_bytes, stored_bytes=stored, moved_bytes=await self._ended(target, fetched))

    async def _slow_target(self, whole_bytes: int) -> NodeProcess:
        limit = max(int(whole_bytes / SECONDS), 1)
        return await self._bench.nodes.new_server(f"\n[copy.streaming]\nfetch_bytes_per_s_max = {limit}\n")

    async def _begun(self, target: NodeProcess, whole_bytes: int) -> int:
        """Begin a copy, and wait until a part of it is stored. Return the stored bytes."""
        copied, nodes = self._copied, self._bench.nodes
        await copied.replicas.add(target.address, node=target.node_id, timeout_s=TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            stored = nodes.stage_bytes(target, copied.tablet_id)
            if stored >= KILLED_AT * whole_bytes:
                return stored
            await asyncio.sleep(POLL_S)
        raise Unavailable("the copy that is to be interrupted does not begin")

    async def _ended(self, target: NodeProcess, moved_bytes: int) -> int:
        """Compare the copy with its source, and take it away. Return ``moved_bytes``."""
        await self._copied.compare(target)
        await self._copied.remove(target)
        self._bench.nodes.discard(target)
        return moved_bytes
