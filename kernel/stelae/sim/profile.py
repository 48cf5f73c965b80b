"""The parameters of one run, drawn from its seed: delays, loss, load and sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from stelae.sim.draw import between, chance, pick, skewed, stream
from stelae.sim.log_profile import draw_logs
from stelae.sim.store_profile import StoreProfile, draw_store_profile

ALTERED = 0.6
"""Share of the runs with schema changes."""

WITNESSES = 0.6
"""Share of the runs with changes of members in which some members are witnesses."""

MEMBERS_CHANGE = 0.35
"""Share of the runs with leases in which members change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Parameters that stay the same for a whole run. Times are in microseconds.

    Attributes:
        election_timeout_ms: election timeout of the consensus engine.
        delay_us: smallest and largest one-way network delay (mostly near the smallest).
        loss, duplication: probability per message during the safety phase.
        sync_us, metadata_us: shortest and longest group commit and metadata save.
        apply_us: shortest and longest pause before a group of committed entries is applied.
        read_us: shortest and longest read of the log beside the log writer.
        apply_inline: true if stores that can apply on the event loop do so.
        clients, in_flight_max: number of model clients, and the largest number of open writes of each.
        think_us: shortest and longest pause between two operations of a client.
        keys: number of keys; small, so that operations conflict.
        value_bytes_max: longest value of a write.
        reads, repeats: share of reads among operations; share of answered writes that are sent once more.
        segment_bytes: size of a log segment; small, so that logs roll often.
        append_bytes_max: bytes of entries in one message; small, so that a lagging follower needs several messages.
        in_flight_messages_max: largest number of unanswered appends for each peer.
        queue_bytes_max: limit of the log writer's queue; small, so that it refuses appends at times.
        clock_error_us: error of each node's wall clock at the start.
        writers: number of clients that use production's writer; each has a reader.
        alter_us: shortest and longest pause between two schema changes; ``None`` in runs without schema changes.
        logs: name of each node's log engine.
        store: parameters of the stores.
        safety_us: length of the phase with faults.
        faults: number of planned faults.
        nodes: number of nodes.
        member_change_us: shortest and longest pause between two changes of config; ``None``: members are fixed.
        member_join_timeout_ms: a new member that does not answer for this long is removed.
        witnesses: true if some members are witnesses, which have no rows. Only where members change.
        copies: true if replicas are copied: logs are collected although a member lacks entries, and replicas of nodes
            that are no members any more are deleted. Only where members change and all stores have files.
        lagging_peer_bytes_max: bytes of entries that are kept for a member that lacks them; in runs with copies.
        drift_ppm_max: bound on the drift of the clocks, for leases; 0: there are no leases.
        clock_drift_ppm: by how much each node's monotonic clock runs too fast; empty: by nothing.
        transfer_us: shortest and longest pause between two transfers of leadership; ``None``: only one, at the end.
    """

    election_timeout_ms: int
    delay_us: tuple[int, int]
    loss: float
    duplication: float
    sync_us: tuple[int, int]
    metadata_us: tuple[int, int]
    apply_us: tuple[int, int]
    read_us: tuple[int, int]
    apply_inline: bool
    clients: int
    in_flight_max: int
    think_us: tuple[int, int]
    keys: int
    value_bytes_max: int
    reads: float
    repeats: float
    segment_bytes: int
    append_bytes_max: int
    in_flight_messages_max: int
    queue_bytes_max: int
    clock_error_us: tuple[int, ...]
    writers: int
    alter_us: tuple[int, int] | None
    logs: tuple[str, ...]
    store: StoreProfile
    safety_us: int
    faults: int
    nodes: int = 3
    member_change_us: tuple[int, int] | None = None
    member_join_timeout_ms: int = 60_000
    witnesses: bool = False
    copies: bool = False
    lagging_peer_bytes_max: int = 0
    drift_ppm_max: int = 0
    clock_drift_ppm: tuple[int, ...] = ()
    transfer_us: tuple[int, int] | None = None
    lookups: bool = False


class ProfileKind(StrEnum):
    """The kinds of runs."""

    STANDARD = "standard"
    """Three nodes with fixed members."""
    MEMBERSHIP = "membership"
    """Five nodes, of which three are members at first. Members are added, promoted, demoted and removed. In
    some runs there are witnesses."""
    LEASES = "leases"
    """Leaders also read by leases and hand over often, while clocks drift as far as the bound allows. In a third of the
    runs, members change."""
    COPIES = "copies"
    """As ``MEMBERSHIP``. Logs are short, so members that lag or are added get copies of another replica, and witnesses
    that become voters get its rows. Replicas of nodes that are no members any more are deleted, and vote as
    tombstones."""
    LOOKUPS = "lookups"
    """As ``STANDARD``. Clients read rows by lookups instead of scans. One looks keys up, and scans few rows at a
    time, as of past times."""
    LOCAL = "local"
    """One node with the consensus engine ``local``."""

    @property
    def consensus(self) -> str:
        """The name of the consensus engine."""
        return "local" if self is ProfileKind.LOCAL else "raft"


def draw_profile(seed: int, kind: ProfileKind = ProfileKind.STANDARD) -> Profile:
    """Return the profile of a seed for a kind of run."""
    match kind:
        case ProfileKind.STANDARD:
            return _draw_standard(seed, 3)
        case ProfileKind.LOCAL:
            return _draw_standard(seed, 1)
        case ProfileKind.LOOKUPS:
            return replace(_draw_standard(seed, 3), lookups=True)
        case ProfileKind.MEMBERSHIP:
            return _draw_membership(seed)
        case ProfileKind.COPIES:
            return _draw_copies(seed)
        case ProfileKind.LEASES:
            return _draw_leases(seed)
        case _:
            assert_never(kind)


def _draw_membership(seed: int) -> Profile:
    rng, profile = stream(seed, "profile/members"), _draw_standard(seed, 5)
    return replace(
        profile,
        clock_error_us=(*profile.clock_error_us, *(between(rng, -200_000, 200_000) for _ in range(2))),
        member_change_us=(10_000, pick(rng, (500_000, 2_000_000))),
        # A member that never answers is gone within the time that a run has to come to rest, also after a new election.
        member_join_timeout_ms=20_000,
        witnesses=chance(stream(seed, "profile/witnesses"), WITNESSES),
    )


def _draw_copies(seed: int) -> Profile:
    rng, profile = stream(seed, "profile/copies"), _draw_membership(seed)
    return replace(
        profile,
        witnesses=chance(stream(seed, "profile/copied_witnesses"), WITNESSES),
        copies=True,
        lagging_peer_bytes_max=pick(rng, (1, 1_000, 4_000)),
        segment_bytes=4_096,
        store=replace(profile.store, engines=("columnar",) * profile.nodes, flush_bytes=6_000, flush_interval_ms=1_500),
        think_us=(2_000, between(rng, 50_000, 300_000)),
        faults=between(rng, 10, 22),
    )


def _draw_leases(seed: int) -> Profile:
    """Draw a profile with leases, more reads and faults, and clocks that mostly drift as far as the bound allows."""
    rng = stream(seed, "profile/leases")
    profile = _draw_membership(seed) if chance(rng, MEMBERS_CHANGE) else _draw_standard(seed, 3)
    bound = pick(rng, (1_000, 20_000, 100_000))
    return replace(
        profile,
        # By a slow clock, too, a silent member is gone within the time that a run has to come to rest.
        member_join_timeout_ms=30_000,
        witnesses=False,
        drift_ppm_max=bound,
        clock_drift_ppm=tuple(pick(rng, (-bound, -bound, 0, bound, bound)) for _ in range(profile.nodes)),
        reads=0.5,
        think_us=(1_000, between(rng, 50_000, 300_000)),
        faults=between(rng, 14, 26),
        transfer_us=(50_000, 2_000_000),
    )


def _draw_standard(seed: int, nodes: int) -> Profile:
    rng, added = stream(seed, "profile"), stream(seed, "profile/writers")
    low, sync = between(rng, 50, 2_000), between(rng, 50, 2_000)
    return Profile(
        election_timeout_ms=pick(rng, (150, 300, 500, 1_000)),
        delay_us=(low, low + skewed(rng, 100, 40_000)),
        loss=pick(rng, (0.0, 0.0, 0.005, 0.02, 0.08)),
        duplication=pick(rng, (0.0, 0.005, 0.02, 0.08)),
        sync_us=(sync, sync + skewed(rng, 100, 30_000)),
        metadata_us=(sync, sync + skewed(rng, 100, 60_000)),
        apply_us=(10, 10 + skewed(rng, 10, 300_000)),
        read_us=(10, 10 + skewed(rng, 10, 5_000)),
        apply_inline=chance(rng, 0.5),
        clients=between(rng, 2, 4),
        in_flight_max=between(rng, 1, 6),
        think_us=(2_000, between(rng, 300_000, 900_000)),
        keys=between(rng, 2, 12),
        value_bytes_max=pick(rng, (16, 64, 400)),
        reads=pick(rng, (0.1, 0.3, 0.5)),
        repeats=pick(rng, (0.0, 0.1, 0.3)),
        segment_bytes=pick(rng, (4_096, 8_192, 32_768)),
        append_bytes_max=pick(rng, (1_024, 4_096, 65_536)),
        in_flight_messages_max=pick(rng, (1, 4, 64)),
        queue_bytes_max=pick(rng, (2_048, 16_384, 1 << 20)),
        clock_error_us=(
            between(rng, -200_000, 200_000),
            between(rng, -200_000, 200_000),
            0 if chance(rng, 0.5) else between(rng, -2_000_000, 2_000_000),
        ),
        writers=between(added, 1, 2),
        alter_us=(300_000, pick(added, (5_000_000, 15_000_000))) if chance(added, ALTERED) else None,
        logs=draw_logs(seed, nodes),
        store=draw_store_profile(seed, nodes),
        safety_us=between(rng, 12_000_000, 20_000_000),
        faults=between(rng, 6, 16),
        nodes=nodes,
    )
