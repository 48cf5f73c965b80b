"""Options that say which table of which cluster, and what opens it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import note
from stelae.protocol.nearest_names import listed
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.client import AsyncClient

PATIENCE_S = 1.5
"""For how long a command is silent while nobody answers."""

CONNECT_VARIABLE = "STELAE_CONNECT"
ConnectOption = Annotated[
    str, typer.Option("--connect", envvar=CONNECT_VARIABLE, help="Addresses host:port of nodes, separated by commas.")
]
DirOption = Annotated[Path | None, typer.Option("--dir", help="Folder of a local cluster (`stelae cluster up DIR`).")]
TablesOption = Annotated[
    Path | None, typer.Option("--tables", envvar="STELAE_TABLES", help="A locations file; else each tablet is a table.")
]
TableOption = Annotated[
    str, typer.Option("--table", "--tablet", help="The table; may be left out where there is only one.")
]
NAME_HELP = "Address or uuid of the {}; a uuid may be cut after four letters. With --dir also its name, such as {}."
TimeoutOption = Annotated[float, typer.Option("--timeout-s", min=0.1, max=300.0, help="How long to retry.")]
AtOption = Annotated[
    str, typer.Option("--at", help="Read an older time: 2026-06-01T12:00, 5m (ago), or the timestamp of a write.")
]
SinceOption = Annotated[
    str, typer.Option("--since", help="Read what has changed since a time, said as for --at; rows that are gone, too.")
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Rows to read, as in: \"celsius > 20 and station in ('Bergen', 'Oslo')\"; given again, all must hold.",
    ),
]
ColumnsOption = Annotated[str, typer.Option("--columns", help="Columns, separated by commas; all unless given.")]
FormatOption = Annotated[
    str, typer.Option("--format", help="table, lines, text, csv, tsv, json, jsonl, parquet or arrow.")
]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="A file to write instead of printing.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]


class BadTarget(CallerError, code="BAD_TARGET"):
    """Options that do not say which table is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the command line said of where to go."""

    directory: Path | None
    connect: str
    tables: Path | None
    table: str
    timeout_s: float

    def addresses(self) -> list[str]:
        """Return addresses to connect to; ``BadTarget``: there are none, or two sorts."""
        given = split(self.connect)
        if self.directory is not None:
            if given and self.connect != os.environ.get(CONNECT_VARIABLE):
                raise BadTarget("say where the cluster is with either --dir DIR or --connect HOST:PORT, not both")
            from stelae.local.cluster_with_masters import addresses_of

            return addresses_of(self.directory)
        if not given:
            raise BadTarget("say where the cluster is: --connect HOST:PORT, or --dir DIR of a local one")
        return given


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[AsyncClient]:
    """A client of the cluster; closed at the end."""
    addresses = target.addresses()
    async with await connect_patiently(addresses, target.timeout_s, tables=target.tables) as client:
        yield client


async def connect_patiently(addresses: Sequence[str], timeout_s: float, *, tables: Path | None = None) -> AsyncClient:
    """Return a client of whoever answers there; tells on standard error when that takes long.

    ``Unavailable``: nobody did."""
    from stelae.client import connect_async

    text = f"nobody has answered yet at {', '.join(addresses)}; trying for {timeout_s:g} s"
    remark = asyncio.get_running_loop().call_later(PATIENCE_S, note, text)
    try:
        return await connect_async(addresses, tables=tables, timeout_s=timeout_s)
    finally:
        remark.cancel()


async def table_name(client: AsyncClient, target: Target, hint: str = "") -> str:
    """Return the table that is meant; ``BadTarget``: none was named, and there is not exactly one, with a hint."""
    if target.table:
        return target.table
    known = await client.tables()
    if len(known) != 1:
        raise BadTarget(f"say which table with --table; there are: {listed(known)}{hint}")
    return known[0]


def conditions(where: list[str] | None) -> str:
    """What all options ``--where`` say together."""
    return " and ".join(one for one in where or () if one.strip())


def split(text: str) -> list[str]:
    """Return the parts of a list that is separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
