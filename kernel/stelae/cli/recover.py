"""``stelae recover``: recovers tablets that have lost their majority from a replica that is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.kit.progress import ProgressOption
from stelae.cli.table import MasterDirOption

commands = command_group("Recover tablets that have lost their majority. Acknowledged writes may be lost.")

ServersOption = Annotated[
    str,
    typer.Option(
        "--servers",
        metavar="HOST:PORT,...",
        help="Addresses of all nodes of a cluster without masters, instead of --connect.",
    ),
]

TabletServersOption = Annotated[
    str,
    typer.Option(
        "--servers",
        metavar="HOST:PORT,...",
        help="Addresses of all tablet servers. Required for a new catalog, which lists no servers.",
    ),
]

MastersOption = Annotated[
    str,
    typer.Option(
        "--masters",
        metavar="HOST:PORT,...",
        help="Recover the masters: addresses of those that are left, instead of --connect.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="recover")


@commands.callback()
def _group() -> None:
    """Recover tablets that have lost their majority. Acknowledged writes may be lost.

    A tablet that has lost more than half of its voters for good has no leader and serves no requests. No master
    repairs that, because it cannot be done without a risk. Start the lost servers again if that is possible at all:
    then nothing is lost. Otherwise make a plan, read it, and apply it.

    Masters that have lost their majority come first: recover them with --masters, and add new ones with
    `stelae master add`. If no master is left, rebuild the catalog with `stelae recover catalog`."""


@commands.command("plan")
def plan(
    tablet: Annotated[
        list[str] | None,
        typer.Option("--tablet", metavar="ID", help="Only this tablet: its id, or its first letters. May be repeated."),
    ] = None,
    table: Annotated[str, typer.Option("--table", help="Only the tablets of this table.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the plan for `stelae recover apply`.")
    ] = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    servers: ServersOption = "",
    masters: MastersOption = "",
    timeout_s: TimeoutOption = 10.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the tablets without a majority, rank their survivors, and say what a recovery would lose. Changes nothing.

    The survivor whose log ends last is chosen: it has every entry that any survivor knows to be committed. Only the
    lost servers can say what else they had acknowledged. A tablet that has its majority is never in a plan.

    Example: stelae recover plan --connect 127.0.0.1:7051 --out plan.json

    Example: stelae recover plan --masters 127.0.0.1:7051 --out masters.json"""
    from stelae.cli.run_recover import RecoverTarget, run_plan

    target = RecoverTarget(directory, connect, servers, masters, timeout_s, progress)
    raise typer.Exit(run_plan(target, tablet or [], table, out, as_json=as_json))


@commands.command("apply")
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Plan of `stelae recover plan --out FILE`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait: Annotated[
        float, typer.Option("--wait-s", min=0.0, help="Wait up to this many seconds for all replicas to be restored.")
    ] = 0.0,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    servers: ServersOption = "",
    masters: MastersOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recover the tablets of a plan: each chosen survivor becomes the only voter of its tablet.

    Before that, the lost servers must be stopped for good. If one of them comes back, it learns of the recovery, leads
    no more, and the masters have its replica deleted. Until it learns that, it may serve clients that know only it.

    Everything is checked again: a tablet whose survivor has changed, or of which a lost server runs again, is left
    alone. The command can be repeated. The masters then add replicas, and the leader has them copied. New masters are
    added by you, with `stelae master add`.

    Example: stelae recover apply plan.json --connect 127.0.0.1:7051 --wait-s 300

    Example: stelae recover apply masters.json --masters 127.0.0.1:7051"""
    from stelae.cli.run_recover import RecoverTarget, run_apply

    target = RecoverTarget(directory, connect, servers, masters, timeout_s, progress)
    raise typer.Exit(run_apply(target, file, yes=yes, wait_s=wait, as_json=as_json))


@commands.command("catalog")
def catalog(
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="TABLE_ID=NAME",
            help="Name to give a table. Servers store only the table id. May be repeated.",
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave-out", metavar="TABLET", help="Do not adopt this tablet. May be repeated."),
    ] = None,
    create_missing: Annotated[
        bool, typer.Option("--create-missing", help="Create an empty tablet for each partition without a tablet.")
    ] = False,
    apply_plan: Annotated[
        bool, typer.Option("--apply", help="Hand over the servers, and adopt the tables. Default: only show them.")
    ] = False,
    servers: TabletServersOption = "",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the catalog from what the tablet servers have: the last resort if all masters are lost.

    Begin a new catalog with one new master first, which all tablet servers list. The command asks the servers, shows
    the tables that the catalog does not have, and adopts them with --apply. It changes no replica, and can be repeated.

    Servers that belong to the lost catalog do not follow the new master by themselves. With --apply, they are handed
    to it. A server refuses that while a master of its own leads.

    Lost are: the names of tables, changes that no server had made, and the modes of servers. A dropped table that
    could still be recalled comes back.

    Example: stelae recover catalog --connect 127.0.0.1:7051 --servers 127.0.0.1:7061,127.0.0.1:7062

    Example: stelae recover catalog --connect 127.0.0.1:7051 --name 3f9c1a20=readings --apply"""
    from stelae.cli.kit.connection import split
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_recover_catalog import CatalogWish, run_recover_catalog

    wish = CatalogWish(name or [], leave_out or [], create_missing)
    target = MastersTarget(directory, connect, timeout_s)
    code = run_recover_catalog(target, split(servers), wish, apply=apply_plan, progress=progress, as_json=as_json)
    raise typer.Exit(code)
