"""Limits and periods of a master."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """Section ``[master]``."""

    tables_max: int = setting(10_000, unit="count", low=1, high=1_000_000, reason="bounds the catalog in memory")
    tablets_per_table_max: int = setting(
        16_384, unit="count", low=1, high=65_536, reason="one batch creates them all, and clients hold them all"
    )
    create_replicas_per_server_max: int = setting(
        1_000,
        unit="count",
        low=1,
        high=65_536,
        reason="a new table asks them of each server at once: files, threads and elections for every one",
    )
    replication_factor_max: int = setting(7, unit="count", low=1, high=15, reason="each write waits for a majority")
    batch_bytes_max: int = setting(
        30 << 20, unit="bytes", low=64 << 10, high=31 << 20, reason="one operation of 32 MiB holds a batch with room"
    )
    batch_records_max: int = setting(
        4096, unit="count", low=1, high=65_536, reason="background work shares the log with people's changes"
    )
    inflight_max: int = setting(64, unit="count", low=1, high=4096, reason="batches that wait for a majority: bounded")
    reads_max: int = setting(4096, unit="count", low=1, high=1 << 20, reason="questions that wait: bounded")
    server_silent_ms: int = setting(
        5_000, unit="ms", low=10, high=600_000, reason="ten reports missed: nothing new is put on the server"
    )
    server_dead_ms: int = setting(
        60_000, unit="ms", low=20, high=86_400_000, reason="its replicas are made anew elsewhere: dear, so not at once"
    )
    create_timeout_ms: int = setting(
        30_000, unit="ms", low=10, high=3_600_000, reason="then a tablet without a leader is replaced by another"
    )
    scan_interval_ms: int = setting(
        1_000, unit="ms", low=1, high=600_000, reason="the whole catalog is looked over for what got lost"
    )
    scan_tablets_max: int = setting(
        2_000, unit="count", low=1, high=1_000_000, reason="tablets of one step: more would hold the loop for too long"
    )
    policy_interval_ms: int = setting(
        2_000, unit="ms", low=1, high=3_600_000, reason="healing takes minutes, a plan milliseconds"
    )
    action_retry_ms: int = setting(
        2_000, unit="ms", low=1, high=600_000, reason="an action whose effect is not reported is sent again"
    )
    actions_per_step_max: int = setting(
        1024, unit="count", low=1, high=65_536, reason="a wave of actions leaves room for heartbeats"
    )
    answer_keep_ms: int = setting(
        600_000, unit="ms", low=1_000, high=86_400_000, reason="a change is recognised again for so long"
    )
    client_keep_ms: int = setting(
        3_600_000, unit="ms", low=2_000, high=604_800_000, reason="a client's floor is kept beyond its answers"
    )
    soft_delete_ms_max: int = setting(
        30 * 86_400_000, unit="ms", low=0, high=366 * 86_400_000, reason="bounds how long a deletion keeps space"
    )
