"""What is worked out of a running node when somebody asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stelae.host.replica_state import ReplicaState
from stelae.spi.consensus import Role
from stelae.spi.ids import OpId
from stelae.telemetry.node_samples import NodeSamples


def replica(
    tablet: str,
    *,
    last: int = 10,
    commit: int = 10,
    applied: int = 10,
    matches: tuple[int, ...] = (),
    leads: bool = True,
    failure: str = "",
) -> Any:
    peers = tuple(SimpleNamespace(match_index=match) for match in matches)
    status = SimpleNamespace(
        role=Role.LEADER if leads else Role.FOLLOWER,
        term=3,
        last=OpId(3, last),
        commit=commit,
        peers=peers if leads else (),
        serving=True,
    )
    applier = SimpleNamespace(applied=OpId(3, applied), store=SimpleNamespace(memory_bytes=lambda: 100))
    state = ReplicaState.FAILED if failure else ReplicaState.RUNNING
    return SimpleNamespace(tablet_id=tablet, status=status, applier=applier, state=state, failure=failure)


def samples(*replicas: Any, failed: dict[str, str] | None = None, tablets_max: int = 10) -> dict[Any, float]:
    node: Any = SimpleNamespace(
        replicas={one.tablet_id: one for one in replicas},
        failed_tablets=failed or {},
        writer=SimpleNamespace(queued_bytes=7),
        config=SimpleNamespace(log=SimpleNamespace(queue_bytes_max=70)),
        free_bytes=lambda: 7000,
        layout=SimpleNamespace(root="/n"),
    )
    pools: Any = [SimpleNamespace(name="apply", waiting=2)]
    view = NodeSamples(node, pools, ("n1", "c", "tserver", "1.0"), tablets_max)
    return {(name, *labels): value for name, labels, value in view.samples()}


def test_replication_lag_is_what_the_slowest_peer_of_a_led_tablet_lacks() -> None:
    found = samples(replica("a", last=10, matches=(10, 4)), replica("b", last=10, matches=(9, 10)))
    assert found["tablet_replication_lag_entries", "a"] == 6
    assert found["tablet_replication_lag_entries", "b"] == 1
    assert found[("replication_lag_entries",)] == 6


def test_a_follower_has_no_replication_lag_but_may_lag_in_applying() -> None:
    found = samples(replica("a", leads=False, commit=10, applied=3))
    assert ("tablet_replication_lag_entries", "a") not in found
    assert found["tablet_apply_lag_entries", "a"] == found[("apply_lag_entries",)] == 7
    assert found[("replicas_leading",)] == 0


def test_of_many_tablets_those_furthest_behind_have_figures_of_their_own() -> None:
    found = samples(*(replica(f"t{n}", matches=(10 - n,)) for n in range(8)), tablets_max=3)
    assert [key[1] for key in found if key[0] == "tablet_term"] == ["t7", "t6", "t5"]
    assert found[("tablets_unlisted",)] == 5
    assert found[("store_memory_bytes",)] == 800, "sums are over all of them"


def test_tablets_that_did_not_come_up_count_as_failed_and_none_twice() -> None:
    found = samples(replica("a"), replica("b", failure="x"), failed={"b": "x", "c": "y"})
    states = {key[1]: value for key, value in found.items() if key[0] == "replicas"}
    assert states["RUNNING"] == 1 and states["FAILED"] == 2 and set(states) == {state.value for state in ReplicaState}


def test_a_node_without_replicas_has_figures_all_the_same() -> None:
    found = samples()
    assert found[("term_max",)] == found[("replication_lag_entries",)] == 0
    assert (found[("log_queue_bytes",)], found[("log_queue_limit_bytes",)]) == (7, 70)
    assert found["pool_tasks", "apply"] == 2 and found[("disk_free_bytes",)] == 7000
    assert found["node_info", "n1", "c", "tserver", "1.0"] == 1
