"""The sections of ``node.toml`` with more than plain values: the node, its tablet, its engines, the masters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stelae.config.source import ConfigSource, fill, refuse_repeats, typed
from stelae.config.toml_locator import Path
from stelae.host.settings import NodeSettings, TabletSettings
from stelae.spi.errors import BadIdentifier, ConfigError, SchemaMismatch
from stelae.spi.ids import node_id, tablet_id
from stelae.spi.members import Member
from stelae.spi.schema import Column, Schema, data_type
from stelae.spi.settings import setting
from stelae.wire.addresses import check_listen_host, split_address


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNames:
    """Section ``[engines]``: the name of the engine of each kind."""

    wal: str = setting("segmented", reason="each tablet has a log in a directory of its own")
    consensus: str = setting("raft", reason="the reference engine")
    store: str = setting("columnar", reason="rows are in columnar blocks on disk, so that the log can be collected")
    copy: str = setting("streaming", reason="fetches in chunks and resumes within an item; the reference engine")
    policy: str = setting(
        "placement", reason="for masters: places replicas by location, free space and count; the reference engine"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TabletSpec:
    id: str
    columns: list[Any]
    key: list[Any]
    members: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MastersSpec:
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


def read_node(source: ConfigSource) -> NodeSettings:
    """Read ``[node]``. Refuse an address that is not valid, or that other machines can reach without permission."""
    path: Path = ("node",)
    source.table(path, required=True)
    section = fill(source, path, NodeSettings)
    if not section.directory:
        raise source.error((*path, "directory"), "directory is empty", "Name a directory.")
    try:
        host, _ = split_address(section.listen)
        check_listen_host(host, insecure_listen=section.insecure_listen)
    except ConfigError as error:
        raise source.error((*path, "listen"), error.fact, error.hint) from error
    if section.advertise:
        _check_reachable(source, (*path, "advertise"), section.advertise)
    return section


def read_tablet(source: ConfigSource) -> TabletSettings | None:
    """Read ``[tablet]``; ``None`` if the section is missing. Column ids count from 1, in the order of the file."""
    path: Path = ("tablet",)
    if "tablet" not in source.tables:
        return None
    spec = fill(source, path, _TabletSpec)
    try:
        tablet = tablet_id(spec.id)
    except BadIdentifier as error:
        raise source.error((*path, "id"), str(error), "Choose another id.") from error
    members = _members(source, (*path, "members"), spec)
    return TabletSettings(id=tablet, schema=_schema(source, path, spec), members=members)


def read_masters(source: ConfigSource) -> tuple[Member, ...]:
    """Read ``[masters]``; empty if the section is missing. Every master and tablet server has the same section."""
    path: Path = ("masters",)
    if "masters" not in source.tables:
        return ()
    return _members(source, (*path, "members"), fill(source, path, _MastersSpec))


def _schema(source: ConfigSource, path: Path, tablet: _TabletSpec) -> Schema:
    columns: dict[str, Column] = {}
    for item in _items(source, (*path, "columns"), tablet.columns, dict):
        spec = fill(source, item, _ColumnSpec)
        column = Column(id=len(columns) + 1, name=spec.name, type=spec.type, nullable=spec.nullable)
        if spec.name in columns:
            hint = "Each may occur only once."
            raise source.error((*item, "name"), f"column name {spec.name!r} is repeated", hint)
        try:
            data_type(spec.type)
        except SchemaMismatch as error:
            raise source.error((*item, "type"), str(error), "Choose one of them.") from error
        columns[spec.name] = column
    for item, name in zip(_items(source, (*path, "key"), tablet.key, str), tablet.key, strict=True):
        if name not in columns:
            known = ", ".join(columns)
            raise source.error(item, f"the key contains {name!r}, which is not a column", f"Known: {known}.")
    try:
        return Schema(1, tuple(columns.values()), tuple(columns[name].id for name in tablet.key))
    except SchemaMismatch as error:
        hint = "Correct columns or key."
        raise source.error((*path, "key"), str(error), hint) from error


def _members(source: ConfigSource, path: Path, tablet: _TabletSpec | _MastersSpec) -> tuple[Member, ...]:
    found = []
    for item in _items(source, path, tablet.members, dict):
        spec = fill(source, item, _MemberSpec)
        _check_reachable(source, (*item, "address"), spec.address)
        try:
            found.append(Member(node_id=node_id(spec.uuid), address=spec.address))
        except BadIdentifier as error:
            hint = "Print the uuid of a formatted node with: stelae fs uuid DIRECTORY"
            raise source.error((*item, "uuid"), str(error), hint) from error
    refuse_repeats(source, path, [member.node_id for member in found], "uuid")
    refuse_repeats(source, path, [member.address for member in found], "address")
    if len(found) % 2 == 0:
        raise source.error(
            path,
            f"{len(found)} members tolerate no more failures than {len(found) - 1}",
            f"Use {len(found) - 1} or {len(found) + 1} members.",
        )
    return tuple(found)


def _check_reachable(source: ConfigSource, path: Path, address: str) -> None:
    """Refuse an address at which other nodes cannot connect."""
    try:
        _, port = split_address(address)
    except ConfigError as error:
        raise source.error(path, error.fact, error.hint) from error
    if port == 0:
        hint = "Other nodes connect to it: choose a port from 1 to 65535."
        raise source.error(path, f"port 0 in {address!r}", hint)


def _items(source: ConfigSource, path: Path, values: list[Any], wanted: type) -> list[Path]:
    """Return the paths of the elements of a non-empty array whose elements are all ``wanted``."""
    if not values:
        raise source.error(path, f"{path[-1]} is empty", "Give at least one.")
    items: list[Path] = [(*path, position) for position in range(len(values))]
    for item, value in zip(items, values, strict=True):
        typed(source, item, value, wanted)
    return items
