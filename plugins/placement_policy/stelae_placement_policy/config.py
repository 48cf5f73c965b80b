"""The settings of the placement policy: the keys of ``[policy.placement]`` in the ``node.toml`` of a master."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """The settings of one master. All masters should have the same ones, or a change of leader begins other moves."""

    imbalance_tolerated: float = setting(
        0.05,
        unit="ratio",
        low=0.0,
        high=1.0,
        reason="a replica moves if that closes a gap above this part of a node's mean share: a lower value spreads "
        "replicas more evenly, a higher one copies less while sizes change",
    )
    leader_imbalance_tolerated: float = setting(
        0.05,
        unit="ratio",
        low=0.0,
        high=1.0,
        reason="the same for leaders; a transfer stops the tablet's writes for a moment",
    )
    bytes_share: float = setting(
        0.5,
        unit="ratio",
        low=0.0,
        high=1.0,
        reason="weight of bytes against the number of replicas, each of which costs memory and heartbeats",
    )
    disk_free_ratio_min: float = setting(
        0.05,
        unit="ratio",
        low=0.0,
        high=0.9,
        reason="part of a node's disk that new replicas leave free, for logs and compaction",
    )
    hot_load_ratio: float = setting(
        2.0,
        unit="ratio",
        low=1.0,
        high=1000.0,
        reason="a node with this multiple of the mean load gets no moved replicas and no leaders: high enough that "
        "ordinary peaks do not count",
    )
    choices: int = setting(
        2,
        unit="count",
        low=1,
        high=64,
        reason="nodes drawn at random for a replica, of which the emptiest gets it: with two, replicas are spread "
        "almost ideally, and a new, empty node does not get all of a new table",
    )
    copies_per_node_max: int = setting(
        4,
        unit="count",
        low=1,
        high=1024,
        reason="replicas that a node may copy at the same time: as many as it has slots, because more would wait",
    )
    small_replica_bytes: int = setting(
        16 << 20,
        unit="bytes",
        low=0,
        high=1 << 40,
        reason="a replica below this size takes a part of a slot, down to 1/32: its copy waits for messages and syncs, "
        "and not for bytes; 0: each takes a whole slot",
    )
    placements_max: int = setting(
        10_000,
        unit="count",
        low=1,
        high=10_000_000,
        reason="new tablets that one plan places: bounds how long it takes",
    )
    repairs_max: int = setting(
        10_000,
        unit="count",
        low=1,
        high=10_000_000,
        reason="repairs in one plan; tablets with the fewest spare votes come first",
    )
    moves_max: int = setting(
        256, unit="count", low=0, high=1_000_000, reason="moves that one plan begins; 0 stops moves, and repairs go on"
    )
    transfers_max: int = setting(
        256, unit="count", low=0, high=1_000_000, reason="leaders that one plan transfers for balance; 0 stops that"
    )
