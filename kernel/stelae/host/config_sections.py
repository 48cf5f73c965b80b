"""The kernel's own sections of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stelae.host.config_source import Source, fill, typed
from stelae.host.toml_locator import Path
from stelae.spi.consensus import Member, TabletConfig
from stelae.spi.errors import BadIdentifier, ConfigError, SchemaMismatch
from stelae.spi.ids import ZERO, NodeId, TabletId, node_id, tablet_id
from stelae.spi.schema import Column, Schema, data_type
from stelae.spi.settings import setting
from stelae.wire.addresses import check_listen_host, split_address


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSection:
    """Section ``[node]``.

    Attributes:
        directory: where the node keeps everything; relative to the file.
        listen: ``host:port``; port 0 lets the system choose.
        insecure_listen: says in as many words that others than this machine may connect although
            there is no security yet.
    """

    directory: str
    listen: str
    insecure_listen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Section ``[log]``: group commit of the whole node. Every group is synced."""

    queue_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=64 << 10,
        high=16 << 30,
        reason="appends that wait for the disk; beyond it writers are pushed back",
    )
    group_bytes_max: int = setting(
        8 << 20,
        unit="bytes",
        low=4096,
        high=1 << 30,
        reason="one write and sync; larger groups add latency and save little",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Section ``[workers]``: threads of the node's pools."""

    background_threads: int = setting(
        2, unit="count", low=1, high=256, reason="preallocation, compaction and other long work"
    )
    metadata_threads: int = setting(
        2,
        unit="count",
        low=1,
        high=64,
        reason="votes and superblocks; apart from the log, so that elections never stall it",
    )
    apply_threads: int = setting(
        2, unit="count", low=1, high=256, reason="stores that cannot apply on the event loop"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletSection:
    """Section ``[tablet]``: the one tablet of a cluster that has no masters yet.

    ``members`` are in the order of the file; the first is the hinted leader, which counts only
    where no config was ever agreed on. Column ids count from 1, in the order of the file.
    """

    id: TabletId
    schema: Schema
    members: tuple[Member, ...]

    @property
    def hinted_leader(self) -> NodeId:
        """Who campaigns first in a new tablet."""
        return self.members[0].node_id

    def initial_config(self) -> TabletConfig:
        """The config that stands in consensus metadata before the first start."""
        ordered = tuple(sorted(self.members, key=lambda member: member.node_id))
        return TabletConfig(op_id=ZERO, members=ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TabletSpec:
    id: str
    columns: list[Any]
    key: list[Any]
    members: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnSpec:
    name: str
    type: str
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberSpec:
    uuid: str
    address: str


def read_node(source: Source) -> NodeSection:
    """Read ``[node]``; refuses an address that cannot be, or that anyone could reach."""
    path: Path = ("node",)
    source.table(path, required=True)
    section = fill(source, path, NodeSection)
    if not section.directory:
        raise source.error((*path, "directory"), "directory is empty", "Name a directory.")
    try:
        host, _ = split_address(section.listen)
        check_listen_host(host, insecure_listen=section.insecure_listen)
    except ConfigError as error:
        raise source.error((*path, "listen"), error.fact, error.hint) from error
    return section


def read_tablet(source: Source) -> TabletSection | None:
    """Read ``[tablet]`` if it is there."""
    path: Path = ("tablet",)
    if "tablet" not in source.tables:
        return None
    spec = fill(source, path, _TabletSpec)
    try:
        tablet = tablet_id(spec.id)
    except BadIdentifier as error:
        raise source.error((*path, "id"), str(error), "Choose another id.") from error
    members = _members(source, (*path, "members"), spec)
    return TabletSection(id=tablet, schema=_schema(source, path, spec), members=members)


def _schema(source: Source, path: Path, tablet: _TabletSpec) -> Schema:
    columns: dict[str, Column] = {}
    for item in _items(source, (*path, "columns"), tablet.columns, dict):
        spec = fill(source, item, _ColumnSpec)
        column = Column(id=len(columns) + 1, name=spec.name, type=spec.type, nullable=spec.nullable)
        if spec.name in columns:
            hint = "Each has to be there once."
            raise source.error((*item, "name"), f"column name {spec.name!r} is repeated", hint)
        try:
            data_type(spec.type)
        except SchemaMismatch as error:
            raise source.error((*item, "type"), str(error), "Choose one of them.") from error
        columns[spec.name] = column
    for item, name in zip(_items(source, (*path, "key"), tablet.key, str), tablet.key, strict=True):
        if name not in columns:
            known = ", ".join(columns)
            raise source.error(item, f"the key names no column: {name!r}", f"Known: {known}.")
    try:
        return Schema(1, tuple(columns.values()), tuple(columns[name].id for name in tablet.key))
    except SchemaMismatch as error:
        hint = "Correct columns or key."
        raise source.error((*path, "key"), str(error), hint) from error


def _members(source: Source, path: Path, tablet: _TabletSpec) -> tuple[Member, ...]:
    found = []
    for item in _items(source, path, tablet.members, dict):
        spec = fill(source, item, _MemberSpec)
        try:
            _, port = split_address(spec.address)
        except ConfigError as error:
            raise source.error((*item, "address"), error.fact, error.hint) from error
        if port == 0:
            hint = "Others have to find it: choose a port from 1 to 65535."
            raise source.error((*item, "address"), f"port 0 in {spec.address!r}", hint)
        try:
            found.append(Member(node_id=node_id(spec.uuid), address=spec.address))
        except BadIdentifier as error:
            hint = "Print the uuid of a formatted node with: stelae fs uuid DIRECTORY"
            raise source.error((*item, "uuid"), str(error), hint) from error
    _refuse_repeats(source, path, [member.node_id for member in found], "uuid")
    _refuse_repeats(source, path, [member.address for member in found], "address")
    if len(found) % 2 == 0:
        raise source.error(
            path,
            f"{len(found)} members: an even number survives no more failures than one fewer",
            f"Use {len(found) - 1} or {len(found) + 1} members.",
        )
    return tuple(found)


def _items(source: Source, path: Path, values: list[Any], wanted: type) -> list[Path]:
    """Return the paths of the elements of a non-empty array whose elements are all ``wanted``."""
    if not values:
        raise source.error(path, f"{path[-1]} is empty", "At least one is needed.")
    items: list[Path] = [(*path, position) for position in range(len(values))]
    for item, value in zip(items, values, strict=True):
        typed(source, item, value, wanted)
    return items


def _refuse_repeats(source: Source, path: Path, names: list[Any], what: str) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            hint = "Each has to be there once."
            raise source.error((*path, position), f"{what} {name!r} is repeated", hint)
