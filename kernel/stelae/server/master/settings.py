"""Limits and periods of a master."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """Section ``[master]``."""

    tables_max: int = setting(
        10_000, unit="count", low=1, high=1_000_000, reason="tables of the cluster: bounds the memory of the catalog"
    )
    tablets_per_table_max: int = setting(
        16_384,
        unit="count",
        low=1,
        high=65_536,
        reason="one batch creates all tablets of a table, and a client keeps all of them in memory",
    )
    create_replicas_per_server_max: int = setting(
        1_000,
        unit="count",
        low=1,
        high=65_536,
        reason="replicas that a new table may create on one server: each costs files, threads and an election at once",
    )
    replication_factor_max: int = setting(
        7, unit="count", low=1, high=15, reason="each write waits for a majority of the replicas"
    )
    batch_bytes_max: int = setting(
        30 << 20,
        unit="bytes",
        low=64 << 10,
        high=31 << 20,
        reason="bytes of one batch of catalog changes; an operation may have 32 MiB",
    )
    batch_records_max: int = setting(
        4096,
        unit="count",
        low=1,
        high=65_536,
        reason="records in one batch of background work, which shares the log with changes by users",
    )
    changes_in_flight_max: int = setting(
        64,
        unit="count",
        low=1,
        high=4096,
        reason="changes that wait for a majority at the same time, and as many that wait for locks; background work of "
        "the masters leaves an eighth of it to changes by users",
    )
    reads_pending_max: int = setting(
        4096, unit="count", low=1, high=1 << 20, reason="reads of the catalog that wait at the same time"
    )
    server_silent_ms: int = setting(
        5_000,
        unit="ms",
        low=10,
        high=600_000,
        reason="a server without a heartbeat for this time, ten intervals by default, gets no new replicas",
    )
    server_dead_ms: int = setting(
        60_000,
        unit="ms",
        low=20,
        high=86_400_000,
        reason="after this time without a heartbeat, replicas are replaced elsewhere, which is expensive",
    )
    copy_stalled_ms: int = setting(
        600_000,
        unit="ms",
        low=100,
        high=86_400_000,
        reason="a replica that is being copied and has got no more bytes for this time is replaced elsewhere: the "
        "checks at the end of a large copy take minutes",
    )
    create_timeout_ms: int = setting(
        30_000,
        unit="ms",
        low=10,
        high=3_600_000,
        reason="a new tablet that has no leader after this time is replaced by another one",
    )
    scan_interval_ms: int = setting(
        1_000, unit="ms", low=1, high=600_000, reason="how often the whole catalog is checked for work that was lost"
    )
    scan_tablets_max: int = setting(
        2_000,
        unit="count",
        low=1,
        high=1_000_000,
        reason="tablets that one step of the check looks at: more would delay the event loop",
    )
    policy_interval_ms: int = setting(
        2_000,
        unit="ms",
        low=1,
        high=3_600_000,
        reason="how often the policy makes a plan: healing takes minutes, a plan milliseconds",
    )
    action_retry_ms: int = setting(
        2_000,
        unit="ms",
        low=1,
        high=600_000,
        reason="an action whose effect is not reported after this time is sent again",
    )
    actions_per_step_max: int = setting(
        1024, unit="count", low=1, high=65_536, reason="actions that one step sends: leaves time for heartbeats"
    )
    answer_keep_ms: int = setting(
        600_000, unit="ms", low=1_000, high=86_400_000, reason="how long a repeated change gets its first answer"
    )
    client_keep_ms: int = setting(
        3_600_000,
        unit="ms",
        low=2_000,
        high=604_800_000,
        reason="how long the floor of a client is kept: longer than its answers",
    )
    soft_delete_ms_max: int = setting(
        30 * 86_400_000, unit="ms", low=0, high=366 * 86_400_000, reason="bounds how long a dropped table takes space"
    )
