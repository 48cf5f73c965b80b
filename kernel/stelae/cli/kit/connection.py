"""Options that choose a cluster and a table, and functions that connect to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import note
from stelae.protocol.nearest_names import listed
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.client import AsyncClient, Contacts
    from stelae.client.connection import Connection

SILENT_S = 1.5
"""Seconds without an answer after which a command prints that it is still trying."""

CONNECT_VARIABLE = "STELAE_CONNECT"
ConnectOption = Annotated[
    str, typer.Option("--connect", envvar=CONNECT_VARIABLE, help="Node addresses HOST:PORT, separated by commas.")
]
DirOption = Annotated[Path | None, typer.Option("--dir", help="Folder of a local cluster (`stelae cluster up DIR`).")]
TablesOption = Annotated[
    Path | None,
    typer.Option("--tables", envvar="STELAE_TABLES", help="Locations file. Without it, each tablet is a table."),
]
TableOption = Annotated[
    str, typer.Option("--table", "--tablet", help="Name of the table. Optional if there is only one.")
]
NAME_HELP = "Address of the {}, or its uuid, of which four letters are enough. With --dir also its name, such as {}."
TimeoutOption = Annotated[float, typer.Option("--timeout-s", min=0.1, max=300.0, help="Seconds to retry.")]
AtOption = Annotated[
    str, typer.Option("--at", help="Read an older time: 2026-06-01T12:00, 5m (ago), or the timestamp of a write.")
]
SinceOption = Annotated[
    str,
    typer.Option(
        "--since", help="Read the rows that have changed since a time, in the form of --at. Includes deleted rows."
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Condition, such as \"celsius > 20 and station in ('Bergen', 'Oslo')\". If repeated, all must hold.",
    ),
]
ColumnsOption = Annotated[str, typer.Option("--columns", help="Columns, separated by commas. Default: all.")]
FormatOption = Annotated[
    str, typer.Option("--format", help="table, lines, text, csv, tsv, json, jsonl, parquet or arrow.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]


class BadTarget(CallerError, code="BAD_TARGET"):
    """The options do not identify a cluster or a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster and the table that the command line names."""

    directory: Path | None
    connect: str
    tables: Path | None
    table: str
    timeout_s: float

    def addresses(self) -> list[str]:
        """Return the addresses to connect to. ``BadTarget``: neither or both of the options are given."""
        given = split(self.connect)
        if self.directory is not None:
            if given and self.connect != os.environ.get(CONNECT_VARIABLE):
                raise BadTarget("pass either --dir DIR or --connect HOST:PORT, not both")
            from stelae.local.cluster_with_masters import addresses_of

            return addresses_of(self.directory)
        if not given:
            raise BadTarget("no cluster given; pass --connect HOST:PORT, or --dir DIR for a local cluster")
        return given

    def contacts(self) -> Contacts | None:
        """Return the other nodes of a local cluster, by which a client finds its masters."""
        if self.directory is None:
            return None
        from stelae.local.cluster_with_masters import contacts_in

        return contacts_in(self.directory)


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[AsyncClient]:
    """Open a client of the cluster, and close it at the end."""
    addresses = target.addresses()
    connecting = connect_patiently(addresses, target.timeout_s, tables=target.tables, contacts=target.contacts())
    async with await connecting as client:
        yield client


async def connect_patiently(
    addresses: Sequence[str], timeout_s: float, *, tables: Path | None = None, contacts: Contacts | None = None
) -> AsyncClient:
    """Return a client of the first node that answers. Prints a note on standard error if that takes long.

    Raises:
        Unavailable: no node answered in time.
    """
    from stelae.client import connect_async

    with _noted(addresses, timeout_s):
        return await connect_async(addresses, tables=tables, contacts=contacts, timeout_s=timeout_s)


async def connect_to_nodes(addresses: Sequence[str], timeout_s: float) -> Connection:
    """Return a connection to the nodes themselves, whose masters may be lost; as :func:`connect_patiently` does."""
    from stelae.client.connection import Connection

    with _noted(addresses, timeout_s):
        return await Connection.connect(addresses, timeout_s=timeout_s)


@contextmanager
def _noted(addresses: Sequence[str], timeout_s: float) -> Iterator[None]:
    """Print a note if the block takes long."""
    text = f"no answer yet from {', '.join(addresses)}; retrying for {timeout_s:g} s"
    waiting_note = asyncio.get_running_loop().call_later(SILENT_S, note, text)
    try:
        yield
    finally:
        waiting_note.cancel()


async def table_name(client: AsyncClient, target: Target, hint: str = "") -> str:
    """Return the name of the table: the one that ``--table`` names, or the only table of the cluster.

    Raises:
        BadTarget: no table is named, and the cluster has none or several. The message ends with ``hint``.
    """
    if target.table:
        return target.table
    known = await client.tables()
    if len(known) != 1:
        fact = f"choose a table with --table: {listed(known)}" if known else "the cluster has no tables"
        raise BadTarget(f"{fact}{hint}")
    return known[0]


def conditions(where: list[str] | None) -> str:
    """Return the conditions of all options ``--where``, joined by *and*."""
    return " and ".join(condition for condition in where or () if condition.strip())


def split(text: str) -> list[str]:
    """Return the items of a list that is separated by commas."""
    return [item.strip() for item in text.split(",") if item.strip()]
