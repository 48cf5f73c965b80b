"""Carries out ``stelae import``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stelae.cli.kit.connection import Target, connected, split, table_name
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.progress import RowsProgress
from stelae.client import AsyncTable
from stelae.client.column_types import stored_type
from stelae.client.locations import NoSuchTable
from stelae.client.row_input import unknown_columns
from stelae.spi.errors import CallerError
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae_transfer.checking import check_chunk
from stelae_transfer.design import (
    BadDesign,
    Design,
    TableMissing,
    apart,
    check_fits,
    design,
    open_or_create,
    type_remarks,
)
from stelae_transfer.files import FileKindAndCompression, Format, kind_of
from stelae_transfer.inference import nearly, repeated, unique_columns, unique_key
from stelae_transfer.journal import Journal, Position, Subject, digest_of
from stelae_transfer.loading import Loader
from stelae_transfer.readers import open_reader
from stelae_transfer.records import RecordReader
from stelae_transfer.rejects import Rejects
from stelae_transfer.snapshot import members_of

MODES = {kind.name.lower().replace("_", "-"): kind for kind in OpKind}
_TYPED = (Format.PARQUET, Format.ARROW)
_KEY_ONLY = (OpKind.DELETE, OpKind.DELETE_IGNORE)
_MAKING = (OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE)
"""Modes that make a table that is missing: the others have nothing to find in it."""
_NULLS = ("na", "n/a", "null", "none", "nil", "-", "--", "?", "#n/a", "missing", "\\n")
"""Words that others write for a value that is missing."""
_OF_REPEATED = {OpKind.UPSERT: "replace it", OpKind.INSERT_IGNORE: "are left out"}
"""What becomes of a row whose key another row of the file has, in modes that do not tell it of each."""
_SHOWN_COLUMNS = 12


class BadImport(CallerError, code="BAD_IMPORT"):
    """Options of an import that do not go together, or name what is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the command line said."""

    file: Path
    target: Target
    key: Sequence[str]
    hash_levels: Sequence[str]
    mode: str
    columns: Sequence[str]
    skip_unknown: bool
    form: str
    delimiter: str
    null: str
    show_schema: bool
    dry_run: bool
    journal: Path | None
    restart: bool
    bad_rows: Path | None
    bad_rows_max: int
    progress: bool | None
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """A file, looked at. ``types`` are those of a sample where the file itself has none."""

    kind: FileKindAndCompression
    columns: Sequence[str]
    types: Mapping[str, Any]
    sample: Mapping[str, Sequence[Any]]

    @property
    def keyable(self) -> Mapping[str, Sequence[Any]]:
        """The sample of the columns that may be a key though nobody said their types: a number that seems to be a
        double may be anything."""
        return {name: values for name, values in self.sample.items() if not self.seems_double(name)}

    def seems_double(self, name: str) -> bool:
        """Whether a column is a double by its values alone."""
        return self.kind.format not in _TYPED and stored_type(self.types[name]) == "double"

    @property
    def is_bare(self) -> bool:
        """Whether it names columns and says nothing of their types: a header of CSV without a row."""
        return self.kind.format not in _TYPED and not any(self.sample.values())


def options_of(params: Mapping[str, Any]) -> ImportOptions:
    """Return the options of a command line, by the names of its parameters."""
    given = dict(params)
    names = [field.name for field in fields(Target)]
    target = Target(**{name: given.pop(name) for name in names})
    given |= {name: split(given[name]) for name in ("key", "columns")}
    given["hash_levels"] = given["hash_levels"] or []
    return ImportOptions(target=target, **given)


def run_import(options: ImportOptions) -> int:
    """Load a file; return the exit code.

    Raises:
        StelaeError: it could not begin, or did not come to its end: the same command goes on then.
    """
    if options.mode not in MODES:
        raise BadImport(f"there is no mode {options.mode!r}; known: {', '.join(MODES)}")
    source = _look_at(options)
    name = options.target.table or options.file.name.partition(".")[0]
    if options.show_schema:
        made = _design(options, source, name)
        _note_repeated(options, source, made.key)
        _note_texts(source, made)
        if options.as_json:
            print_json(made.to_plain())
        else:
            print(made.to_toml())
        return EXIT_OK
    if options.dry_run and not options.target.connect and options.target.directory is None:
        made = _design(options, source, name)
        _note_repeated(options, source, made.key)
        return _dry_run(options, source, name, made.schema(), source.columns)
    return asyncio.run(_import(options, source))


async def _import(options: ImportOptions, source: _Input) -> int:
    async with connected(options.target) as client:
        name = await table_name(client, options.target, "; a new one is made under the name that you give, with --key")
        wanted, problem = _if_possible(options, source, name)
        may_create = MODES[options.mode] in _MAKING and not options.dry_run
        try:
            table = await open_or_create(
                client,
                wanted,
                name,
                options.target.timeout_s,
                may_create=may_create,
                told=partial(_say_what_is_made, source),
            )
        except TableMissing:
            if not options.dry_run or wanted is None or wanted.key_is_guessed:
                raise
            _note_repeated(options, source, wanted.key)
            return await asyncio.to_thread(_dry_run, options, source, name, wanted.schema(), source.columns)
        except NoSuchTable as error:
            if problem is None:
                raise
            raise BadImport(f"{error}; and the file would make none: {problem}") from error
        columns = _checked_columns(options, source, table)
        if options.dry_run:
            return await asyncio.to_thread(_dry_run, options, source, name, table.schema, columns)
        subject = await asyncio.to_thread(_subject, options, source, name, columns)
        members = await members_of(client, name, options.target.timeout_s)
        return await _load(options, source, table, columns, Subject(**{**subject, "members": members}))


async def _load(
    options: ImportOptions, source: _Input, table: AsyncTable, columns: Sequence[str], subject: Subject
) -> int:
    journal = Journal.open(_beside(options, options.journal, table.name, "import"), subject, restart=options.restart)
    began, began_s, done = journal.position, time.monotonic(), False
    if began.acknowledged:
        note(f"going on behind row {began.acknowledged:,}, the last one that was acknowledged; --restart begins again")
    try:
        with (
            closing(_open(options, source.kind)) as reader,
            closing(Rejects(_beside(options, options.bad_rows, table.name, "bad.jsonl"), began.bad_bytes)) as rejects,
            RowsProgress("import", options.progress, began.acknowledged) as shown,
        ):
            loader = Loader(
                table,
                MODES[options.mode],
                journal,
                rejects,
                bad_rows_max=options.bad_rows_max,
                timeout_s=options.target.timeout_s,
                clock_s=time.monotonic,
                progress=lambda position, part: shown.update(position.acknowledged - began.acknowledged, part),
            )
            position = await loader.run(reader.chunks(table.schema, columns, began.acknowledged))
        done = True
    finally:
        journal.close(done=done)
    return _report(options, table.name, began, position, rejects, time.monotonic() - began_s)


def _report(
    options: ImportOptions, table: str, began: Position, position: Position, rejects: Rejects, seconds: float
) -> int:
    bad_rows = str(rejects.path) if position.bad else None
    if options.as_json:
        document = {
            "table": table,
            "file": str(options.file),
            "mode": options.mode,
            "rows": position.acknowledged,
            "written": position.written,
            "bad": position.bad,
            "bad_rows_file": bad_rows,
            "resumed_after": began.acknowledged,
            "timestamp": position.timestamp,
            "seconds": round(seconds, 3),
            "rows_per_s": round((position.acknowledged - began.acknowledged) / max(seconds, 1e-9)),
        }
        print_json(document)
    else:
        bad = f", {position.bad:,} bad: see {bad_rows}" if position.bad else ""
        print(f"{options.file} -> {table}: {position.written:,} rows written ({options.mode}){bad}")
        if position.timestamp:
            print(f"the table right after it: --at {position.timestamp}")
    return EXIT_FAILED if position.bad else EXIT_OK


def _dry_run(options: ImportOptions, source: _Input, name: str, schema: Schema, columns: Sequence[str]) -> int:
    rows = bad = 0
    # Of a name of its own: an import that was interrupted still needs its file.
    path = _beside(options, options.bad_rows, name, "dry-run.jsonl")
    with closing(_open(options, source.kind)) as reader, closing(Rejects(path, 0)) as rejects:
        for chunk in reader.chunks(schema, columns, 0):
            found = check_chunk(schema, MODES[options.mode], chunk)
            rejects.add(found)
            rows, bad = chunk.last, bad + sum(row.rows for row in found)
            if bad > options.bad_rows_max:
                note(f"stopped at row {rows}: more bad rows than --bad-rows-max {options.bad_rows_max}")
                break
    bad_rows = str(rejects.path) if bad else None
    if options.as_json:
        print_json({"dry_run": True, "rows": rows, "good": rows - bad, "bad": bad, "bad_rows_file": bad_rows})
    else:
        print(f"{options.file}: {rows:,} rows, {bad:,} bad{f': see {bad_rows}' if bad else ''}; nothing was written")
    return EXIT_FAILED if bad else EXIT_OK


# -- what is to be loaded --------------------------------------------------------------------------


def _look_at(options: ImportOptions) -> _Input:
    kind = kind_of(options.file, options.form)
    reader = _open(options, kind)
    try:
        unknown = [name for name in options.columns if name not in reader.columns]
        if unknown:
            raise BadImport(
                f"no column {', '.join(unknown)} in {options.file}; it has: {', '.join(reader.columns)}"[:600]
            )
        columns = [*options.columns] or [*reader.columns]
        if not columns:
            raise BadImport(f"{options.file} has no columns: there is nothing to load")
        types = reader.types()
    finally:
        reader.close()
    again = _open(options, kind)
    try:
        sample = {name: values for name, values in again.sample().items() if name in columns}
    finally:
        again.close()
    return _Input(kind=kind, columns=columns, types={name: types[name] for name in columns}, sample=sample)


def _open(options: ImportOptions, kind: FileKindAndCompression) -> RecordReader:
    return open_reader(options.file, kind, delimiter=options.delimiter, null=options.null)


def _design(options: ImportOptions, source: _Input, name: str) -> Design:
    _check_rows(options, source, name)
    alone, together = unique_columns(source.keyable), ",".join(unique_key(source.keyable))
    unique = ", ".join(alone[:_SHOWN_COLUMNS])
    hint = f"; in the first rows these have a value of their own in each: {unique}" if unique else ""
    if together and not unique:
        hint = f"; in the first rows --key {together} does"
    return design(name, source.types, options.key, options.hash_levels, hint)


def _check_rows(options: ImportOptions, source: _Input, name: str) -> None:
    """``BadDesign``: a table would have columns, or a key, of types that nobody has said."""
    if source.is_bare:
        columns = ", ".join(source.columns[:_SHOWN_COLUMNS])
        fact = f"{options.file} has no rows: there is nothing to tell the types of {columns} by"
        key = ",".join(options.key) or source.columns[0]
        example = f"stelae table create {name} --column {source.columns[0]}:TYPE ... --key {key}"
        raise BadDesign(f"{fact}; say them with {example}, or import a file with rows")
    for column in options.key:
        if column in source.types and source.seems_double(column):
            fact = f"key column {column!r} has numbers with a fraction or an exponent, and nobody has said their type"
            others = "double, decimal(P,S) or string: stelae table create"
            example = f"{others} {name} --column {column}:TYPE ... --key {','.join(options.key)}"
            raise BadDesign(f"{fact}; make the table first, with {example}, and import into it")


def _say_what_is_made(source: _Input, made: Design) -> None:
    note(f"making the table {made.name}, with the key {', '.join(made.key)}")
    _note_texts(source, made)


def _note_texts(source: _Input, made: Design) -> None:
    """Tell of columns that become text for the sake of a few values."""
    if source.kind.format in (*_TYPED, Format.JSONL):
        return
    names = [str(column["name"]) for column in made.columns if column["type"] == "string"]
    for name, found in [(name, found) for name in names if (found := nearly(source.sample[name]))][:_SHOWN_COLUMNS]:
        kind, count, looked_at, text = found
        fact = f"column {name!r} is text: {count:,} of the first {looked_at:,} values are no {kind}"
        is_null = text.strip().lower() in _NULLS
        step = f"--null {text.strip()} makes those null" if is_null else "if it is not to be, make the table first"
        note(f"{fact}, such as {text!r:.40}; {step}")


def _if_possible(options: ImportOptions, source: _Input, name: str) -> tuple[Design | None, CallerError | None]:
    """What a missing table would be, or why it cannot; without a key, of the first columns that tell rows apart."""
    key = options.key or unique_key(source.keyable) or source.columns[:1]
    try:
        _check_rows(options, source, name)
        made = design(name, source.types, key, options.hash_levels, "")
    except CallerError as error:
        return None, error
    return msgspec.structs.replace(made, key_is_guessed=not options.key), None


def _checked_columns(options: ImportOptions, source: _Input, table: AsyncTable) -> Sequence[str]:
    """Return the columns to load, once they go together with the table; remarks go to standard error."""
    schema = table.schema
    wanted = [name for name in source.columns if name in schema.by_name or not options.skip_unknown]
    if not any(name in schema.by_name for name in wanted):
        raise BadImport(unknown_columns(schema, list(source.columns)) + apart(source.columns))
    kind = MODES[options.mode]
    if kind in _KEY_ONLY:
        wanted = [name for name in wanted if name in table.key]
    typed = source.kind.format in _TYPED
    types = {name: source.types[name] if typed else None for name in wanted}
    remarks = check_fits(table, types, kind, options.key, options.hash_levels)
    if not typed:
        remarks += type_remarks(schema, {name: source.sample[name] for name in wanted})
    listed = [
        name if source.is_bare else f"{name} {stored_type(source.types[name]) or source.types[name]}" for name in wanted
    ]
    more = f" and {len(listed) - _SHOWN_COLUMNS} more" if len(listed) > _SHOWN_COLUMNS else ""
    note(f"{options.file} has the columns {', '.join(listed[:_SHOWN_COLUMNS])}{more}")
    for remark in remarks[:_SHOWN_COLUMNS]:
        note(remark)
    if len(remarks) > _SHOWN_COLUMNS:
        note(f"and {len(remarks) - _SHOWN_COLUMNS} remarks of this kind more")
    _note_repeated(options, source, table.key)
    return wanted


def _note_repeated(options: ImportOptions, source: _Input, key: Sequence[str]) -> None:
    """Tell of rows that would be gone without a word, since others have their key."""
    becomes = _OF_REPEATED.get(MODES[options.mode])
    count = repeated(source.sample, key) if becomes and all(name in source.sample for name in key) else 0
    if count:
        rows = len(source.sample[key[0]])
        fact = f"{count:,} of the first {rows:,} rows have the key ({', '.join(key)}) of an earlier row, and {becomes}"
        better = unique_key(source.keyable)
        note(fact + (f"; the key {','.join(better)} would tell them apart" if better else ""))


def _subject(options: ImportOptions, source: _Input, name: str, columns: Sequence[str]) -> dict[str, Any]:
    size_bytes, digest = digest_of(options.file)
    return {
        "input_bytes": size_bytes,
        "input_digest": digest,
        "table": name,
        "mode": options.mode,
        "columns": tuple(columns),
        "reading": (str(source.kind.format), source.kind.compression, options.delimiter, options.null),
    }


def _beside(options: ImportOptions, chosen: Path | None, table: str, ending: str) -> Path:
    return chosen or options.file.with_name(f"{options.file.name}.{table}.{ending}")
