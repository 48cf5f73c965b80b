"""Compares the settings of a cluster's nodes: which must be equal on all nodes, and how severe a difference is.

Masters are compared with masters and tablet servers with tablet servers, because all replicas of a tablet are on
nodes of one role. Settings that no rule names may differ: engines of the store and of the log, directories, threads,
memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from stelae.protocol.node_messages import NodeInfo


class Severity(StrEnum):
    """Whether a finding makes a cluster unhealthy."""

    WARNING = "WARNING"  #: The cluster is healthy.
    ERROR = "ERROR"  #: The cluster is not healthy.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Settings that must be equal on all nodes of a role."""

    name: str  #: Name of the setting; ``*`` matches any text.
    severity: Severity
    why: str  #: The consequence of a difference.
    role: str = ""  #: Empty: nodes of every role.


RULES = (
    Rule(
        name="masters", severity=Severity.ERROR, why="a node that does not know the leader master cannot report to it"
    ),
    Rule(
        name="engines.consensus",
        severity=Severity.ERROR,
        why="replicas of one tablet with different consensus engines cannot talk to each other",
    ),
    *(
        Rule(
            name=f"wire.{limit}", severity=Severity.ERROR, why="a node refuses what another one sends, at every attempt"
        )
        for limit in ("header_bytes_max", "frame_bytes_max", "frames_max", "packet_messages_max")
    ),
    Rule(
        name="consensus.*",
        severity=Severity.WARNING,
        why="the node with the shortest timeout starts needless elections",
    ),
    Rule(
        name="clock.clock_error_ms_max", severity=Severity.WARNING, why="some nodes accept a clock that others refuse"
    ),
    Rule(
        name="maintenance.history_retention_s",
        severity=Severity.WARNING,
        why="whether a read of the past succeeds depends on the replica",
        role="tserver",
    ),
    Rule(
        name="tserver.follower_unhealthy_ms",
        severity=Severity.WARNING,
        why="the time until a lost replica is replaced depends on the leader",
        role="tserver",
    ),
    Rule(
        name="master.*",
        severity=Severity.WARNING,
        why="limits and periods change with the leader master",
        role="master",
    ),
    Rule(
        name="engines.policy", severity=Severity.WARNING, why="placement changes with the leader master", role="master"
    ),
    Rule(name="policy.*", severity=Severity.WARNING, why="placement changes with the leader master", role="master"),
)
"""The first rule that matches a setting applies to it."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that differs."""

    setting: str
    role: str
    severity: Severity
    why: str
    values: tuple[tuple[str, tuple[str, ...]], ...]  #: Each value with the addresses of its nodes, most nodes first.

    def __str__(self) -> str:
        what = "masters" if self.role == "master" else "tablet servers"
        held = "; ".join(f"{value} on {', '.join(nodes)}" for value, nodes in self.values)
        return f"{what} differ in {self.setting}: {held} ({self.why})"


def differences(infos: Iterable[NodeInfo]) -> tuple[Difference, ...]:
    """Return the differences between nodes of the same role, errors first, then by name."""
    by_role: dict[str, list[NodeInfo]] = {}
    for info in infos:
        by_role.setdefault(info.role, []).append(info)
    found = [one for role, nodes in sorted(by_role.items()) for one in _among(role, nodes)]
    return tuple(sorted(found, key=lambda one: (one.severity is not Severity.ERROR, one.setting, one.role)))


def versions(infos: Iterable[NodeInfo]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of the nodes of each release."""
    return dict(_grouped({info.address: info.version for info in infos}))


def _among(role: str, nodes: list[NodeInfo]) -> list[Difference]:
    values: dict[str, dict[str, str]] = {}
    for node in nodes:
        for name, value in _compared(node).items():
            values.setdefault(name, {})[node.address] = value
    found = []
    for name, held in values.items():
        rule = next((r for r in RULES if fnmatchcase(name, r.name) and r.role in ("", role)), None)
        groups = _grouped(held)
        # A setting that is absent on some nodes belongs to an engine that they do not run, or to another release.
        if rule is not None and len(groups) > 1:
            found.append(Difference(setting=name, role=role, severity=rule.severity, why=rule.why, values=groups))
    return found


def _compared(node: NodeInfo) -> dict[str, str]:
    listed = ", ".join(sorted(address for _, address in node.masters)) or "none"
    return {"masters": listed, **{name: str(value) for name, value in node.settings.items()}}


def _grouped(held: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    groups: dict[str, list[str]] = {}
    for address, value in sorted(held.items()):
        groups.setdefault(value, []).append(address)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple((value, tuple(nodes)) for value, nodes in ordered)
