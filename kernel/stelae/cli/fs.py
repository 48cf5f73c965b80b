"""``stelae fs``: make a node's directory, name the node in it, and read its metadata files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, command_group, note, print_json
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.host.instance import Instance
    from stelae.host.settings import NodeConfig

commands = command_group(
    """A node's directory: make it, name it, look into it.

    A node needs a directory that was formatted once; the uuid drawn then is its name for ever.
    """
)

DirectoryArgument = Annotated[str | None, typer.Argument(help="Directory of the node.", show_default=False)]
ConfigOption = Annotated[
    str | None, typer.Option("--config", help="A node.toml that names the directory.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="fs")


@commands.command("format")
def format_node(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    uuid: Annotated[
        str | None, typer.Option(help="Name of the node: 32 hexadecimal digits; drawn if not given.")
    ] = None,
    cluster_id: Annotated[str | None, typer.Option(help="Cluster it belongs to; else the first one it joins.")] = None,
    wal_engine: Annotated[str | None, typer.Option(help="Log engine that will own its log.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a directory the home of a new node, and print the node's uuid.

    Give the directory, or a node.toml with --config: then cluster id and log engine are taken from it, and the uuid of
    the member of [tablet] that has the node's own address. A directory that holds a node already is left as it is.

    A uuid that has served is never given to an empty directory: the node would vote, and know nothing of what it has
    acknowledged. A server that has lost its disk comes back under a new uuid."""
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
        print(instance.node_id)


@commands.command("uuid")
def print_uuid(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print the uuid of the node in a directory; works while the node runs."""
    from stelae.host.directory_layout import DirectoryLayout
    from stelae.host.instance import InstanceFile
    from stelae.machine.files import RealFiles

    root = _directory(directory, _read_config(config) if config is not None else None)
    instance = InstanceFile(RealFiles(), DirectoryLayout(root)).load()
    if as_json:
        print_json({"directory": root, "uuid": instance.node_id, "cluster_id": instance.cluster_id})
    else:
        print(instance.node_id)


@commands.command("dump")
def dump(
    path: Annotated[str, typer.Argument(help="A metadata file, or a node's directory for all of them.")],
    as_json: JsonOption = False,
) -> None:
    """Print what metadata files hold: instance, clock, superblocks, consensus metadata.

    Reads only, and works while the node runs. A file that fails its checks is reported with the
    reason, the others are printed, and the exit code is 1."""
    from stelae.cli.fs_dump import dump_files, print_dump
    from stelae.machine.files import RealFiles

    if not os.path.exists(path):
        raise CallerError(f"{path} does not exist; give a metadata file or a node's directory")
    found = dump_files(RealFiles(), os.path.abspath(path), directory=os.path.isdir(path))
    if as_json:
        print_json({"files": found})
    else:
        print_dump(found)
    if any("error" in entry for entry in found):
        raise typer.Exit(EXIT_FAILED)


def _read_config(path: str) -> NodeConfig:
    from stelae.cli.node_config import read_config
    from stelae.config.registry import Registry

    return read_config(path, Registry.installed())


def _directory(directory: str | None, settings: NodeConfig | None) -> str:
    if (directory is None) == (settings is None):
        raise CallerError("give either the directory of a node or --config with its node.toml")
    if settings is not None:
        return settings.node.directory
    return os.path.abspath(directory or "")


def _new_instance(
    settings: NodeConfig | None, uuid: str | None, cluster_id: str | None, wal_engine: str | None
) -> Instance:
    import uuid as uuids

    from stelae.config.sections import EngineNames
    from stelae.host.instance import Instance
    from stelae.spi import ids

    if settings is not None and (cluster_id is not None or wal_engine is not None):
        raise CallerError("with --config, cluster id and log engine are those of the node.toml")
    if uuid is None and settings is not None and settings.tablet is not None:
        members = settings.tablet.members
        uuid = next((m.node_id for m in members if m.address == settings.node.listen), None)
    if settings is not None:
        cluster_id, wal_engine = settings.cluster_id, settings.wal.name
    return Instance(
        node_id=ids.node_id(uuid if uuid is not None else uuids.uuid4().hex),
        cluster_id=ids.cluster_id(cluster_id) if cluster_id is not None else None,
        wal_engine=wal_engine or EngineNames().wal,
    )
