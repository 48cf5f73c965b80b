"""The settings of the Raft engine: the keys of ``[consensus.raft]`` in ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The settings of a node's Raft replicas. All replicas of a tablet should have the same election timeout."""

    election_timeout_ms: int = setting(
        1000,
        unit="ms",
        low=10,
        high=600_000,
        reason="T: a follower campaigns when it has heard no leader for T to 2T; a shorter T replaces a "
        "failed leader sooner, but a stalled disk or a busy machine then causes needless elections",
    )
    member_join_timeout_ms: int = setting(
        60_000,
        unit="ms",
        low=100,
        high=86_400_000,
        reason="a new member that has not answered the leader for this long, before it has its vote, is removed again; "
        "choose it longer than a node takes to start",
    )
    clock_drift_ppm_max: int = setting(
        0,
        unit="ppm",
        low=0,
        high=100_000,
        reason="with a bound on how much the rate of each node's clock is wrong, leaders answer reads by a lease, "
        "without asking a majority each time; 0: no bound is known, and no leases; wrong bounds allow stale reads",
    )
    append_retry_ms: int = setting(
        250,
        unit="ms",
        low=1,
        high=600_000,
        reason="an append without an answer is sent again after this time, then at doubling intervals; "
        "choose it longer than a slow sync and shorter than T",
    )
    commit_notice_ms: int = setting(
        50,
        unit="ms",
        low=0,
        high=60_000,
        reason="minimum time between two messages that carry only a new commit index to a follower; "
        "under load the commit index travels with the entries",
    )
    append_bytes_max: int = setting(
        1 << 20,
        unit="bytes",
        low=1,
        high=1 << 30,
        reason="bytes of entries in one append: large enough to make a sync worth its cost, small enough "
        "that a lost append is cheap to repeat",
    )
    append_entries_max: int = setting(
        4096,
        unit="count",
        low=1,
        high=1 << 20,
        reason="entries in one append: bounds the time that one append takes of a follower's loop",
    )
    in_flight_messages_max: int = setting(
        64,
        unit="count",
        low=1,
        high=1 << 16,
        reason="unanswered appends per peer: enough to cover the delay of the link; bounds what a slow peer costs",
    )
    in_flight_bytes_max: int = setting(
        16 << 20,
        unit="bytes",
        low=1,
        high=1 << 34,
        reason="unanswered bytes per peer: bounds the memory that a slow peer costs",
    )
    proposals_pending_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=1,
        high=1 << 36,
        reason="bytes that are proposed and not yet committed; further proposals are refused as OVERLOADED",
    )
    reads_pending_max: int = setting(
        65_536,
        unit="count",
        low=1,
        high=1 << 24,
        reason="reads that wait for a majority to confirm the leader; further reads are refused as OVERLOADED",
    )
    entry_bytes_estimate: int = setting(
        1024,
        unit="bytes",
        low=1,
        high=1 << 26,
        reason="assumed size of an entry that was in the log before this start; the driver "
        "shortens a range that is larger than estimated",
    )
