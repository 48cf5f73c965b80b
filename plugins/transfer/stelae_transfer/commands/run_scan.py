"""Carries out ``stelae scan``, ``stelae export`` and ``stelae get``."""

from __future__ import annotations

import asyncio
import difflib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stelae.cli.kit.connection import Target, connected, table_name
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.progress import RowsProgress
from stelae.client.counted import counted
from stelae.client.times import At, hybrid
from stelae.spi.errors import CallerError
from stelae_transfer.commands.row_output import Output, run_printing
from stelae_transfer.filters import read_key, read_time, read_where
from stelae_transfer.table_text import lines
from stelae_transfer.value_text import json_value

if TYPE_CHECKING:
    from stelae.client import AsyncScan, AsyncTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """The options of the command line."""

    target: Target
    columns: Sequence[str]
    where: str
    limit: int | None
    at: str
    form: str
    output: Path | None
    overwrite: bool
    count: bool = False
    since: str = ""


class BadScan(CallerError, code="BAD_SCAN"):
    """Options of a scan contradict each other, or name something that does not exist."""


def run_scan(options: ScanOptions) -> int:
    """Print the rows of a scan and return the exit code.

    Raises:
        StelaeError: the scan failed. The rows that were printed before are a prefix of the result.
    """
    if options.count and (options.output is not None or options.form not in ("", "json", "text")):
        raise BadScan(
            "--count prints one number; it cannot be combined with --output or a --format other than json or text"
        )
    return run_printing(lambda: asyncio.run(_scan(options)))


async def _scan(options: ScanOptions) -> int:
    async with connected(options.target) as client:
        table = await client.table(await table_name(client, options.target), timeout_s=options.target.timeout_s)
        several = len(table.partitioning.partitions) > 1
        at = read_at(options.at)
        if at is None and (several or options.since):
            at = await table.latest(timeout_s=options.target.timeout_s)
        scan = build_scan(table, options, at)
        if options.count:
            total = await scan.count()
            if options.form == "json":
                print_json({"count": total})
            else:
                print(total)
            return EXIT_OK
        output = Output(options.form, options.output, overwrite=options.overwrite)
        with output.sink(scan.arrow_schema, table.key) as sink:
            async for batch in scan:
                sink.write(batch)
        if options.since:
            note(f"changes up to {scan.at}; to read later changes: --since {scan.at}")
    return EXIT_OK


def build_scan(table: AsyncTable, options: ScanOptions, at: At | None) -> AsyncScan:
    """Return the scan that the options describe. ``BadScan``, ``BadFilter``: the options do not fit the table."""
    check_columns(table, options.columns)
    if options.since:
        return _diff(table, options, at)
    return table.scan(
        options.columns or None,
        read_where(table.schema, options.where) or None,
        limit=options.limit,
        order="key",
        at=at,
        timeout_s=options.target.timeout_s,
    )


def _diff(table: AsyncTable, options: ScanOptions, at: At | None) -> AsyncScan:
    """Return the scan of the changes since ``--since``."""
    if options.where:
        fact = "--since cannot be combined with --where: rows that no longer match the condition would be missing"
        raise BadScan(f"{fact}; remove --where and filter the output")
    since = hybrid(read_at(options.since) or 0)
    if at is not None and not options.at:
        at = max(hybrid(at), since)  # ``at`` is earlier if nothing has been written since.
    limit, timeout_s = options.limit, options.target.timeout_s
    return table.diff(since, at, options.columns or None, limit=limit, order="key", timeout_s=timeout_s)


def check_columns(table: AsyncTable, names: Sequence[str]) -> None:
    """Raise ``BadScan`` if the table lacks one of the columns. The message has its columns."""
    known = table.schema.by_name
    unknown = [name for name in names if name not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise BadScan(f"no column {', '.join(map(repr, unknown))}; the table has: {', '.join(known)}{hint}")


def read_at(text: str) -> At | None:
    """Return the time of ``--at`` or ``--since``. A time without a zone is in the zone of this machine."""
    return read_time(text, datetime.now().astimezone()) if text else None


# -- export --------------------------------------------------------------------------------------


def run_export(options: ScanOptions, *, progress: bool | None, as_json: bool) -> int:
    """Write the rows of a table to a file and return the exit code."""
    if str(options.output) == "-":
        raise BadScan("export writes a file, not '-'; to print rows: stelae scan --format csv")
    return asyncio.run(_export(options, progress, as_json))


async def _export(options: ScanOptions, progress: bool | None, as_json: bool) -> int:
    output = Output(options.form, options.output, overwrite=options.overwrite)
    began_s = time.monotonic()
    async with connected(options.target) as client:
        table = await client.table(await table_name(client, options.target), timeout_s=options.target.timeout_s)
        at = read_at(options.at) or await table.latest(timeout_s=options.target.timeout_s)
        scan = build_scan(table, options, at)
        rows = 0
        with RowsProgress("export", progress) as shown, output.sink(scan.arrow_schema, table.key) as sink:
            async for batch in scan:
                await asyncio.to_thread(sink.write, batch)
                rows += len(batch)
                shown.update(rows)
    seconds = time.monotonic() - began_s
    if as_json:
        document = {"table": table.name, "file": str(options.output), "format": output.form, "rows": rows}
        print_json({**document, "at": hybrid(at), "seconds": round(seconds, 3)})
    else:
        print(f"{table.name} -> {options.output}: {counted(rows, 'row')}, as of {hybrid(at)}")
    return EXIT_OK


# -- get -----------------------------------------------------------------------------------------


def run_get(target: Target, words: list[str], columns: Sequence[str], at: str, *, as_json: bool) -> int:
    """Print the row of a key and return the exit code."""
    return run_printing(lambda: asyncio.run(_get(target, words, columns, at, as_json)))


async def _get(target: Target, words: list[str], columns: Sequence[str], at: str, as_json: bool) -> int:
    async with connected(target) as client:
        table = await client.table(await table_name(client, target), timeout_s=target.timeout_s)
        check_columns(table, columns)
        if len(words) == len(table.key) + 1 and words[0] in await client.tables():
            raise BadScan(f"{words[0]!r} is a table; pass it as --table {words[0]}, and the key alone as arguments")
        key = read_key(table.schema, words)
        row = await table.get(key, at=read_at(at), timeout_s=target.timeout_s)
    shown = None if row is None else {name: row[name] for name in columns or row}
    if as_json:
        plain = None if shown is None else {name: json_value(value) for name, value in shown.items()}
        print_json({"found": shown is not None, "row": plain})
    elif shown is not None:
        width = shutil.get_terminal_size((80, 24)).columns
        for line in lines(list(shown), list(shown.values()), width):
            print(line)
    if shown is None:
        text = ", ".join(f"{name} = {value!r}" for name, value in json_value(key).items())
        note(f"{table.name} has no row with {text}")
        return EXIT_FAILED
    return EXIT_OK
