"""``stelae plugins``: list, show and check the installed plugins, and create a new one."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, command_group, print_json, print_table
from stelae.cli.plugins_new import new_plugin
from stelae.spi.errors import CallerError, PluginError
from stelae.spi.settings import limits_of

if TYPE_CHECKING:
    from stelae.config.registry import Offer

commands = command_group(
    """List, show and check the installed plugins, or create one.

    node.toml chooses engines by name: `[engines] wal = "segmented"`, and services: `[plugins] services = ["mine"]`.
    To write your own engine, start with `stelae plugins new`.
    """
)


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="plugins")


@commands.command("list")
def list_plugins(as_json: JsonOption = False) -> None:
    """List the installed plugins by kind and name, without importing them."""
    from stelae.config.registry import Registry

    offers = Registry.installed().offers()
    if as_json:
        print_json({"plugins": [dataclasses.asdict(offer) for offer in offers]})
    else:
        rows = [(offer.kind, offer.name, offer.origin, offer.value) for offer in offers]
        print_table(("KIND", "NAME", "FROM", "MODULE"), rows)


@commands.command("show")
def show_plugin(
    name: Annotated[str, typer.Argument(help="Its name: `wal.segmented`, or `segmented` if that is unique.")],
    as_json: JsonOption = False,
) -> None:
    """Show one engine or service: its distribution, its capabilities and its settings."""
    described = _describe(name)
    if as_json:
        print_json(described)
        return
    print(f"{described['kind']}.{described['name']}: {described['summary']}")
    print(f"  from          {described['origin']}")
    print(f"  class         {described['class']}")
    if described["contract_version"] is not None:
        print(f"  contract      version {described['contract_version']}")
        print(f"  capabilities  {', '.join(described['capabilities']) or 'none'}")
    if not described["settings"]:
        print("  settings      none")
        return
    print(f"\nSettings, in section [{described['kind']}.{described['name']}] of node.toml:\n")
    columns = ("name", "type", "default", "low", "high", "unit", "reason")
    rows = [
        ["" if setting[column] is None else setting[column] for column in columns] for setting in described["settings"]
    ]
    print_table([column.upper() for column in columns], rows)


@commands.command("check")
def check_plugins(as_json: JsonOption = False) -> None:
    """Load every plugin and check it against its contract.

    Exit code 1: a plugin is broken."""
    from stelae.config.contracts import EngineKind
    from stelae.config.registry import SERVICE, Registry

    registry = Registry.installed()
    found: list[dict[str, Any]] = []
    for offer in registry.offers():
        problem = ""
        try:
            if offer.kind in list(EngineKind):
                registry.engine(EngineKind(offer.kind), offer.name)
            elif offer.kind == SERVICE:
                registry.load_service(offer.name)
            else:
                registry.load(f"{offer.kind}.{offer.name}")
        except PluginError as error:
            problem = str(error)
        found.append({**dataclasses.asdict(offer), "ok": not problem, "problem": problem})
    ok = all(entry["ok"] for entry in found)
    if as_json:
        print_json({"ok": ok, "plugins": found})
    else:
        rows = [(entry["kind"], entry["name"], "ok" if entry["ok"] else entry["problem"]) for entry in found]
        print_table(("KIND", "NAME", "STATE"), rows)
    if not ok:
        raise typer.Exit(EXIT_FAILED)


commands.command("new")(new_plugin)


def _describe(name: str) -> dict[str, Any]:
    from stelae.config.contracts import EngineKind
    from stelae.config.registry import SERVICE, Registry

    registry = Registry.installed()
    installed = registry.offers()
    offers = [offer for offer in installed if offer.kind in (*EngineKind, SERVICE)]
    matching = [offer for offer in offers if name in (offer.name, f"{offer.kind}.{offer.name}")]
    if len({offer.kind for offer in matching}) > 1:
        choices = " or ".join(sorted({f"{offer.kind}.{offer.name}" for offer in matching}))
        raise CallerError(f"plugin {name!r} is not unique; name one of them: {choices}")
    if not matching:
        if any(f"{offer.kind}.{offer.name}" == name for offer in installed):
            raise CallerError(f"plugin {name!r} is neither an engine nor a service, so it has no settings to show")
        known = ", ".join(f"{offer.kind}.{offer.name}" for offer in offers) or "none"
        raise CallerError(f"plugin {name!r} is not installed; installed engines and services: {known}")
    offer = matching[0]
    if offer.kind == SERVICE:
        plugin, config = registry.load_service(offer.name)
        return _described(offer, plugin, offer.value, config)
    engine = registry.engine(EngineKind(offer.kind), offer.name)
    return _described(offer, engine, f"{engine.__module__}.{engine.__qualname__}", engine.Config)


def _described(offer: Offer, plugin: object, where: str, config: type[Any] | None) -> dict[str, Any]:
    return {
        "kind": offer.kind,
        "name": offer.name,
        "summary": (inspect.getdoc(plugin) or "no description").splitlines()[0],
        "origin": offer.origin,
        "class": where,
        "contract_version": getattr(plugin, "contract_version", None),
        "capabilities": sorted(getattr(plugin, "capabilities", ())),
        "settings": [] if config is None else [_setting(field) for field in dataclasses.fields(config)],
    }


def _setting(field: dataclasses.Field[Any]) -> dict[str, Any]:
    limits = limits_of(field)
    return {
        "name": field.name,
        "type": field.type if isinstance(field.type, str) else field.type.__name__,
        "default": field.default,
        "low": limits.low,
        "high": limits.high,
        "unit": limits.unit,
        "reason": limits.reason,
    }
