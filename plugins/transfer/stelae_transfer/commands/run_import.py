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
from stelae.client.counted import counted
from stelae.client.locations import NoSuchTable
from stelae.client.row_input import unknown_columns
from stelae.spi.errors import CallerError
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae_transfer.design import (
    BadDesign,
    Design,
    TableMissing,
    check_fits,
    delimiter_hint,
    design,
    open_or_create,
    type_remarks,
)
from stelae_transfer.dry_run import check_chunk
from stelae_transfer.files import FileFormat, Format, file_format, refuse_pipe
from stelae_transfer.inference import nearest_type, repeated_keys, unique_columns, unique_key
from stelae_transfer.journal import Journal, Position, Subject, digest_of, identity_of
from stelae_transfer.loading import ImportStopped, Loader
from stelae_transfer.readers import open_reader
from stelae_transfer.rejects import Rejects
from stelae_transfer.row_chunks import LateColumns, RowChunkReader
from stelae_transfer.table_identity import members_of

MODES = {kind.name.lower().replace("_", "-"): kind for kind in OpKind}
_TYPED = (Format.PARQUET, Format.ARROW)
_KEY_ONLY = (OpKind.DELETE, OpKind.DELETE_IGNORE)
_CREATING = (OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE)
"""Modes that create a missing table. The others need existing rows."""
_NULLS = ("na", "n/a", "null", "none", "nil", "-", "--", "?", "#n/a", "missing", "\\n")
"""Texts that other programs write for a missing value."""
_REPEATED_KEY = {OpKind.UPSERT: "replace it", OpKind.INSERT_IGNORE: "are skipped"}
"""What happens to rows with the key of an earlier row, in the modes that do not report such rows."""
_SHOWN_COLUMNS = 12


class BadImport(CallerError, code="BAD_IMPORT"):
    """Options of an import contradict each other, or name something that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of the command line."""

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
class _InputFile:
    """What a first look at the input file shows."""

    kind: FileFormat
    identity: tuple[int, ...]  #: Of the file, before it was read. It changes when the file is changed.
    columns: Sequence[str]  #: The columns to load.
    types: Mapping[str, Any]  #: Their Arrow types, inferred from a sample if the format has no types.
    sample: Mapping[str, Sequence[Any]]  #: Their first values.

    @property
    def keyable(self) -> Mapping[str, Sequence[Any]]:
        """Return the sample of the columns that can be proposed as a key. Inferred doubles are not among them, because
        their type may be wrong."""
        return {name: values for name, values in self.sample.items() if not self.seems_double(name)}

    def seems_double(self, name: str) -> bool:
        """Return whether the type double of a column is inferred from its values."""
        return self.kind.format not in _TYPED and stored_type(self.types[name]) == "double"

    @property
    def is_bare(self) -> bool:
        """Return whether the file has column names but no rows to infer types from, such as a CSV header alone."""
        return self.kind.format not in _TYPED and not any(self.sample.values())


def options_of(params: Mapping[str, Any]) -> ImportOptions:
    """Return the options of a command line, by the names of its parameters."""
    given = dict(params)
    names = [field.name for field in fields(Target)]
    target = Target(**{name: given.pop(name) for name in names})
    given |= {"key": split(given["key"]), "columns": [*dict.fromkeys(split(given["columns"]))]}
    given["hash_levels"] = given["hash_levels"] or []
    return ImportOptions(target=target, **given)


def run_import(options: ImportOptions) -> int:
    """Load a file and return the exit code.

    Raises:
        StelaeError: the import could not start, or stopped early. The same command resumes it.
    """
    if options.mode not in MODES:
        raise BadImport(f"unknown --mode {options.mode!r}; known modes: {', '.join(MODES)}")
    _check_paths(options)
    source = _inspect(options)
    name = options.target.table or options.file.name.partition(".")[0]
    if options.show_schema:
        made = _design(options, source, name)
        _note_repeated_keys(options, source, made.key)
        _note_texts(source, made)
        if options.as_json:
            print_json(made.to_plain())
        else:
            print(made.to_toml())
        return EXIT_OK
    if options.dry_run and not options.target.connect and options.target.directory is None:
        made = _design(options, source, name)
        _note_repeated_keys(options, source, made.key)
        return _dry_run(options, source, name, made.schema(), source.columns)
    return asyncio.run(_import(options, source))


def _check_paths(options: ImportOptions) -> None:
    """Raise ``BadImport`` if the input is named as a file that the import writes: it would be replaced."""
    for option, path in (("--journal", options.journal), ("--bad-rows", options.bad_rows)):
        if path is not None and path.exists() and options.file.exists() and path.samefile(options.file):
            raise BadImport(f"{option} {path} is the input; choose another file")


async def _import(options: ImportOptions, source: _InputFile) -> int:
    async with connected(options.target) as client:
        name = await table_name(client, options.target, "; to create a table, pass its name and --key")
        wanted, problem = _if_possible(options, source, name)
        may_create = MODES[options.mode] in _CREATING and not options.dry_run
        try:
            table = await open_or_create(
                client,
                wanted,
                name,
                options.target.timeout_s,
                may_create=may_create,
                on_create=partial(_note_creation, source),
            )
        except TableMissing:
            if not options.dry_run or wanted is None or wanted.key_is_guessed:
                raise
            _note_repeated_keys(options, source, wanted.key)
            return await asyncio.to_thread(_dry_run, options, source, name, wanted.schema(), source.columns)
        except NoSuchTable as error:
            if problem is None:
                raise
            raise BadImport(f"{error}; cannot create it from the file: {problem}") from error
        columns = _checked_columns(options, source, table)
        if options.dry_run:
            return await asyncio.to_thread(_dry_run, options, source, name, table.schema, columns)
        subject = await asyncio.to_thread(_subject, options, source, name, columns)
        members = await members_of(client, name, options.target.timeout_s)
        return await _load(options, source, table, columns, Subject(**{**subject, "members": members}))


async def _load(
    options: ImportOptions, source: _InputFile, table: AsyncTable, columns: Sequence[str], subject: Subject
) -> int:
    journal = Journal.open(_beside(options, options.journal, table.name, "import"), subject, restart=options.restart)
    began, began_s, done = journal.position, time.monotonic(), False
    if began.acknowledged:
        note(f"resuming after row {began.acknowledged:,}, the last acknowledged row; to start over, pass --restart")
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
            _check_unchanged(options, source)
        done = True
    finally:
        journal.close(done=done)
    return _report(options, table.name, began, position, rejects, time.monotonic() - began_s)


def _check_unchanged(options: ImportOptions, source: _InputFile) -> None:
    """Raise ``ImportStopped`` if the file was changed since the first look at it."""
    if identity_of(options.file) != source.identity:
        fact = f"{options.file} was changed or removed while it was read"
        step = "when it is complete, import it again with --restart"
        raise ImportStopped(f"{fact}, and its last row may have been incomplete; {step}")


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
        bad = f", {counted(position.bad, 'bad row')}: see {bad_rows}" if position.bad else ""
        print(f"{options.file} -> {table}: {counted(position.written, 'row')} written ({options.mode}){bad}")
        if position.timestamp:
            print(f"to read the table as of this import: --at {position.timestamp}")
    return EXIT_FAILED if position.bad else EXIT_OK


def _dry_run(options: ImportOptions, source: _InputFile, name: str, schema: Schema, columns: Sequence[str]) -> int:
    rows = bad = 0
    # Not the file of bad rows: an interrupted import still needs that.
    path = _beside(options, options.bad_rows, name, "dry-run.jsonl")
    journal = _beside(options, options.journal, name, "import")
    if options.bad_rows is not None and path.exists() and journal.exists():
        fact = f"{journal} is the journal of an interrupted import, whose bad rows may be in {path}"
        raise BadImport(f"{fact}; choose another file with --bad-rows")
    with closing(_open(options, source.kind)) as reader, closing(Rejects(path, 0)) as rejects:
        for chunk in reader.chunks(schema, columns, 0):
            found = check_chunk(schema, MODES[options.mode], chunk)
            rejects.add(found)
            rows, bad = chunk.last, bad + sum(row.rows for row in found)
            if bad > options.bad_rows_max:
                note(f"stopped at row {rows}: {bad} bad rows, more than --bad-rows-max {options.bad_rows_max}")
                break
    bad_rows = str(rejects.path) if bad else None
    if options.as_json:
        print_json({"dry_run": True, "rows": rows, "good": rows - bad, "bad": bad, "bad_rows_file": bad_rows})
    else:
        see = f", see {bad_rows}" if bad else ""
        print(f"{options.file}: {counted(rows, 'row')}, {bad:,} bad{see}; nothing was written")
    return EXIT_FAILED if bad else EXIT_OK


# -- the input -------------------------------------------------------------------------------------


def _inspect(options: ImportOptions) -> _InputFile:
    refuse_pipe(options.file)
    kind = file_format(options.file, options.form)
    reader, identity = _open(options, kind), identity_of(options.file)
    try:
        unknown = [name for name in options.columns if name not in reader.columns]
        if unknown:
            raise BadImport(
                f"no column {', '.join(unknown)} in {options.file}; its columns: {', '.join(reader.columns)}"[:600]
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
    types = {name: types[name] for name in columns}
    return _InputFile(kind=kind, identity=identity, columns=columns, types=types, sample=sample)


def _open(options: ImportOptions, kind: FileFormat) -> RowChunkReader:
    late = _late_columns(options)
    return open_reader(options.file, kind, delimiter=options.delimiter, null=options.null, late=late)


def _late_columns(options: ImportOptions) -> LateColumns:
    if options.columns or MODES[options.mode] in _KEY_ONLY:
        return LateColumns.SKIP
    return LateColumns.SKIP_UNKNOWN if options.skip_unknown else LateColumns.LOAD


def _design(options: ImportOptions, source: _InputFile, name: str) -> Design:
    _check_rows(options, source, name)
    alone, together = unique_columns(source.keyable), ",".join(unique_key(source.keyable))
    unique = ", ".join(alone[:_SHOWN_COLUMNS])
    hint = f"; unique in the first rows: {unique}" if unique else ""
    if together and not unique:
        hint = f"; unique in the first rows: {together} together"
    return design(name, source.types, options.key, options.hash_levels, hint)


def _check_rows(options: ImportOptions, source: _InputFile, name: str) -> None:
    """Raise ``BadDesign`` if the type of a column, or of a key column, cannot be inferred from the file."""
    if source.is_bare:
        columns = ", ".join(source.columns[:_SHOWN_COLUMNS])
        fact = f"{options.file} has no rows to infer the types of {columns} from"
        key = ",".join(options.key) or source.columns[0]
        example = f"stelae table create {name} --column {source.columns[0]}:TYPE ... --key {key}"
        raise BadDesign(f"{fact}; create the table with {example}, or import a file with rows")
    for column in options.key:
        if column in source.types and source.seems_double(column):
            fact = f"key column {column!r} has numbers with a fraction or an exponent, whose type must be chosen"
            types = "double, decimal(P,S) or string"
            example = f"stelae table create {name} --column {column}:TYPE ... --key {','.join(options.key)}"
            raise BadDesign(f"{fact} ({types}); create the table first with {example}, and import into it")


def _note_creation(source: _InputFile, made: Design) -> None:
    note(f"creating table {made.name} with key {', '.join(made.key)}")
    _note_texts(source, made)


def _note_texts(source: _InputFile, made: Design) -> None:
    """Print a note on each column that becomes a string because of a few values."""
    if source.kind.format in (*_TYPED, Format.JSONL):
        return
    names = [str(column["name"]) for column in made.columns if column["type"] == "string"]
    mixed = [(name, found) for name in names if (found := nearest_type(source.sample[name]))]
    for name, (kind, count, examined, text) in mixed[:_SHOWN_COLUMNS]:
        fact = f"column {name!r} becomes string: {count:,} of the first {examined:,} values are not of type {kind}"
        is_null = text.strip().lower() in _NULLS
        step = f"--null {text.strip()} reads it as null" if is_null else "to store another type, create the table first"
        note(f"{fact}, such as {text!r:.40}; {step}")


def _if_possible(options: ImportOptions, source: _InputFile, name: str) -> tuple[Design | None, CallerError | None]:
    """Return the table that the file would make, or the reason why it cannot. Without ``--key``, the key is a guess."""
    key = options.key or unique_key(source.keyable) or source.columns[:1]
    try:
        _check_rows(options, source, name)
        made = design(name, source.types, key, options.hash_levels, "")
    except CallerError as error:
        return None, error
    return msgspec.structs.replace(made, key_is_guessed=not options.key), None


def _checked_columns(options: ImportOptions, source: _InputFile, table: AsyncTable) -> Sequence[str]:
    """Return the columns to load, after comparing them with the table. Remarks go to standard error."""
    schema = table.schema
    wanted = [name for name in source.columns if name in schema.by_name or not options.skip_unknown]
    if not any(name in schema.by_name for name in wanted):
        raise BadImport(unknown_columns(schema, list(source.columns)) + delimiter_hint(source.columns))
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
        note(f"and {len(remarks) - _SHOWN_COLUMNS} more such remarks")
    _note_repeated_keys(options, source, table.key)
    return wanted


def _note_repeated_keys(options: ImportOptions, source: _InputFile, key: Sequence[str]) -> None:
    """Print a note on rows that would be lost silently because another row has the same key."""
    effect = _REPEATED_KEY.get(MODES[options.mode])
    count = repeated_keys(source.sample, key) if effect and all(name in source.sample for name in key) else 0
    if count:
        rows = len(source.sample[key[0]])
        fact = f"{count:,} of the first {rows:,} rows have the key ({', '.join(key)}) of an earlier row, and {effect}"
        better = unique_key(source.keyable)
        note(fact + (f"; --key {','.join(better)} would be unique in these rows" if better else ""))


def _subject(options: ImportOptions, source: _InputFile, name: str, columns: Sequence[str]) -> dict[str, Any]:
    size_bytes, digest = digest_of(options.file)
    return {
        "input_bytes": size_bytes,
        "input_digest": digest,
        "table": name,
        "mode": options.mode,
        "columns": tuple(columns),
        "reading": (str(source.kind.format), source.kind.compression, options.delimiter, options.null),
        "late_members": str(_late_columns(options)) if source.kind.format is Format.JSONL else "",
    }


def _beside(options: ImportOptions, chosen: Path | None, table: str, ending: str) -> Path:
    return chosen or options.file.with_name(f"{options.file.name}.{table}.{ending}")
