"""Settings of the placement policy, as ``node.toml`` of a master may state them under ``[policy.placement]``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one master; masters of a cluster should agree, or a change of leader begins other moves."""

    imbalance_tolerated: float = setting(
        0.05,
        unit="ratio",
        low=0.0,
        high=1.0,
        reason="a replica moves when it closes a gap above this part of a node's mean share: "
        "lower is evener, higher copies less while sizes change",
    )
    leader_imbalance_tolerated: float = setting(
        0.05,
        unit="ratio",
        low=0.0,
        high=1.0,
        reason="as above, for leaders; a transfer stops the tablet's writes for a moment",
    )
    bytes_share: float = setting(
        0.5,
        unit="ratio",
        low=0.0,
        high=1.0,
        reason="how much bytes weigh against the number of replicas, each of which costs memory and heartbeats",
    )
    disk_free_ratio_min: float = setting(
        0.05,
        unit="ratio",
        low=0.0,
        high=0.9,
        reason="part of a node's disk that replicas brought there leave free, for logs and compaction",
    )
    hot_load_ratio: float = setting(
        2.0,
        unit="ratio",
        low=1.0,
        high=1000.0,
        reason="a node with this multiple of the mean load is given neither moved replicas nor leaders: "
        "high enough that ordinary peaks do not count",
    )
    choices: int = setting(
        2,
        unit="count",
        low=1,
        high=64,
        reason="nodes drawn at random for a replica, of which the emptiest gets it: with two the spread is "
        "near the ideal, and a new, empty node does not get all of a new table",
    )
    copies_per_node_max: int = setting(
        4,
        unit="count",
        low=1,
        high=1024,
        reason="replicas that a node may be copying at a time: as many as it has slots for, further ones would wait",
    )
    placements_max: int = setting(
        10_000,
        unit="count",
        low=1,
        high=10_000_000,
        reason="new tablets placed by one plan: bounds the time that the master's loop is held",
    )
    repairs_max: int = setting(
        10_000, unit="count", low=1, high=10_000_000, reason="repairs in one plan; those with least to spare come first"
    )
    moves_max: int = setting(
        256, unit="count", low=0, high=1_000_000, reason="moves begun by one plan; 0 stops moving, and repairs go on"
    )
    transfers_max: int = setting(
        256, unit="count", low=0, high=1_000_000, reason="leaders transferred for balance by one plan; 0 stops it"
    )
