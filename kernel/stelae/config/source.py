"""A parsed configuration file: its tables, and the line of every key."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from stelae.config.toml_locator import Path, locate
from stelae.spi.errors import ConfigError
from stelae.spi.settings import limits_of

Section = TypeVar("Section")

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """One parsed file.

    Attributes:
        name: the path of the file as the user gave it.
        tables: its contents.
        lines: the line of each key.
    """

    name: str
    tables: Mapping[str, Any]
    lines: Mapping[Path, int]

    @classmethod
    def parse(cls, text: str, name: str) -> ConfigSource:
        """Parse a document.

        Raises:
            ConfigError: it is not TOML.
        """
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"\s*\(at line (\d+), column \d+\)", str(error))
            where = f"{name}:{place[1]}" if place else name
            fact = str(error).replace(place[0], "") if place else str(error)
            hint = "Correct the file; https://toml.io describes the format."
            raise ConfigError(f"not TOML: {fact}", where=where, hint=hint) from error
        return cls(name, tables, locate(text))

    def where(self, path: Path) -> str:
        """Return ``file:line`` of a key, or of the innermost table around it that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path else self.name

    def error(self, path: Path, fact: str, hint: str = "") -> ConfigError:
        """Return an error about the key at ``path``. The caller raises it."""
        return ConfigError(fact, where=self.where(path), hint=hint)

    def table(self, path: Path, *, required: bool = False) -> Mapping[str, Any]:
        """Return the table at ``path``. A missing table is empty, or an error if it is required."""
        found: Any = self.tables
        for depth, key in enumerate(path, start=1):
            if isinstance(found, dict) and key not in found:
                if required:
                    raise self.error(path, f"there is no section {dotted(path)}", "Add it.")
                return {}
            found = found[key]
            last = depth == len(path)
            if not isinstance(found, dict) and (last or not isinstance(found, list)):
                fact = f"{dotted(path)} must be a section, not {_shown(found)}"
                raise self.error(path, fact, "Write its keys below a header with that name.")
        return typing.cast(Mapping[str, Any], found)

    def check_keys(self, path: Path, known: Iterable[str]) -> None:
        """Refuse unknown keys, and suggest the most similar known one."""
        names = sorted(map(str, known))  # Also of an enum, whose members would be shown as Python objects.
        for key in self.table(path):
            if key not in names:
                close = difflib.get_close_matches(key, names, n=1)
                guess = f"Did you mean {close[0]!r}? " if close else ""
                place = dotted(path) if path else "the file"
                listed = ", ".join(names) if names else "none; this section has no settings"
                raise self.error((*path, key), f"unknown key {key!r} in {place}", f"{guess}Known: {listed}.")


def dotted(path: Path) -> str:
    """Return a path as the header of its section."""
    return "[" + ".".join(str(part) for part in path) + "]"


def fill(source: ConfigSource, path: Path, cls: type[Section], *, leave_out: frozenset[str] = frozenset()) -> Section:
    """Make a settings dataclass from the section at ``path``. Missing keys take their defaults.

    Args:
        leave_out: fields that are not keys of this section.

    Raises:
        ConfigError: a key is unknown or missing, a value has the wrong type or is out of bounds, or the class refuses
            the values together (``__post_init__``).
    """
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, cls)) if field.name not in leave_out}
    source.check_keys(path, fields)
    table, hints = source.table(path), get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _value(source, (*path, name), table[name], hints[name], field)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            hint = f"Add a line: {name} = ..."
            raise source.error(path, f"{dotted(path)} lacks the key {name!r}", hint)
    try:
        return cls(**values)
    except Exception as error:
        fact = f"the values in {dotted(path)} do not fit each other: {error}"
        raise source.error(path, fact, "Correct one of them.") from error


def typed(source: ConfigSource, path: Path, value: object, wanted: Any, hint: str = "Correct the value.") -> Any:
    """Return ``value`` if it is of the wanted type (``bool``, ``int``, ``float``, ``str``, list).

    Args:
        hint: the next step if it is not.

    Raises:
        ConfigError: it is not.
    """
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        names = _NAMES | {list: "an array", dict: "a table"}
        key = path[-1] if isinstance(path[-1], str) else f"{path[-2]}[{path[-1]}]"
        fact = f"{key} must be {names[wanted]}, not {_shown(value)}"
        raise source.error(path, fact, hint)
    return value


def refuse_repeats(source: ConfigSource, path: Path, names: list[Any], what: str) -> None:
    """Refuse an array at ``path`` in which a name occurs twice."""
    for position, name in enumerate(names):
        if name in names[:position]:
            hint = "Each may occur only once."
            raise source.error((*path, position), f"{what} {name!r} is repeated", hint)


def _value(source: ConfigSource, path: Path, value: object, hint: Any, field: dataclasses.Field[Any]) -> Any:
    if get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if value not in choices or not isinstance(value, str):
            listed = ", ".join(repr(choice) for choice in choices)
            fact = f"{path[-1]} cannot be {_shown(value)}"
            raise source.error(path, fact, f"Known: {listed}.")
        return value
    limits = limits_of(field)
    low, high, unit = limits.low, limits.high, f" {limits.unit}" if limits.unit else ""
    accepted = f"Accepted: {_bound(low)} to {_bound(high)}{unit}; the default is {field.default}."
    is_number = low is not None or high is not None
    checked = typed(source, path, value, get_origin(hint) or hint, accepted if is_number else "Correct the value.")
    inside = (low is None or checked >= low) and (high is None or checked <= high)
    if not inside:
        raise source.error(path, f"{path[-1]} = {_shown(value)} is out of bounds", accepted)
    return checked


def _bound(limit: float | None) -> str:
    return "any" if limit is None else f"{limit:g}" if isinstance(limit, float) else str(limit)


def _shown(value: object) -> str:
    return repr(value) if not isinstance(value, bool) else str(value).lower()
