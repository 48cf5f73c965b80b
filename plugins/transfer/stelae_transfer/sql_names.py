"""Finds the tables that a DuckDB query reads, and rejects names that DuckDB cannot distinguish.

DuckDB ignores the case of ASCII letters in names. Of two tables, or two columns of a table, whose names differ only in
case, it would read one in place of the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from stelae.spi.errors import CallerError

INSTALL = "pip install 'stelae[sql]'"
_OF_TEXT = ("query", "query_table")
"""Functions of DuckDB that take the name of a table as text."""


class SqlFailed(CallerError, code="SQL_FAILED"):
    """DuckDB rejects the query, or cannot run it."""


def import_duckdb() -> Any:
    """Return the module ``duckdb``. ``SqlFailed``: it is not installed; with the command that installs it."""
    try:
        import duckdb
    except ImportError as error:
        raise SqlFailed(f"SQL needs DuckDB; install it with: {INSTALL}") from error
    return duckdb


def tables_of(text: str, known: Sequence[str]) -> list[str]:
    """Return which of the known tables a query reads.

    Uses the parser of DuckDB. If DuckDB cannot parse or serialize the query, returns the tables whose names are words
    of the text. A table of exactly the written name is preferred to one that differs in case.

    Raises:
        SqlFailed: a name matches several tables, or the names of tables that the query reads differ only in case."""
    used = _parsed(text)
    if used is None:
        used = [name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    found = dict.fromkeys(_known(name, known) for name in used)
    chosen = [name for name in known if name in found]
    require_distinct_names("tables", chosen, "query them one at a time, or rename one with stelae table rename")
    return chosen


def require_distinct_names(what: str, names: Iterable[str], step: str, of: str = "") -> None:
    """Raise ``SqlFailed`` if two names differ only in case.

    Args:
        what: what the names are, for the message, such as ``tables``.
        names: the names.
        step: the next step, for the message.
        of: what has these names, for the message.
    """
    for first, second in pairwise(sorted(names, key=_folded)):
        if _folded(first) == _folded(second):
            fact = f"the {what} {first!r} and {second!r}{of} differ only in case, which SQL ignores"
            raise SqlFailed(f"{fact}; {step}")


def _folded(name: str) -> bytes:
    """Return a name in the form in which DuckDB compares names: only ASCII letters lose their case."""
    return name.encode(errors="surrogatepass").lower()


def _known(name: str, known: Sequence[str]) -> str | None:
    """Return the table that a name means, or ``None``."""
    alike = [one for one in known if _folded(one) == _folded(name)]
    if name not in alike and len(alike) > 1:
        fact = f"{name!r} matches the tables {', '.join(map(repr, alike))}, which differ only in case"
        raise SqlFailed(f"{fact}; write the name with the exact case")
    return name if name in alike else next(iter(alike), None)


def _parsed(text: str) -> list[str] | None:
    """Return the names of tables in a query. ``None``: DuckDB cannot parse or serialize it."""
    duckdb = import_duckdb()
    with duckdb.connect() as connection:
        try:
            (document,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
            parsed = msgspec.json.decode(document)
        except (duckdb.Error, msgspec.MsgspecError, RecursionError, UnicodeError):
            return None
    if parsed["error"]:
        return None
    names = [*_names(parsed["statements"])]
    return None if None in names else [name for name in names if name is not None]


def _names(tree: Any) -> Iterator[str | None]:
    """Yield the names of tables in a parsed query, without the names that its ``WITH`` clauses define.

    Yields ``None`` for a table whose name is the text argument of a function."""
    open_nodes: list[tuple[Any, frozenset[bytes]]] = [(tree, frozenset())]
    while open_nodes:
        node, own = open_nodes.pop()
        if isinstance(node, list):
            open_nodes += [(one, own) for one in node]
        if not isinstance(node, dict):
            continue
        if node.get("type") == "BASE_TABLE" and (node["schema_name"] or _folded(node["table_name"]) not in own):
            yield node["table_name"]
        if node.get("type") == "TABLE_FUNCTION" and node["function"].get("function_name") in _OF_TEXT:
            yield None
        for part in (node.get("cte_map") or {}).get("map", ()):
            inner = own | {_folded(part["key"])}
            query = part["value"]
            is_recursive = query["query_node"]["type"] == "RECURSIVE_CTE_NODE"
            open_nodes.append((query, inner if is_recursive else own))
            own = inner
        open_nodes += [(value, own) for name, value in node.items() if name != "cte_map"]
