"""``stelae fs``: format the directory of a node, print its uuid, read its metadata files, and find leftovers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, command_group, note, print_json
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.host.instance import Instance
    from stelae.host.settings import NodeConfig
    from stelae.spi.members import Member

commands = command_group(
    """Format the directory of a node, print its uuid, show its metadata files, find what belongs to no replica.

    The directory of a node must be formatted once. The node keeps the uuid that it gets then.
    """
)

DirectoryArgument = Annotated[str | None, typer.Argument(help="Directory of the node.", show_default=False)]
ConfigOption = Annotated[
    str | None, typer.Option("--config", help="The node.toml that names the directory.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="fs")


@commands.command("format")
def format_node(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    uuid: Annotated[
        str | None, typer.Option(help="The uuid of the node: 32 hexadecimal digits. Default: a random one.")
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option(help="Id of its cluster. Default: the first cluster that it joins.")
    ] = None,
    wal_engine: Annotated[str | None, typer.Option(help="Log engine of the node.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Format the directory of a new node, and print the uuid of the node.

    Pass the directory, or --config with a node.toml, which has the cluster id and the log engine. If its section
    [tablet] has a member with the node's own address, the node gets the uuid of that member. A directory that is
    formatted already is not changed. A master that begins a new cluster needs --uuid, with the uuid that [masters]
    lists.

    Never format an empty directory with the uuid of an earlier node: the new node would vote without what the earlier
    one has acknowledged. A server that has lost its disk needs a new uuid."""
    from stelae.host.directory_layout import DirectoryLayout
    from stelae.host.instance import format_directory
    from stelae.machine.files import RealFiles

    settings = _read_config(config) if config is not None else None
    root = _directory(directory, settings)
    instance = _new_instance(settings, uuid, cluster_id, wal_engine)
    format_directory(RealFiles(), DirectoryLayout(root), instance)
    if as_json:
        print_json({"directory": root, "uuid": instance.node_id, "cluster_id": instance.cluster_id})
    else:
        note(f"formatted {root}")
        if uuid is None and settings is not None and (member := _own_member(settings)) is not None:
            note(f"the uuid is that of the member {member.address} of [tablet]")
            note("If that node has run before, remove the directory and format it with another --uuid: under the old")
            note("uuid the node would vote without what it has acknowledged")
        elif uuid is None and settings is not None and (listed := _listed_master(settings)) is not None:
            note(f"[masters] lists another uuid at the address of this node: {listed.node_id}")
            note(
                "In place of a lost master, keep the new uuid, and copy the catalog next: stelae master copy. To start"
            )
            note("without a copy, take the entry of the lost master out of [masters]")
            note("If this master begins a new cluster, remove the directory, and format it with --uuid")
        print(instance.node_id)


@commands.command("uuid")
def print_uuid(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print the uuid of the node in a directory. Works while the node runs."""
    from stelae.cli.no_node_here import instance_in

    root = _directory(directory, _read_config(config) if config is not None else None)
    instance = instance_in(root, near=config is None)
    if as_json:
        print_json({"directory": root, "uuid": instance.node_id, "cluster_id": instance.cluster_id})
    else:
        print(instance.node_id)


@commands.command("dump")
def dump(
    path: Annotated[
        str, typer.Argument(help="A metadata file, or the directory of a node for all its metadata files.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Print the contents of metadata files: instance, clock, superblocks, consensus metadata.

    Only reads, and works while the node runs. A file that fails its checks is reported with the reason.

    Exit code 1: a file cannot be read."""
    from stelae.cli.fs_dump import dump_files, has_metadata, print_dump
    from stelae.cli.no_node_here import NoNodeHere
    from stelae.machine.files import RealFiles

    if not os.path.exists(path):
        raise CallerError(f"{path} does not exist; pass a metadata file or the directory of a node")
    if os.path.isdir(path) and not has_metadata(RealFiles(), os.path.abspath(path)):
        raise NoNodeHere(os.path.abspath(path))
    found = dump_files(RealFiles(), os.path.abspath(path), directory=os.path.isdir(path))
    if as_json:
        print_json({"files": found})
    else:
        print_dump(found)
    if any("error" in entry for entry in found):
        raise typer.Exit(EXIT_FAILED)


@commands.command("check")
def check(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List what is in the directory of a node and belongs to no replica: with its size, and what removes it when.

    Shows stages of interrupted copies, logs and rows that no superblock names, the quarantine, interrupted deletions,
    and files that no node has written. Most of it is kept on purpose, or is removed by the node itself. Pass --config,
    so that the limits of its node.toml are used. Files within the rows of a replica are not listed: its store engine
    removes those that it does not need when it opens them.

    The node must not run: while it runs, files come and go. The log is opened as a start of the node does it, which
    removes an unfinished write at its end. Nothing else is changed.

    It also names the replicas that would not start, with the reason. The command cannot always find
    the files that belong to such a replica.

    Exit code 1: there are files that no process will remove, or replicas that would not start.

    Example: stelae fs check --config /etc/stelae/node.toml"""
    from stelae.cli.run_fs_check import run_check

    raise typer.Exit(run_check(directory, config, as_json=as_json))


def _read_config(path: str) -> NodeConfig:
    from stelae.cli.node_config import read_config
    from stelae.config.registry import Registry

    return read_config(path, Registry.installed())


def _directory(directory: str | None, settings: NodeConfig | None) -> str:
    if (directory is None) == (settings is None):
        raise CallerError("pass either the directory of a node or --config with its node.toml")
    if settings is not None:
        return settings.node.directory
    return os.path.abspath(directory or "")


def _new_instance(
    settings: NodeConfig | None, uuid: str | None, cluster_id: str | None, wal_engine: str | None
) -> Instance:
    import uuid as uuids

    from stelae.config.contracts import EngineKind
    from stelae.config.registry import Registry
    from stelae.config.sections import EngineNames
    from stelae.host.instance import Instance
    from stelae.spi import ids

    if settings is not None and (cluster_id is not None or wal_engine is not None):
        raise CallerError("--config cannot be combined with --cluster-id or --wal-engine: the node.toml has both")
    if uuid is None and settings is not None and (member := _own_member(settings)) is not None:
        uuid = member.node_id
    if settings is not None:
        cluster_id, wal_engine = settings.cluster_id, settings.wal.name
    elif wal_engine is not None:
        Registry.installed().engine(EngineKind.WAL, wal_engine)
    return Instance(
        node_id=ids.node_id(uuid if uuid is not None else uuids.uuid4().hex),
        cluster_id=ids.cluster_id(cluster_id) if cluster_id is not None else None,
        wal_engine=wal_engine or EngineNames().wal,
    )


def _own_member(settings: NodeConfig) -> Member | None:
    """Return the member of the section [tablet] that has the node's own address: what it advertises comes first."""
    return _at_own_address(settings, settings.tablet.members if settings.tablet is not None else ())


def _listed_master(settings: NodeConfig) -> Member | None:
    """Return the entry of the section [masters] that has the node's own address."""
    return _at_own_address(settings, settings.masters)


def _at_own_address(settings: NodeConfig, members: Sequence[Member]) -> Member | None:
    own = (settings.node.advertise, settings.node.listen)
    return next((member for address in own for member in members if member.address == address), None)
