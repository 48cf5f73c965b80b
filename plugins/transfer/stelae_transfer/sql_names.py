"""Which tables a query of DuckDB reads, and names that DuckDB takes for one where a cluster has two.

DuckDB tells no capital letters of ASCII from small ones: of two tables, or two columns of one, whose names differ in
nothing else, it would read one in place of the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from stelae.spi.errors import CallerError

INSTALL = "pip install 'stelae[sql]'"
_OF_TEXT = ("query", "query_table")
"""Functions of DuckDB that read a table whose name is a text."""


class SqlFailed(CallerError, code="SQL_FAILED"):
    """A query that DuckDB does not accept, or cannot carry out."""


def import_duckdb() -> Any:
    """Return the module; ``SqlFailed``: it is not installed, and how it is."""
    try:
        import duckdb
    except ImportError as error:
        raise SqlFailed(f"SQL needs DuckDB: {INSTALL}") from error
    return duckdb


def tables_of(text: str, known: Sequence[str]) -> list[str]:
    """Return which of the known tables a query reads, by DuckDB's own parser; of one that it cannot parse, or not show,
    those that it has as words.

    A name with its very letters comes before one that differs in case.

    Raises:
        SqlFailed: a name may be that of several tables, or tables that the query reads differ in case only."""
    used = _parsed(text)
    if used is None:
        used = [name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    found = dict.fromkeys(_known(name, known) for name in used)
    chosen = [name for name in known if name in found]
    refuse_twins("tables", chosen, "query them one at a time, or call one otherwise with stelae table rename")
    return chosen


def refuse_twins(what: str, names: Iterable[str], step: str, of: str = "") -> None:
    """Raise ``SqlFailed`` if names, ``of`` something, differ in nothing but case."""
    for one, other in pairwise(sorted(names, key=_folded)):
        if _folded(one) == _folded(other):
            fact = f"the {what} {one!r} and {other!r}{of} differ only in case, which SQL does not tell apart"
            raise SqlFailed(f"{fact}; {step}")


def _folded(name: str) -> bytes:
    """As DuckDB compares names: only letters of ASCII have a case."""
    return name.encode(errors="surrogatepass").lower()


def _known(name: str, known: Sequence[str]) -> str | None:
    """Return the table that a name means, if there is one."""
    alike = [one for one in known if _folded(one) == _folded(name)]
    if name not in alike and len(alike) > 1:
        fact = f"{name!r} may be any of the tables {', '.join(map(repr, alike))}, which differ only in case"
        raise SqlFailed(f"{fact}; write the name of the table as it is")
    return name if name in alike else next(iter(alike), None)


def _parsed(text: str) -> list[str] | None:
    """Return the names of tables in a query; ``None``: DuckDB does not tell."""
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
    """Yield the names of tables in a parsed query, without those that it gives to parts of its own (``WITH``); ``None``
    for one that stands in a text."""
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
