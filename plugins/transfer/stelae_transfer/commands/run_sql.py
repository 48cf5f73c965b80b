"""Carries out ``stelae sql``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stelae.cli.kit.connection import Target, connected
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note
from stelae.client.counted import counted
from stelae_transfer.commands.row_output import Output, run_printing
from stelae_transfer.commands.run_scan import read_at
from stelae_transfer.sql import Query, prepare

STOP_EVERY_S = 0.1
"""Seconds between two attempts to interrupt a query."""


def run_sql(target: Target, text: str, at: str, form: str, path: Path | None, overwrite: bool, explain: bool) -> int:
    """Run a query, print its result, and return the exit code.

    Raises:
        SqlFailed: the query is wrong, or DuckDB is not installed.
        StelaeError: a table cannot be read.
    """
    output = Output(form, path, overwrite=overwrite)
    return run_printing(lambda: asyncio.run(_sql(target, text, at, output, explain)))


async def _sql(target: Target, text: str, at: str, output: Output, explain: bool) -> int:
    async with connected(target) as client:
        query = await prepare(client, text, read_at(at), target.timeout_s)
        answering = asyncio.create_task(asyncio.to_thread(_answer, query, output))
        try:
            await asyncio.shield(answering)
        except asyncio.CancelledError:
            while not answering.done():
                query.stop()
                await asyncio.wait([answering], timeout=STOP_EVERY_S)
            answering.exception()  # The error of the interrupt, which is expected.
            raise
        if explain:
            _explain(query)
    return EXIT_OK


def _answer(query: Query, output: Output) -> None:
    def take(schema: Any, batches: Iterator[Any]) -> None:
        with output.sink(schema) as sink:
            for batch in batches:
                sink.write(batch)

    query.run(take)


def _explain(query: Query) -> None:
    for scan in query.scans:
        conditions = " and ".join(" ".join(map(str, condition)) for condition in scan.filters) or "no condition"
        note(f"scan of {scan.table}: columns {', '.join(scan.columns)}; {conditions}; {counted(scan.rows, 'row')} read")
    note(f"snapshot time {query.at}")
