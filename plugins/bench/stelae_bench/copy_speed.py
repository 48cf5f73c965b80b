"""The part ``speed``: a tablet to a new server from one source, two halves from two sources, and ``cp`` beside them.

A copy has one source at a time (ADR 73). So two sources are two tablets of half the bytes, whose replicas are on
different servers and are copied at the same time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from functools import partial

from stelae.local.node_process import NodeProcess
from stelae_bench.copy_context import CopyBench
from stelae_bench.copy_nodes import BYTES_FETCHED, sizes_in
from stelae_bench.copy_report import CopyRound, FileCopyRound
from stelae_bench.copy_tables import CopiedTable
from stelae_bench.file_copy import copy_and_sync
from stelae_bench.process_cpu import spent


class CopySpeed:
    """Measures copies of a table that is loaded already, and of two halves that it loads."""

    def __init__(self, bench: CopyBench, whole: CopiedTable) -> None:
        self._bench = bench
        self._whole = whole
        self._compared: set[int] = set()

    async def measure(self) -> None:
        """Load the halves, and measure all rounds."""
        bench = self._bench
        bench.note("speed: loading two tablets of half the size")
        halves = await self._loaded_halves()
        one, two = partial(self._copy, [self._whole]), partial(self._copy, halves)
        await bench.rounds("speed", [one, two, self._copy_files])

    async def _loaded_halves(self) -> list[CopiedTable]:
        bench = self._bench
        halves = [await CopiedTable.create(bench, f"half{number}") for number in (1, 2)]
        for half, server in zip(halves, bench.nodes.cluster.servers, strict=False):
            await half.move_to(server)
        for number, half in enumerate(halves):
            await half.load(bench.settings.size_bytes // 2, bench.settings.seed + number)
        return halves

    async def _copy(self, tables: Sequence[CopiedTable]) -> None:
        """Copy tablets to a new server at the same time, and take them away again."""
        bench, nodes = self._bench, self._bench.nodes
        target = await nodes.new_server()
        found = await timed_copy(bench, tables, target)
        bench.report.copies.setdefault(len(tables), []).append(found)
        if not found.copied_bytes:
            bench.report.problems.append("the new replicas were fed from the log, without a copy; use a larger --bytes")
        if len(tables) not in self._compared:
            self._compared.add(len(tables))
            for table in tables:
                await table.compare(target)
        for table in tables:
            await table.remove(target)
        nodes.discard(target)

    async def _copy_files(self) -> None:
        nodes, source = self._bench.nodes, await self._whole.source()
        files = nodes.data_of(source, self._whole.tablet_id)
        await asyncio.to_thread(os.sync)
        size_bytes = sum(sizes_in(files).values())
        seconds = await asyncio.to_thread(copy_and_sync, files, nodes.cluster.directory / "cp")
        self._bench.report.file_copies.append(FileCopyRound(seconds=seconds, copied_bytes=size_bytes))


async def timed_copy(bench: CopyBench, tables: Sequence[CopiedTable], target: NodeProcess) -> CopyRound:
    """Copy tablets to a server at the same time: from the order until every replica has its vote."""
    nodes = bench.nodes
    sources = {(await table.source()).node_id for table in tables}
    await asyncio.to_thread(os.sync)  # What was written before must not slow down what is measured.
    watched = [nodes.server(node_id) for node_id in sources]
    fetched = nodes.counter(target, BYTES_FETCHED)
    before, target_before = [nodes.cpu_s(node) for node in watched], nodes.cpu_s(target)
    began = time.monotonic()
    await asyncio.gather(*(table.add(target) for table in tables))
    seconds = time.monotonic() - began
    after, target_after = [nodes.cpu_s(node) for node in watched], nodes.cpu_s(target)
    return CopyRound(
        seconds=seconds,
        copied_bytes=nodes.counter(target, BYTES_FETCHED) - fetched,
        source_cpu_s=spent(before, after),
        target_cpu_s=spent([target_before], [target_after]),
    )
