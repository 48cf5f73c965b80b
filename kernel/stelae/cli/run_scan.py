"""Carries out ``stelae scan``."""

from __future__ import annotations

import asyncio
import base64
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stelae.cli.errors import EXIT_OK
from stelae.cli.output import print_json
from stelae.client.client import Client
from stelae.local.cluster import LocalCluster
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """What the command line said."""

    directory: Path | None
    addresses: tuple[str, ...]
    tablet: str
    columns: tuple[str, ...]
    limit: int | None
    count: bool
    timeout_s: float
    as_json: bool


class BadScan(CallerError):
    """Options of a scan that do not go together, or name what is not there."""

    code = "BAD_SCAN"


def run_scan(options: ScanOptions) -> int:
    """Scan and print; return the exit code.

    Raises:
        StelaeError: the scan could not be carried out; what was printed before is a prefix of it.
    """
    addresses, tablet = _target(options)
    return asyncio.run(_scan(addresses, tablet, options))


def _target(options: ScanOptions) -> tuple[list[str], TabletId]:
    if (options.directory is None) == (not options.addresses):
        raise BadScan("say where to read: either --dir DIR, or --connect HOST:PORT --tablet ID")
    if options.directory is not None:
        cluster = LocalCluster.open(options.directory)
        return cluster.addresses, tablet_id(options.tablet or cluster.tablet_id)
    if not options.tablet:
        raise BadScan("--connect needs --tablet ID")
    return list(options.addresses), tablet_id(options.tablet)


async def _scan(addresses: list[str], tablet: TabletId, options: ScanOptions) -> int:
    async with await Client.connect(addresses, timeout_s=options.timeout_s) as client:
        found = await client.tablet(tablet, timeout_s=options.timeout_s)
        ids = _column_ids(found.schema, options.columns)
        names = [column.name for column in found.schema.project(ids).columns]
        rows: list[list[Any]] = []
        total = 0
        if not options.as_json and not options.count:
            print("\t".join(names))
        spec = ScanSpec(columns=ids, limit=options.limit)
        async for batch in found.scan(spec, timeout_s=options.timeout_s):
            total += len(batch)
            if options.count:
                continue
            plain = [[_plain(value) for value in row] for row in batch.to_rows()]
            if options.as_json:
                rows.extend(plain)
            else:
                sys.stdout.write("".join(_line(row) for row in plain))
    if options.as_json:
        document = {"count": total} if options.count else {"columns": names, "rows": rows}
        print_json(document)
    elif options.count:
        print(total)
    return EXIT_OK


def _column_ids(schema: Schema, names: tuple[str, ...]) -> tuple[int, ...] | None:
    if not names:
        return None
    unknown = [name for name in names if name not in schema.by_name]
    if unknown:
        known = ", ".join(schema.by_name)
        raise BadScan(f"no column {', '.join(unknown)}; the tablet has: {known}")
    return tuple(schema.by_name[name].id for name in names)


def _plain(value: Any) -> Any:
    """What JSON can say: bytes as base64, anything it does not know as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _line(row: list[Any]) -> str:
    """One tab-separated line; null is empty, and no value can break the line."""
    cells = ["" if value is None else str(value) for value in row]
    escaped = [c.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for c in cells]
    return "\t".join(escaped) + "\n"
