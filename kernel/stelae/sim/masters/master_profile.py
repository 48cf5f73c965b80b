"""The parameters of one run of the masters, drawn from its seed, and the engines of their nodes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from stelae.host.settings import ChosenEngine, MaintenanceSettings, NodeConfig, NodeSettings
from stelae.lifecycle.copy_settings import StageSettings
from stelae.server.master.role import as_master
from stelae.sim.draw import between, chance, pick, skewed, stream
from stelae.sim.engines import SimEngines
from stelae.sim.masters import policy
from stelae.sim.masters.world import CLUSTER, SETTINGS
from stelae.sim.process import DurationRange
from stelae.spi.members import Member
from stelae.spi.policy import Action, MasterPolicy, PolicySnapshot
from stelae.spi.store import TabletStore
from stelae.wire.settings import WireSettings

FAR_BYTES = 1 << 30
"""More bytes than any run writes."""

FAR_MS = 3_600_000
"""Longer than any run, in milliseconds."""

SEGMENT_BYTES = 32_768
COPYING_FLUSH_BYTES = 2_048
COPYING_SEGMENT_BYTES = 4_096
LAGGING_BYTES_MAX = 1_024
"""In runs with copies the log of a leader soon ends above what a master that was away has."""

PLACEMENT = 0.3
"""The share of the runs whose masters run the installed policy."""

CALL_MS_MAX = 4_000
"""The longest deadline of a call of a copy. The network loses messages, and a run has a minute to come to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterProfile:
    """Parameters that stay the same for a whole run. Times are in microseconds.

    Attributes:
        election_timeout_ms: election timeout of the consensus engine.
        sync_us, metadata_us: shortest and longest group commit and metadata save.
        apply_us: shortest and longest pause before a group of committed entries is applied off the loop.
        apply_inline: true if stores that can apply on the event loop do so.
        scan_us: shortest and longest duration of a scan of the catalog and of a plan of the policy.
        scanned_us: shortest and longest time from there to the event loop.
        late_timer_us: longest delay of timers while a master is busy.
        store: name of the store engine of all masters.
        flush_bytes: bytes of rows in memory at which a store is flushed.
        placement: whether the masters run the installed policy. Otherwise they run one that also proposes nonsense.
        keeps_log: whether stores are never flushed, so that a new master gets the whole log.
        copies: whether logs are collected early, so that a new master, and one that was away, needs a copy.
    """

    election_timeout_ms: int
    sync_us: DurationRange
    metadata_us: DurationRange
    apply_us: DurationRange
    apply_inline: bool
    scan_us: DurationRange
    scanned_us: DurationRange
    late_timer_us: int
    store: str
    flush_bytes: int
    placement: bool
    keeps_log: bool = False
    copies: bool = False


def draw_master_profile(seed: int) -> MasterProfile:
    """Return the profile of a seed."""
    rng = stream(seed, "masters/profile")
    sync = between(rng, 50, 3_000)
    return MasterProfile(
        election_timeout_ms=pick(rng, (150, 250, 400)),
        sync_us=(sync, sync + skewed(rng, 1_000, 60_000)),
        metadata_us=(sync, sync + skewed(rng, 1_000, 60_000)),
        apply_us=(10, 10 + skewed(rng, 10, 200_000)),
        apply_inline=chance(rng, 0.5),
        scan_us=(1_000, between(rng, 5_000, 60_000)),
        scanned_us=(5, between(rng, 1_000, 60_000)),
        late_timer_us=between(rng, 200_000, 2_000_000),
        store=pick(rng, ("memory", "columnar")),
        flush_bytes=pick(rng, (4_096, 65_536)),
        placement=chance(rng, PLACEMENT),
    )


def keeping_log(profile: MasterProfile) -> MasterProfile:
    """Return the profile for a run in which masters change, and new ones get the catalog from the log."""
    return replace(profile, flush_bytes=FAR_BYTES, keeps_log=True)


def copying(profile: MasterProfile) -> MasterProfile:
    """Return the profile for a run in which masters change, and mostly get the catalog as a copy.

    Its store is durable: a log that must bring back what a store in memory has lost is never collected."""
    return replace(profile, store="columnar", flush_bytes=COPYING_FLUSH_BYTES, copies=True)


class SimPolicy(MasterPolicy):
    """The policy engine of the simulated masters."""

    name: ClassVar[str] = "simulated"

    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> tuple[Action, ...]:
        """Return the actions for a snapshot."""
        return policy.plan(snapshot, rng)


@cache
def engines() -> SimEngines:
    """Return the installed engines."""
    return SimEngines.installed()


def master_config(profile: MasterProfile, member: Member, members: Sequence[Member]) -> NodeConfig:
    """Return the settings of one master, as if read from its configuration file."""
    chosen = engines()
    raft, wal, store = chosen.consensus, chosen.wals["segmented"], chosen.stores[profile.store]
    extra: Mapping[str, Any] = {"master": SETTINGS, "stage": StageSettings(rounds_max=2, pause_ms=50)}
    return as_master(
        NodeConfig(
            node=NodeSettings(directory="/node", listen=member.address),
            cluster_id=CLUSTER,
            tablet=None,
            wal=ChosenEngine(
                name="segmented",
                engine=wal,
                config=_wal_config(wal, COPYING_SEGMENT_BYTES if profile.copies else SEGMENT_BYTES),
            ),
            consensus=ChosenEngine(
                name="raft",
                engine=raft,
                config=raft.Config(
                    election_timeout_ms=profile.election_timeout_ms, append_retry_ms=profile.election_timeout_ms // 4
                ),
            ),
            store=ChosenEngine(
                name=profile.store,
                engine=_applying(store, inline=profile.apply_inline),
                config=_store_config(store, profile.store),
            ),
            masters=tuple(members),
            policy=_policy(chosen, profile),
            copy=ChosenEngine(name=chosen.copy.name, engine=chosen.copy, config=chosen.copy_config()),
            wire=WireSettings(deadline_ms_max=CALL_MS_MAX),
            maintenance=_maintenance(profile),
            extra=extra,
        ),
        "simulation",
    )


def _policy(chosen: SimEngines, profile: MasterProfile) -> ChosenEngine:
    """Return the policy, with the thresholds that most clusters have."""
    if profile.placement:
        return ChosenEngine(name=chosen.policy.name, engine=chosen.policy, config=chosen.policy.Config())
    return ChosenEngine(name="simulated", engine=SimPolicy, config=None)


def _wal_config(wal: Any, size_bytes: int) -> Any:
    return wal.Config(segment_bytes_max=size_bytes, segment_bytes_first=size_bytes // 2, prewrite_bytes_min=size_bytes)


def _maintenance(profile: MasterProfile) -> MaintenanceSettings:
    interval_ms = 200 if profile.copies else 2_000
    return MaintenanceSettings(
        flush_bytes=FAR_BYTES if profile.keeps_log else 65_536,
        flush_interval_ms=FAR_MS if profile.keeps_log else interval_ms,
        history_retention_s=60,
        memory_bytes=FAR_BYTES,
    )


def _store_config(store: Any, name: str) -> Any:
    if name != "columnar":
        return store.Config()
    return store.Config(row_group_rows=64, block_rows_max=256, cache_bytes=4_096, compression="none")


def _applying(store: type[TabletStore], *, inline: bool) -> type[TabletStore]:
    """Return the engine. Unless ``inline``, a worker applies the entries, even if the event loop could."""
    if inline:
        return store
    return type(f"{store.__name__}OffLoop", (store,), {"applies_inline": lambda self, entries: False})
