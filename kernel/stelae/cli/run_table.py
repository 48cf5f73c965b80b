"""Carries out ``stelae table``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from stelae.cli.kit.connection import split
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.hash_option import read_hash
from stelae.cli.kit.name_lookup import shorten
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.table_lookup import describe_table
from stelae.cli.kit.terminal_layout import print_facts, print_fitted
from stelae.cli.masters_target import MastersTarget
from stelae.cli.table_text import default_value, partition_text, scheme_text
from stelae.client.arguments import whole_ms
from stelae.client.counted import counted
from stelae.client.text_values import parse_text
from stelae.partition.plain_partitioning import plain_value
from stelae.protocol.master_messages import TableDescription
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError
from stelae.spi.schema import Column, Schema


def run_list(cluster: MastersTarget, staleness_s: float, *, as_json: bool) -> int:
    """Print the tables and return the exit code."""

    async def run() -> list[dict[str, Any]]:
        async with cluster.masters() as (_, catalog):
            found = await catalog.list_tables(
                soft_deleted=True, staleness_ms=whole_ms("--staleness-s", staleness_s), timeout_s=cluster.timeout_s
            )
            return [{"name": t.name, "state": t.state.value, "table_id": t.table_id} for t in found.tables]

    tables = asyncio.run(run())
    _note_staleness(staleness_s)
    if as_json:
        print_json({"tables": tables})
    else:
        print_fitted(("TABLE", "STATE", "ID"), [(t["name"], t["state"], t["table_id"]) for t in tables])
    return EXIT_OK


def _note_staleness(staleness_s: float) -> None:
    if staleness_s:
        fact = f"this is the catalog of one master, which may be up to {staleness_s:g} s old"
        note(f"{fact}; leaders of tablets may be missing")


def run_describe(cluster: MastersTarget, name: str, staleness_s: float, *, as_json: bool) -> int:
    """Print one table and return the exit code."""

    async def run() -> TableDescription:
        async with cluster.masters() as (_, catalog):
            staleness_ms = whole_ms("--staleness-s", staleness_s)
            return await describe_table(catalog, name, cluster.timeout_s, staleness_ms=staleness_ms)

    found = describe_plainly(asyncio.run(run()))
    _note_staleness(staleness_s)
    if as_json:
        print_json(found)
        return EXIT_OK
    print_facts(
        {
            "table": found["name"],
            "id": found["table_id"],
            "state": found["state"],
            "replicas": found["replication_factor"],
            "schema": f"version {found['schema_version']}",
            "partitioning": found["partitioning"],
        }
    )
    print()
    print_fitted(
        ("COLUMN", "TYPE", "NULLABLE", "DEFAULT", ""), [_column_row(c, found["key"]) for c in found["columns"]]
    )
    short = shorten(tablet["tablet_id"] for tablet in found["tablets"])
    tablets = [
        (short[t["tablet_id"]], t["state"], t["leader"] or "-", " ".join(t["followers"]) or "-", t["partition"])
        for t in found["tablets"]
    ]
    print()
    print_fitted(("TABLET", "STATE", "LEADER", "FOLLOWERS", "ROWS"), tablets)
    return EXIT_OK


def _column_row(column: Mapping[str, Any], key: Sequence[str]) -> tuple[str, ...]:
    default = "-" if column["default"] is None else str(column["default"])
    is_key = "key" if column["name"] in key else ""
    return column["name"], column["type"], "yes" if column["nullable"] else "no", default, is_key


def run_create(
    cluster: MastersTarget,
    name: str,
    columns: Sequence[str],
    key: Sequence[str],
    hash_levels: Sequence[str],
    bounds: str,
    replicas: int,
    *,
    as_json: bool,
) -> int:
    """Create a table, wait until it accepts writes, and return the exit code."""
    given = [read_column("--column", text, key) for text in columns]
    partition: dict[str, Any] = {"hash": [read_hash(text) for text in hash_levels]}
    if bounds:
        partition["range"] = read_bounds({column["name"]: column["type"] for column in given}, key, bounds)

    async def run() -> dict[str, Any]:
        async with cluster.masters() as (client, catalog):
            await client.create_table(
                name, given, key, partition=partition, replicas=replicas, timeout_s=cluster.timeout_s
            )
            return describe_plainly(await catalog.get_table(name, timeout_s=cluster.timeout_s))

    made = asyncio.run(run())
    if as_json:
        print_json(made)
    else:
        note(f"created {name} with {counted(len(made['tablets']), 'tablet')} of {counted(replicas, 'replica')}")
    return EXIT_OK


def read_column(option: str, text: str, key: Sequence[str] = ()) -> dict[str, Any]:
    """Parse ``NAME:TYPE`` or ``NAME:TYPE=DEFAULT``. ``CallerError``: the text has neither form.

    The column is nullable unless it is in the key or has a default."""
    name, found, kind = text.partition(":")
    kind, has_default, default = kind.partition("=")
    if not found or not name or not kind:
        raise CallerError(f"{option} takes NAME:TYPE or NAME:TYPE=DEFAULT, such as id:int64, not {text!r}")
    plain = {"name": name, "type": kind, "nullable": not has_default and name not in key}
    if has_default:
        (column,) = schema_from_plain({"columns": [{"name": name, "type": kind}], "key": [name]}).columns
        plain["default"] = read_value(column, default)
    return plain


def read_bounds(columns: Mapping[str, str], key: Sequence[str], text: str) -> dict[str, Any]:
    """Parse ``COLUMN:BOUND,BOUND``, the bounds of the ranges of a new table. ``CallerError``: it has another form."""
    name, found, listed = text.partition(":")
    values = split(listed)
    if not found or name not in columns or not values:
        raise CallerError(f"--range takes COLUMN:BOUND,BOUND with a column of the key ({', '.join(key)}), not {text!r}")
    column = schema_from_plain({"columns": [{"name": name, "type": columns[name]}], "key": [name]}).columns[0]
    return {"columns": [name], "bounds": [[read_value(column, value)] for value in values]}


def read_value(column: Column, text: str) -> Any:
    """Parse a value as written in CSV. ``CallerError``: it is not a value of the column."""
    import pyarrow as pa

    fitted = parse_text(column, pa.array([text.encode()], pa.binary()))
    if fitted.bad:
        raise CallerError(f"invalid value: {fitted.bad[0]}")
    value = fitted.array[0].as_py()
    return str(value) if isinstance(value, Decimal) else plain_value(column, value)


def run_drop(cluster: MastersTarget, name: str, keep_s: float, *, as_json: bool) -> int:
    """Drop a table and return the exit code."""

    async def run() -> None:
        async with cluster.masters() as (client, _):
            await client.drop_table(name, keep_s=keep_s, timeout_s=cluster.timeout_s)

    asyncio.run(run())
    if as_json:
        print_json({"dropped": name, "keep_s": keep_s})
    else:
        note(f"dropped {name}" + (f"; it can be recalled for {keep_s:g} s" if keep_s else ""))
    return EXIT_OK


def describe_plainly(table: TableDescription) -> dict[str, Any]:
    """Return the description of a table as plain values, for JSON."""
    schema = Schema.from_bytes(table.schema)
    return {
        "name": table.name,
        "table_id": table.table_id,
        "state": table.state.value,
        "replication_factor": table.replication_factor,
        "schema_version": schema.version,
        "columns": [
            {"name": c.name, "type": c.type, "nullable": c.nullable, "default": default_value(c)}
            for c in schema.columns
        ],
        "key": [column.name for column in schema.key_layout.columns],
        "partitioning": scheme_text(table),
        "tablets": [
            {
                "tablet_id": tablet.tablet_id,
                "state": tablet.state.value,
                "partition": partition_text(table, tablet),
                "leader": next((address for node, address in tablet.members if node == tablet.leader), None),
                "members": [address for _, address in tablet.members],
                "followers": [address for node, address in tablet.members if node != tablet.leader],
            }
            for tablet in table.tablets
        ],
    }
