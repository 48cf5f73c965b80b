"""Settings of the Raft engine, as ``node.toml`` may state them under ``[consensus.raft]``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one replica; every replica of a tablet should run with the same timeout."""

    election_timeout_ms: int = setting(
        1000,
        unit="ms",
        low=10,
        high=600_000,
        reason="T: a follower campaigns after T to 2T of silence; shorter heals sooner, but "
        "a stalled disk or a busy machine then costs needless elections",
    )
    append_retry_ms: int = setting(
        250,
        unit="ms",
        low=1,
        high=600_000,
        reason="an append unanswered for this long is sent again, then at doubling intervals; "
        "longer than a slow sync, shorter than T",
    )
    commit_news_ms: int = setting(
        50,
        unit="ms",
        low=0,
        high=60_000,
        reason="least time between two messages that bring a follower nothing but a new commit "
        "index: under load it travels with entries instead",
    )
    append_bytes_max: int = setting(
        1 << 20,
        unit="bytes",
        low=1,
        high=1 << 30,
        reason="entries in one append: enough to make one sync worth it, small enough that a "
        "lost one is cheap to repeat",
    )
    append_entries_max: int = setting(
        4096,
        unit="count",
        low=1,
        high=1 << 20,
        reason="entries in one append: bounds the time that a follower's loop is held",
    )
    in_flight_messages_max: int = setting(
        64,
        unit="count",
        low=1,
        high=1 << 16,
        reason="unanswered appends per peer: covers the delay of the link, bounds a slow peer",
    )
    in_flight_bytes_max: int = setting(
        16 << 20,
        unit="bytes",
        low=1,
        high=1 << 34,
        reason="unanswered bytes per peer: bounds the memory that a slow peer pins",
    )
    proposals_pending_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=1,
        high=1 << 36,
        reason="proposed and not yet committed; beyond it proposals are refused as OVERLOADED",
    )
    reads_pending_max: int = setting(
        65_536,
        unit="count",
        low=1,
        high=1 << 24,
        reason="reads that wait for a majority to confirm the leader; beyond it OVERLOADED",
    )
    entry_bytes_estimate: int = setting(
        1024,
        unit="bytes",
        low=1,
        high=1 << 26,
        reason="assumed size of an entry that was in the log before this start; the driver "
        "shortens a range that turns out larger",
    )
