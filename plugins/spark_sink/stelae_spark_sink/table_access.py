"""Connects a Python worker of Spark to clusters and opens tables.

Spark gives many tasks to one worker, so a process keeps its connections and tables. A worker runs one task at a time,
in one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from stelae.client import Client, Contacts, Scan, ScanToken, Table, connect
from stelae.client.arguments import Compression
from stelae.client.locations import NoSuchTable
from stelae.spi.errors import CallerError, Unavailable
from stelae_spark_sink.contacts_file import read_contacts, write_contacts
from stelae_spark_sink.options import (
    BEFORE_IMAGES,
    COMPRESSION,
    FAIL_ON_DROPPED_RANGES,
    MASTERS,
    TABLE,
    TIMEOUT_S,
    SourceOptions,
)

CONNECT_TIMEOUT_S = 30.0
"""How long the driver waits for masters while it plans, in seconds: long enough for an election, and short enough for
a user who has mistyped an address. Tasks, the end of a job, and the batches of a stream wait for ``timeoutSeconds``."""

LOCATION = "STELAE_LOCATION"
"""Environment variable of an executor: where it is, as ``/dc/rack/host``. Its tasks read from the nearest replicas."""

_ClientKey: TypeAlias = tuple[Sequence[str], Compression]
"""By what a client was connected: the addresses of the masters, and the compression."""

_clients: dict[_ClientKey, Client] = {}
_stored: dict[Sequence[str], Contacts] = {}
_tables: dict[tuple[_ClientKey, str], Table] = {}


def _client_key(options: SourceOptions) -> _ClientKey:
    return options[MASTERS], options[COMPRESSION]


def client_of(options: SourceOptions, *, planning: bool = False) -> Client:
    """Return this process's client of the cluster in the options.

    Args:
        options: of the source.
        planning: whether the driver plans a job, so that a mistake should show soon.

    Raises:
        Unavailable: no master answered.
    """
    key = addresses, compression = _client_key(options)
    client = _clients.get(key)
    if client is None:
        try:
            timeout_s = min(CONNECT_TIMEOUT_S, options[TIMEOUT_S]) if planning else options[TIMEOUT_S]
            location, known = os.environ.get(LOCATION, ""), _known_contacts(options)
            client = connect(addresses, location=location, contacts=known, compression=compression, timeout_s=timeout_s)
        except Unavailable as error:
            fact = f"cannot connect to the masters at {','.join(addresses)}"
            raise Unavailable(f"{fact}: {error}; check the option 'masters', and that the cluster runs") from error
        _clients[key] = client
    return client


def _known_contacts(options: SourceOptions) -> Contacts | None:
    """Return the contacts that the driver has sent, and those of earlier workers of this host."""
    addresses = options[MASTERS]
    sent, stored = options.contacts, read_contacts(addresses)
    return stored if sent is None else sent.and_also(stored)


def contacts_of(options: SourceOptions) -> Contacts | None:
    """Return by which nodes this process knows the cluster, for tasks in other processes, and store it on this host.

    ``None``: the process has no client of the cluster."""
    addresses = options[MASTERS]
    client = _clients.get(_client_key(options))
    if client is None:
        return None
    contacts = client.contacts()
    if contacts != _stored.get(addresses):
        write_contacts(addresses, contacts)
        _stored[addresses] = contacts
    return contacts


def opened(options: SourceOptions) -> Table:
    """Return a table object of its own for planning, which only the caller looks up again.

    Raises:
        NoSuchTable: there is no such table.
        Unavailable: no master answered.
    """
    try:
        return client_of(options, planning=True).table(options[TABLE], timeout_s=options[TIMEOUT_S])
    except Unavailable:
        forget(options)  # The masters may have other addresses by the next call.
        raise


def table_of(options: SourceOptions, name: str | None = None, *, planning: bool = False) -> Table:
    """Return a table with its present columns and tablets.

    Args:
        options: of the source.
        name: name of the table; ``None``: that of the option ``table``.
        planning: as in :func:`client_of`.

    Raises:
        NoSuchTable: there is no such table.
        Unavailable: no master answered.
    """
    name, timeout_s = name or options[TABLE], options[TIMEOUT_S]
    key = (_client_key(options), name)
    try:
        if not _is_current(_tables.get(key), name, timeout_s):
            _tables[key] = client_of(options, planning=planning).table(name, timeout_s=timeout_s)
        contacts_of(options)
    except Unavailable:
        forget(options)  # The masters may have other addresses by the next task.
        raise
    return _tables[key]


def _is_current(table: Table | None, name: str, timeout_s: float) -> bool:
    """Look a table up again; return whether it is still the table of this name."""
    if table is None:
        return False
    try:
        table.refresh(timeout_s=timeout_s)
    except NoSuchTable:
        return False  # It was dropped, and may have been created anew.
    return table.name == name


def scan_of(options: SourceOptions, token: ScanToken) -> Scan:
    """Return the scan of a token, on the table of the token, even if it was renamed.

    Raises:
        BadToken: the table was dropped.
        SchemaMismatch: a column that the token reads was dropped.
    """
    key = (_client_key(options), token.table_id or token.table)
    table = _tables.get(key)
    if table is not None:
        try:
            return table.open(token, timeout_s=options[TIMEOUT_S])
        except CallerError:
            table.refresh(timeout_s=options[TIMEOUT_S])  # The token may be of a newer version of the table.
            return table.open(token, timeout_s=options[TIMEOUT_S])
    table = _tables[key] = client_of(options).table(token.table_id or token.table, timeout_s=options[TIMEOUT_S])
    contacts_of(options)
    return table.open(token, timeout_s=options[TIMEOUT_S])


def changes_of(options: SourceOptions, token: ScanToken) -> Iterator[Any]:
    """Yield the changes of a token of a change feed, as ``pyarrow.RecordBatch`` objects; raises as :func:`scan_of`.

    Raises:
        RangeDropped: the token reads a range that was dropped, and the options do not allow that.
    """
    scan_of(options, token)  # It opens the table of the token, or looks it up again.
    key = (_client_key(options), token.table_id or token.table)
    return _tables[key].open_changes(
        token,
        before_images=options[BEFORE_IMAGES],
        fail_on_dropped_ranges=options[FAIL_ON_DROPPED_RANGES],
        timeout_s=options[TIMEOUT_S],
    )


def forget(options: SourceOptions) -> None:
    """Close this process's client of a cluster, so that the next task connects again."""
    client_key = _client_key(options)
    for key in [key for key in _tables if key[0] == client_key]:
        del _tables[key]
    client = _clients.pop(client_key, None)
    if client is not None:
        client.close()
