"""Reference pages that are generated from the code, so that they cannot drift from it.

Directives, each with one argument ``module:Name`` or none:

- ``stelae-settings``: the fields of a settings dataclass with unit, default, bounds and reason
- ``stelae-hooks``: every hook with its exact signature
- ``stelae-errors``: every error code, by who must act
- ``stelae-commands``: every command with its help
- ``stelae-transitions``: a total transition table, from the data that the code runs on
- ``stelae-startup``: the table that decides what happens to a replica at start
- ``stelae-recovery``: the table that decides what happens to the files of a log
- ``stelae-metrics``: every metric that a node serves, by section
- ``stelae-spark-options``: every option of the Spark data source; ``stelae-spark-foreign``: those of other connectors
- ``stelae-spark-types``: the Spark type of every column type; ``stelae-spark-refused``: types that no table stores

The functions that return Markdown are plain, and the tidy tests call them too."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from stelae.cli.main import build_app
from stelae.lifecycle import startup_decisions
from stelae.spi import errors, hooks
from stelae.spi.schema import data_type
from stelae.spi.settings import limits_of
from stelae.telemetry import catalog
from stelae_spark_sink import options as spark_options
from stelae_spark_sink import spark_types
from stelae_spark_sink.foreign_options import FOREIGN


def named(reference: str) -> Any:
    """Import what ``module:Name`` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Lines of a Markdown table; bars inside cells are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = (" ".join(cell.replace("|", "\\|").split()) for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def type_name(annotation: Any) -> str:
    """A type as a reader of ``node.toml`` knows it."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " or ".join(f'`"{value}"`' for value in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(a) for a in typing.get_args(annotation))
    known = {bool: "switch", int: "integer", float: "number", str: "text", type(None): "absent"}
    return known.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default_text(field: dataclasses.Field[Any]) -> str:
    """The default of a field as ``node.toml`` would write it."""
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def bounds_text(field: dataclasses.Field[Any]) -> str:
    """The accepted range of a field, inclusive."""
    limits = limits_of(field)
    low = "" if limits.low is None else f"{limits.low:g}" if limits.low < 1e6 else f"{limits.low}"
    high = "" if limits.high is None else f"{limits.high}"
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else ""


def settings_lines(config: type[Any]) -> list[str]:
    """The settings of one dataclass as a table."""
    hints = typing.get_type_hints(config)
    rows = []
    for field in dataclasses.fields(config):
        limits = limits_of(field)
        kind = f"{type_name(hints[field.name])} {limits.unit}".strip()
        rows.append((f"`{field.name}`", kind, default_text(field), bounds_text(field), limits.reason))
    if not rows:
        return ["This engine has no settings."]
    return table(("setting", "type", "default", "bounds", "why"), rows)


def hook_signature(function: Callable[..., Any]) -> str:
    """``stelae_wal_engines() -> Sequence[type[WalEngine]]``, exactly as declared."""
    (defined,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(defined, ast.FunctionDef) and defined.returns is not None
    return f"{defined.name}({ast.unparse(defined.args)}) -> {ast.unparse(defined.returns)}"


def all_hooks() -> list[Callable[..., Any]]:
    """Every hook specification, in source order."""
    marked = vars(hooks).values()
    return [f for f in marked if inspect.isfunction(f) and hasattr(f, f"{hooks.PROJECT}_spec")]


def hooks_lines() -> list[str]:
    """Every hook: signature, then what it is for."""
    lines: list[str] = []
    for function in all_hooks():
        lines += ["```python", hook_signature(function), "```", ""]
        lines += [inspect.cleandoc(function.__doc__ or ""), ""]
    return lines


KERNEL_PACKAGES = ("spi", "wire", "host", "config", "client", "server", "local", "cli")
"""Where errors that users meet are defined, besides the plugins."""


def error_classes() -> list[type[errors.StelaeError]]:
    """Every error class of the kernel and of our plugins, each branch after its head."""
    plugins = {p.value.partition(":")[0] for p in entry_points(group=hooks.ENTRY_POINT_GROUP)}
    ours = sorted({name.split(".")[0] for name in plugins if name.startswith("stelae_")} | {"stelae_spark_sink"})
    for name in [*(f"stelae.{package}" for package in KERNEL_PACKAGES), *ours]:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    return [e for e in _descendants(errors.StelaeError) if e.__module__.startswith("stelae")]


def _descendants(root: type[errors.StelaeError]) -> Iterator[type[errors.StelaeError]]:
    for child in root.__subclasses__():
        yield child
        yield from _descendants(child)


def errors_lines() -> list[str]:
    """Every error code with its class, its branch and its meaning."""
    rows = []
    for error in error_classes():
        branch = next(b for b in reversed(error.__mro__) if b in errors.StelaeError.__subclasses__())
        meaning = inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].replace("``", "`")
        rows.append((f"`{error.code}`", f"`{error.__name__}`", f"`{branch.__name__}`", meaning))
    return table(("code", "class", "branch", "meaning"), rows)


def startup_lines() -> list[str]:
    """The start-up table, one row for each of its letters."""
    rows = []
    for row in startup_decisions.ROWS:
        found = (
            _members(row.block, startup_decisions.SuperblockFinding),
            _members(row.meta, startup_decisions.MetadataFinding),
            _members(row.log, startup_decisions.LogFinding),
        )
        rows.append((row.letter, *found, f"`{row.action}`", row.why))
    head = ("row", "superblock", "consensus metadata", "log", "action", "because")
    return table(head, rows)


def transitions_lines(transitions: Mapping[Any, Mapping[Any, Any]]) -> list[str]:
    """A total table ``cause -> role -> role``; a dash where the cause is ignored."""
    roles = list(next(iter(transitions.values())))
    rows = []
    for cause, row in transitions.items():
        cells = ("-" if row[role] is None else "stays" if row[role] is role else str(row[role]) for role in roles)
        rows.append((f"`{cause}`", *cells))
    return table(("cause", *map(str, roles)), rows)


def recovery_lines(rows: Callable[[], list[Any]]) -> list[str]:
    """A table of lettered rows: what recovery finds in the files of a log, and what it does."""
    found = [(row.letter, row.situation, f"`{row.verdict.name}`") for row in rows()]
    return table(("row", "situation", "verdict"), found)


def metrics_lines() -> list[str]:
    """Every metric, a table for each section of the catalogue."""
    lines: list[str] = []
    for title, families in catalog.SECTIONS.items():
        rows = []
        for family in families:
            name = f"`{family.full_name}`" + "".join(f" `{label}`" for label in family.label.split(",") if label)
            rows.append((name, family.kind.value, family.meaning + (" (masters only)" if family.master else "")))
        lines += [f"**{title}**", "", *table(("name and labels", "kind", "meaning"), rows), ""]
    return lines


def spark_options_lines() -> list[str]:
    """Every option of the Spark data source."""
    rows = []
    for option in spark_options.OPTIONS:
        default = "required" if option.required else option.shown_default
        uses = "all" if option.uses == frozenset(spark_options.Use) else ", ".join(sorted(option.uses))
        rows.append((f"`{option.name}`", option.kind, default, uses, option.text))
    return table(("option", "values", "default", "for", "what it does"), rows)


def spark_types_lines() -> list[str]:
    """The Spark type of every column type."""
    kinds = [*spark_types.PLAIN_TYPES, "decimal(p,s)"]
    plain = [(f"`{kind}`", f"`{spark_types.spark_type(data_type(kind)).simpleString()}`") for kind in kinds[:-1]]
    return table(("column type", "Spark type"), [*plain, ("`decimal(p,s)`", "`decimal(p,s)`")])


def spark_refused_lines() -> list[str]:
    """The Spark types that no table stores, and what to do with such a column."""
    rows = [(kind, way.format(name="x")) for kind, way in spark_types.WAYS_ROUND.items()]
    return table(("Spark type of a column `x`", "what to do"), rows)


def spark_foreign_lines() -> list[str]:
    """The options of other connectors, and what to use instead."""
    return table(("option", "instead"), [(f"`{name}`", advice) for name, advice in FOREIGN.items()])


def commands_lines() -> list[str]:
    """Every command with its help, the groups before their members."""
    lines: list[str] = []
    for name, text in command_helps(typer.main.get_command(build_app(None)), "stelae"):
        lines += [f"`{name}`", "", "```text", text, "```", ""]
    return lines


def command_helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the full name and the help text of a command and of all below it."""
    context = command.context_class(command, info_name=name, terminal_width=96)
    yield name, command.get_help(context)
    for child in getattr(command, "commands", {}).values():
        yield from command_helps(child, f"{name} {child.name}")


def _members(written: str, every: type[Any]) -> str:
    """The findings that a cell of the table means, in the order of their enumeration."""
    if written == "*":
        return "any"
    names = set(every) - {written[1:]} if written.startswith("!") else set(written.split())
    return ", ".join(member for member in every if member in names)


class Generated(SphinxDirective):
    """A directive whose content is Markdown made by a function."""

    optional_arguments = 1
    make: Callable[..., list[str]]

    def run(self) -> list[nodes.Node]:
        """Make the Markdown and let the page's own parser read it."""
        try:
            lines = type(self).make(*(named(argument) for argument in self.arguments))
        except (ImportError, AttributeError) as error:
            raise self.error(f"{self.name} {self.arguments}: {error}") from error
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.get_location()), 0, holder)
        return holder.children


def directive(make: Callable[..., list[str]]) -> type[Generated]:
    """A directive class around a function that returns Markdown."""
    return type(f"Generated_{make.__name__}", (Generated,), {"make": staticmethod(make)})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("stelae-settings", directive(settings_lines))
    app.add_directive("stelae-hooks", directive(hooks_lines))
    app.add_directive("stelae-errors", directive(errors_lines))
    app.add_directive("stelae-transitions", directive(transitions_lines))
    app.add_directive("stelae-recovery", directive(recovery_lines))
    app.add_directive("stelae-commands", directive(commands_lines))
    app.add_directive("stelae-startup", directive(startup_lines))
    app.add_directive("stelae-metrics", directive(metrics_lines))
    app.add_directive("stelae-spark-options", directive(spark_options_lines))
    app.add_directive("stelae-spark-types", directive(spark_types_lines))
    app.add_directive("stelae-spark-refused", directive(spark_refused_lines))
    app.add_directive("stelae-spark-foreign", directive(spark_foreign_lines))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
