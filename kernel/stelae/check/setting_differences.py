"""Which settings of a cluster's nodes ought to be alike, and how bad it is where they are not.

Masters are compared with masters and tablet servers with tablet servers: a tablet's replicas are all on nodes of one
sort. What is not named here may differ: engines of the store and of the log, directories, threads, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from stelae.protocol.node_messages import NodeInfo


class Severity(StrEnum):
    """What a finding means for the verdict on a cluster."""

    WARNING = "WARNING"  #: Worth knowing; the cluster is healthy all the same.
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Settings that ought to be alike; ``name`` may have ``*``, ``role`` is empty for nodes of every sort."""

    name: str
    severity: Severity
    why: str
    role: str = ""


RULES = (
    Rule(
        name="masters",
        severity=Severity.ERROR,
        why="who does not know every master reports to nobody while another one leads",
    ),
    Rule(
        name="engines.consensus",
        severity=Severity.ERROR,
        why="replicas of one tablet with different consensus engines cannot talk to each other",
    ),
    *(
        Rule(
            name=f"wire.{limit}",
            severity=Severity.ERROR,
            why="what one node sends another one refuses, at every attempt",
        )
        for limit in ("header_bytes_max", "frame_bytes_max", "frames_max", "packet_messages_max")
    ),
    Rule(
        name="consensus.*",
        severity=Severity.WARNING,
        why="the most impatient node calls elections that the others need not have",
    ),
    Rule(
        name="clock.clock_error_ms_max",
        severity=Severity.WARNING,
        why="a clock that one node still accepts another one refuses",
    ),
    Rule(
        name="maintenance.history_retention_s",
        severity=Severity.WARNING,
        why="a read of the past succeeds or not, by the replica that serves it",
        role="tserver",
    ),
    Rule(
        name="tserver.follower_unhealthy_ms",
        severity=Severity.WARNING,
        why="when a lost replica is replaced depends on who leads",
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
"""A setting is judged by the first rule that names it."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that is not alike. ``values``: addresses of the nodes that have it so, by value, most nodes first."""

    setting: str
    role: str
    severity: Severity
    why: str
    values: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        what = "masters" if self.role == "master" else "tablet servers"
        held = "; ".join(f"{value} on {', '.join(nodes)}" for value, nodes in self.values)
        return f"{what} differ in {self.setting}: {held} ({self.why})"


def differences(infos: Iterable[NodeInfo]) -> tuple[Difference, ...]:
    """Compare nodes with their like; errors first, then by name."""
    by_role: dict[str, list[NodeInfo]] = {}
    for info in infos:
        by_role.setdefault(info.role, []).append(info)
    found = [one for role, nodes in sorted(by_role.items()) for one in _among(role, nodes)]
    return tuple(sorted(found, key=lambda one: (one.severity is not Severity.ERROR, one.setting, one.role)))


def versions(infos: Iterable[NodeInfo]) -> dict[str, tuple[str, ...]]:
    """Addresses of the nodes that run each release, by release."""
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
        # A setting that some do not have at all is one of an engine that they do not run, or of another release.
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
