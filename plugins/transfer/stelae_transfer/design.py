"""The table that an import would create for a file, and the comparison of a file with an existing table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stelae.cli.kit.hash_option import read_hash
from stelae.client import AsyncClient, AsyncTable
from stelae.client.arrow_fit import fit_array
from stelae.client.column_types import stored_type
from stelae.client.locations import NoSuchTable
from stelae.client.text_values import parse_text
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.partition.schema import PartitionSchema
from stelae.protocol.master_messages import CreateTable
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.schema import COLUMNS_MAX, Schema
from stelae.spi.write import OpKind

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WHOLE_ROW = (OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE)


class BadDesign(CallerError, code="BAD_DESIGN"):
    """A file cannot become a table: the key is missing, no type can store a column, or the partitioning is wrong."""


class TableDiffers(CallerError, code="TABLE_DIFFERS"):
    """The table does not match the file or the options. Nothing was written."""


class TableMissing(NoSuchTable, code="TABLE_MISSING"):
    """The table does not exist. The message describes the table that the file would make, and the next step."""

    def __init__(self, name: str, known: Sequence[str], description: str, next_step: str = "") -> None:
        super().__init__(name, known)
        self.args = (f"{self}\nthe file would make this table{next_step}:\n\n{description}",)


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it would be created."""

    name: str
    columns: tuple[
        Mapping[str, Any], ...
    ]  #: ``{"name", "type", "nullable"}`` of each column, in the order of the file.
    key: tuple[str, ...]
    hash: tuple[Mapping[str, Any], ...] = ()  #: ``{"columns", "buckets"}`` of each hash level.
    key_is_guessed: bool = False  #: Whether the key was chosen here, because the user did not name it.

    def schema(self) -> Schema:
        """Return the schema. ``SchemaMismatch``: the columns are not a valid schema."""
        return schema_from_plain({"columns": self.columns, "key": self.key})

    def partition_schema(self) -> PartitionSchema:
        """Return the partitioning. ``BadPartitioning``: it does not fit the schema."""
        return partition_schema_from_plain(self.schema(), {"hash": self.hash})

    def to_plain(self) -> dict[str, Any]:
        """Return the design as plain values, for JSON."""
        plain: dict[str, Any] = {"table": self.name, "columns": list(self.columns), "key": list(self.key)}
        return {**plain, "partition": {"hash": list(self.hash)}, "tablets": self.partition_schema().count}

    def to_toml(self) -> str:
        """Return the TOML that describes the table.

        That is the section ``[tablet]`` of each ``node.toml`` and, if the table has several tablets, its section of a
        locations file."""
        count = self.partition_schema().count
        names = [self.name] if count == 1 else [f"{self.name}-{n}" for n in range(count)]
        lines = ["# in the node.toml of each member" + (", one tablet for each node" if count > 1 else "")]
        lines += ["# the key is a guess: pass the key columns with --key"] * self.key_is_guessed
        lines += ["[tablet]", f"id = {_text(names[0])}", f"key = [{', '.join(map(_text, self.key))}]", "columns = ["]
        for column in self.columns:
            nullable = ", nullable = true" if column["nullable"] else ""
            lines.append(f"    {{ name = {_text(column['name'])}, type = {_text(column['type'])}{nullable} }},")
        lines.append("]")
        if count > 1:
            levels = [
                f"{{ columns = [{', '.join(map(_text, level['columns']))}], buckets = {level['buckets']} }}"
                for level in self.hash
            ]
            quoted = self.name if _BARE_KEY.fullmatch(self.name) else _text(self.name)
            lines += ["", "# in the file for --tables", f"[tables.{quoted}]"]
            lines += [f"partition.hash = [{', '.join(levels)}]", "tablets = ["]
            lines += [f"    {{ id = {_text(name)} }}," for name in names] + ["]"]
        return "\n".join(lines)


def design(name: str, types: Mapping[str, Any], key: Sequence[str], hash_levels: Sequence[str], hint: str) -> Design:
    """Design the table for the columns of a file.

    Args:
        name: the name of the table.
        types: the Arrow type of each column; ``None`` where all values are null; a text that says why a column has no
            single type.
        key: the names of the key columns.
        hash_levels: ``"column,column:buckets"`` for each level.
        hint: a text for the error message about a missing key.

    Raises:
        BadDesign: the columns and options do not make a table; with the reason.
    """
    if not key:
        raise BadDesign(
            f"a new table needs a key; pass --key with columns of the file: {_some(types)}{hint}{delimiter_hint(types)}"
        )
    unknown = [column for column in key if column not in types]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise BadDesign(f"no key column {names} in the file; it has: {_some(types)}{delimiter_hint(types)}")
    columns = []
    for column, kind in types.items():
        stored = stored_type(kind)
        if stored is None:
            verb = "has" if isinstance(kind, str) else "is"
            fact = f"column {column!r} {verb} {kind}, which no column type can store"
            raise BadDesign(f"{fact}; choose other columns with --columns, or convert the file first")
        columns.append({"name": column, "type": stored, "nullable": column not in key})
    made = Design(
        name=name, columns=tuple(columns), key=tuple(key), hash=tuple(read_hash(text) for text in hash_levels)
    )
    try:
        made.partition_schema()
    except CallerError as error:
        more = f"; choose up to {COLUMNS_MAX} with --columns" if len(columns) > COLUMNS_MAX else ""
        raise BadDesign(f"the file cannot become a table: {error}{more}") from error
    return made


async def open_or_create(
    client: AsyncClient,
    wanted: Design | None,
    name: str,
    timeout_s: float,
    *,
    may_create: bool,
    on_create: Callable[[Design], None],
) -> AsyncTable:
    """Open a table. If it is missing and the cluster has masters, create it as ``wanted`` first.

    A table is never created with a guessed key: rows with equal keys would replace each other without a message.

    Args:
        client: the client of the cluster.
        wanted: the table to create; ``None``: the file cannot become a table.
        name: the name of the table.
        timeout_s: how long to retry.
        may_create: whether a missing table may be created.
        on_create: called before the table is created.

    Raises:
        TableMissing: the table does not exist and may not be created; with its description.
        NoSuchTable: the table does not exist, and ``wanted`` is ``None``.
        Unavailable: the cluster cannot be reached in time.
    """
    try:
        return await client.table(name, timeout_s=timeout_s)
    except NoSuchTable as error:
        if wanted is None:
            raise
        masters = client.catalog is not None
        if client.catalog is not None and may_create and not wanted.key_is_guessed:
            on_create(wanted)
            schema, scheme = wanted.schema().to_bytes(), wanted.partition_schema().to_bytes()
            made = CreateTable(name=name, schema=schema, partition_schema=scheme)
            await client.catalog.change(made, timeout_s=timeout_s)
            return await client.table(name, timeout_s=timeout_s)
        next_step = "; pass its key with --key to create it" if masters and may_create else ""
        raise TableMissing(name, await client.tables(), wanted.to_toml(), next_step) from error


def check_fits(
    table: AsyncTable, types: Mapping[str, Any], kind: OpKind, key: Sequence[str], hash_levels: Sequence[str]
) -> list[str]:
    """Compare the columns of a file with a table. Return remarks on columns of the table that the file lacks.

    Args:
        table: the table to load into.
        types: the Arrow type of each column to load; ``None``: untyped text, which is checked row by row.
        kind: the kind of the writes.
        key: the key columns that the user named, or none.
        hash_levels: the hash levels that the user named, or none.

    Raises:
        TableDiffers: no row of the file could be written; with every difference.
    """
    schema = table.schema
    wrong = [f"column {name!r} is not in the table" for name in types if name not in schema.by_name]
    remarks: list[str] = []
    for column in schema.columns:
        if column.name in types:
            problem = _type_problem(column.name, column.type, schema, types[column.name])
            wrong += problem
        elif column.id in schema.key:
            wrong.append(f"key column {column.name!r} is not in the file")
        elif kind in _WHOLE_ROW and column.required:
            wrong.append(f"column {column.name!r} is not in the file, and it is neither nullable nor has a default")
        elif kind in _WHOLE_ROW:
            remarks.append(f"column {column.name!r} is not in the file: new rows get its default or null")
    if key and list(key) != list(table.key):
        wrong.append(f"the key of the table is {', '.join(table.key)}, not {', '.join(key)}")
    if hash_levels:
        wrong += _other_partitioning(table, hash_levels)
    if wrong:
        what = "\n  ".join(wrong)
        hint = "\nchoose columns of the file with --columns, or skip unknown columns with --skip-unknown"
        unknown = any(name not in schema.by_name for name in types)
        raise TableDiffers(f"the file does not match table {table.name!r}:\n  {what}{hint * unknown}")
    return remarks


def type_remarks(schema: Schema, sample: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a remark on each text column of a sample with values that do not fit the table."""
    found = []
    for name, values in sample.items():
        column = schema.by_name.get(name)
        if column is None or not all(value is None or isinstance(value, str) for value in values):
            continue
        bad = sorted(parse_text(column, _raw(values)).bad)
        if bad:
            fact = f"column {name!r}: {len(bad)} of the first {len(values)} values are not of type {column.type}"
            found.append(f"{fact}, such as {values[bad[0]]!r:.40}; these rows will be bad rows")
    return found


def _raw(values: Sequence[str | None]) -> Any:
    import pyarrow as pa

    return pa.array([None if v is None else v.encode(errors="surrogateescape") for v in values], pa.binary())


def _type_problem(name: str, stored: str, schema: Schema, kind: Any) -> list[str]:
    """Return one text if no value of the Arrow type fits the column, otherwise an empty list."""
    import pyarrow as pa

    if kind is None:
        return []
    try:
        fit_array(schema.by_name[name], pa.array([], kind))
    except SchemaMismatch:
        return [f"column {name!r} is {kind} in the file and {stored} in the table"]
    return []


def _other_partitioning(table: AsyncTable, hash_levels: Sequence[str]) -> list[str]:
    schema = table.schema
    wanted = partition_schema_from_plain(schema, {"hash": [read_hash(text) for text in hash_levels]})
    existing = table.partitioning.partition_schema
    if wanted.hash_levels == existing.hash_levels:
        return []
    levels = [(",".join(schema.by_id[i].name for i in level.columns), level.buckets) for level in existing.hash_levels]
    listed = ", ".join(f"{names}:{buckets}" for names, buckets in levels)
    return [f"the table is hashed by {listed or 'nothing'}, not by {', '.join(hash_levels)}"]


def _text(text: Any) -> str:
    """Return a TOML basic string. A JSON string is one."""
    return msgspec.json.encode(str(text)).decode()


def _some(names: Mapping[str, Any]) -> str:
    listed = ", ".join(names)
    return listed if len(listed) <= 400 else f"{listed[:400]}…"


def delimiter_hint(names: Iterable[str]) -> str:
    """Return a hint for an error message if the only column name of a header looks like several names."""
    listed = [*names]
    found = [sign for sign in (";", "\t", "|") if len(listed) == 1 and sign in listed[0]]
    if not found:
        return ""
    how = "--format tsv" if found[0] == "\t" else f"--delimiter {found[0]!r}"
    return f"; if its cells are separated by {found[0]!r}, pass {how}"
