"""Findings: what is wrong with a cluster, and what is only worth knowing, from what its nodes said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.check.cluster_state import ClusterState
from stelae.check.findings import findings, stray_replicas
from stelae.check.health import NodeFacts, table_health, tablet_health
from stelae.check.setting_differences import RULES, Severity, differences, versions
from stelae.partition.schema import Partition, PartitionSchema
from stelae.protocol.catalog_names import SYSTEM_TABLET, ServerMode, TableId, TableState, TabletState
from stelae.protocol.master_messages import ServerLine, TableDescription, TableSummary, TabletPlace
from stelae.protocol.node_messages import FailedReplica, NodeInfo, PeerContact, QuarantineInfo, ReplicaFacts
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.server.master.settings import MasterSettings
from stelae.server.tserver.settings import TabletServerSettings
from stelae.spi.ids import ClusterId, IncarnationId, NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig

M = NodeId("f" * 32)
A, B, C = SERVERS = [NodeId(letter * 32) for letter in "abc"]
T, TABLE = TabletId("t"), TableId("1" * 32)
MEMBERS = tuple((node, f"{node[0]}:1") for node in SERVERS)
CONFIG = OpId(1, 1)


def info(node: NodeId, role: str = "tserver", **changed: Any) -> NodeInfo:
    facts = () if role == "master" else (replica(node),)
    given: dict[str, Any] = {
        "role": role,
        "version": "1.0",
        "masters": ((M, "f:1"),),
        "peers": (),
        "replicas": facts,
        "failed": (),
        "settings": {"clock.clock_error_ms_max": 500},
        "free_bytes": 60,
    }
    return NodeInfo(
        node_id=node,
        incarnation=IncarnationId("1"),
        cluster_id=ClusterId("c"),
        address=f"{node[0]}:1",
        location="",
        uptime_ms=0,
        wall_us=0,
        **{**given, **changed},
    )


def replica(node: NodeId, **changed: Any) -> ReplicaFacts:
    given: dict[str, Any] = {"tablet_id": T, "table_id": TABLE, "members": tuple(SERVERS), "config": CONFIG}
    return ReplicaFacts(size_bytes=10, schema_version=1, **{**given, **changed})


def report(node: NodeId, tablet: TabletId = T, leader: NodeId = A) -> ReplicaReport:
    role = "LEADER" if node == leader else "FOLLOWER"
    last = OpId(3, 9)
    return ReplicaReport(
        tablet_id=tablet, node_id=node, state="RUNNING", role=role, term=3, leader=leader, last=last,
        durable_index=9, commit=9, applied=9,
    )  # fmt: skip


def said(node: NodeId, role: str = "tserver", **changed: Any) -> NodeFacts:
    """A node that answers; ``changed`` are fields of what it says, or of its ``NodeInfo``."""
    fields = {name: changed.pop(name) for name in list(changed) if name in NodeFacts.__struct_fields__}
    own = report(node, SYSTEM_TABLET, M) if role == "master" else report(node)
    facts = NodeFacts(
        node_id=node,
        address=f"{node[0]}:1",
        reports={own.tablet_id: own},
        info=info(node, role, **changed),
        quarantine=kept(),
    )
    return msgspec.structs.replace(facts, **fields)


def cluster(*nodes: NodeFacts, table_state: TableState = TableState.RUNNING, **changed: Any) -> ClusterState:
    """One master and three servers with one tablet; ``nodes`` stand in for those of the same id."""
    present = {M: said(M, "master"), **{node: said(node) for node in SERVERS}} | {one.node_id: one for one in nodes}
    lines = tuple(
        ServerLine(node_id=node, address=f"{node[0]}:1", location="", mode=ServerMode.NORMAL, silent_ms=100)
        for node in SERVERS
    )
    place = TabletPlace(tablet_id=T, state=TabletState.RUNNING, partition=Partition(), members=MEMBERS, leader=A)
    table = TableDescription(
        table_id=TABLE, name="people", state=table_state, schema=b"", replication_factor=3, tablets=(place,),
        partition_schema=PartitionSchema().to_bytes(),
    )  # fmt: skip
    summary = TableSummary(table_id=TABLE, name="people", state=table_state)
    whole = ClusterState(masters=((M, "f:1"),), nodes=present, servers=lines, summaries=(summary,), tables=(table,))
    return msgspec.structs.replace(whole, **changed)


def judged(state: ClusterState) -> tuple[list[str], list[str]]:
    """Errors and warnings."""
    tables = [table_health(table, state.nodes) for table in state.tables]
    found = findings(state, tablet_health(SYSTEM_TABLET, state.masters, state.nodes), tables)
    errors, warnings = Severity.ERROR, Severity.WARNING
    return [f.text for f in found if f.severity is errors], [f.text for f in found if f.severity is warnings]


def the_error(state: ClusterState) -> str:
    errors, warnings = judged(state)
    assert len(errors) == 1 and not warnings, (errors, warnings)
    return errors[0]


def the_warning(state: ClusterState) -> str:
    errors, warnings = judged(state)
    assert len(warnings) == 1 and not errors, (errors, warnings)
    return warnings[0]


def test_a_whole_cluster_has_nothing_to_say() -> None:
    assert judged(cluster()) == ([], [])


def test_a_server_that_does_not_answer_is_told_with_the_tablet_that_lacks_it() -> None:
    errors, _ = judged(cluster(NodeFacts(node_id=B, address="b:1", problem="does not answer")))
    assert [e.partition(": ")[0] for e in errors] == ["tablet server b:1", "tablet t of people"]


def test_a_retired_server_without_replicas_may_be_gone() -> None:
    old = ServerLine(
        node_id=M, address="m:1", location="", mode=ServerMode.RETIRING, silent_ms=90_000
    )  # Its address is a master's now, which answers.
    state = cluster(servers=(*cluster().servers, old))
    assert "is retired, has no replicas, and is gone" in the_warning(state)
    errors, _ = judged(msgspec.structs.replace(state, tables=()))  # Of these it might still have replicas.
    assert [e.partition(": ")[0] for e in errors] == ["tablet server m:1"]
    here = msgspec.structs.replace(old, node_id=B)  # A member.
    errors, _ = judged(cluster(servers=(cluster().servers[0], here, cluster().servers[2])))
    assert [e.partition(": ")[0] for e in errors] == ["tablet server m:1"]


def test_causes_are_told_before_what_follows_from_them() -> None:
    """A clock an hour ahead was told after fifteen tablets that suffered from it."""
    ahead = said(C, clock_ahead_ms=3_600_000, peers=(PeerContact(node_id=A, address="a:1", connected=False),))
    silent = msgspec.structs.replace(cluster().servers[2], silent_ms=9_000)
    down = NodeFacts(node_id=B, address="b:1", problem="does not answer")
    errors, _ = judged(cluster(ahead, down, servers=(*cluster().servers[:2], silent)))
    assert [e.partition(": ")[0] for e in errors] == [
        "the clock of c:1 is 3600000 ms ahead of the others'; 500 ms are allowed",
        "tablet server b:1",
        "tablet server c:1",
        "c:1 has no connection to a:1, though both answer",
        "tablet t of people",
    ]


def test_tablets_that_lack_the_same_server_are_told_as_one_problem() -> None:
    (table,) = cluster().tables
    two = tuple(msgspec.structs.replace(table.tablets[0], tablet_id=TabletId(name)) for name in ("t", "u"))
    down = NodeFacts(
        node_id=B, address="b:1", problem="does not answer: no answer from b:1: no answer to hello within 500 ms"
    )
    others = [said(node, reports={t: report(node, t) for t in ("t", "u")}) for node in (A, C)]
    errors, _ = judged(cluster(down, *others, tables=(msgspec.structs.replace(table, tablets=two),)))
    assert errors == [
        "tablet server b:1: does not answer: no answer from b:1: no answer to hello within 500 ms",
        "2 tablets of people: UNDER_REPLICATED: 2 of 3 replicas run; not: b:1 (does not answer)",
    ]


def test_a_server_that_masters_do_not_hear_is_told_though_it_answers() -> None:
    lines = cluster().servers
    silent = msgspec.structs.replace(lines[0], silent_ms=9_000)
    assert "not heard of it for 9.0 s" in the_error(cluster(servers=(silent, *lines[1:])))
    never = msgspec.structs.replace(lines[0], silent_ms=None)
    assert "since this master leads" in the_error(cluster(servers=(never, *lines[1:])))


def test_masters_that_cannot_say_what_there_is_are_the_problem_and_their_servers_are_not_called_missing() -> None:
    assert the_error(cluster(problem="no master leads", servers=(), summaries=(), tables=())) == "no master leads"


def test_a_follower_that_its_leader_does_not_hear_makes_the_tablet_under_replicated() -> None:
    assert "has not heard for too long: b:1" in the_error(cluster(said(A, replicas=(replica(A, unhealthy=(B,)),))))


def test_a_tablet_with_fewer_voters_than_the_table_has_replicas_is_under_replicated() -> None:
    """One of three replicas was removed, and no server was free for another. Both members ran, so all was well."""
    state = cluster(*(said(node, replicas=(replica(node, members=(A, B)),)) for node in (A, B)), said(C, replicas=()))
    (table,) = state.tables
    two = (msgspec.structs.replace(table.tablets[0], members=MEMBERS[:2]),)
    found = the_error(msgspec.structs.replace(state, tables=(msgspec.structs.replace(table, tablets=two),)))
    assert found.startswith("tablet t of people: UNDER_REPLICATED: 2 of 3 voters exist; the masters add the others")
    learning = [said(node, replicas=(replica(node, learners=(C,)),)) for node in SERVERS]
    assert "UNDER_REPLICATED: 2 of 3 voters exist" in the_error(cluster(*learning))


def test_replicas_of_other_members_than_the_masters_have_do_not_agree() -> None:
    strange = replica(C, members=(A, B, NodeId("d" * 32)))
    assert "CONSENSUS_MISMATCH: other members" in the_error(cluster(said(C, replicas=(strange,))))


def test_a_replica_that_failed_is_told_with_its_reason_and_that_it_never_votes_again() -> None:
    failed = FailedReplica(tablet_id=T, reason="the log is damaged", op_id_lost=True)
    found = the_error(cluster(said(B, reports={}, replicas=(), failed=(failed,))))
    assert "the log is damaged; it will never vote again" in found


def test_nodes_that_answer_and_do_not_reach_each_other_are_told() -> None:
    lost = PeerContact(node_id=B, address="b:1", connected=False)
    assert the_error(cluster(said(A, peers=(lost,)))) == "a:1 has no connection to b:1, though both answer"
    down = NodeFacts(node_id=B, address="b:1", problem="does not answer")
    errors, _ = judged(cluster(said(A, peers=(lost,)), down))
    assert not [e for e in errors if "no connection" in e], "that it is down has been told"


@pytest.mark.parametrize(("ahead_ms", "way"), [(3_600_000, "ahead of"), (-3_600_000, "behind")])
def test_a_clock_that_is_an_hour_off_is_told(ahead_ms: int, way: str) -> None:
    found = the_error(cluster(said(B, clock_ahead_ms=ahead_ms)))
    assert f"the clock of b:1 is 3600000 ms {way} the others'" in found


def test_clocks_within_what_nodes_accept_and_within_what_can_be_measured_are_well() -> None:
    assert judged(cluster(said(B, clock_ahead_ms=500))) == ([], [])
    assert judged(cluster(said(B, clock_ahead_ms=900, clock_error_ms=500))) == ([], [])
    away = [said(node, clock_ahead_ms=90_000) for node in SERVERS]
    assert judged(cluster(said(M, "master", clock_ahead_ms=90_000), *away)) == ([], []), "the asker's own is wrong"


def test_a_clock_is_not_off_because_the_others_answer_slowly() -> None:
    """Three servers took 2.8 s to answer, and told the time at the end of it. The master was called wrong."""
    slow = [said(node, clock_ahead_ms=1_400, clock_error_ms=2_801) for node in SERVERS]
    assert judged(cluster(*slow)) == ([], []), "the clock of the master, which answered at once, is well"
    assert "the clock of f:1 is" in the_error(cluster(said(M, "master", clock_ahead_ms=-3_000), *slow))


def test_releases_that_differ_are_a_warning_and_so_is_a_node_that_does_not_say() -> None:
    assert the_warning(cluster(said(B, version="1.1"))) == "nodes run 2 releases: 1.0 on a:1, c:1, f:1; 1.1 on b:1"
    assert "does not say what it runs" in the_warning(cluster(said(B, info=None)))


def test_a_master_list_that_differs_is_an_error_and_names_who_has_which() -> None:
    other = ((M, "f:1"), (NodeId("e" * 32), "e:1"))
    found = the_error(cluster(said(B, masters=other)))
    assert "tablet servers differ in masters" in found and "e:1, f:1 on b:1" in found


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("engines.consensus", "other", Severity.ERROR),
        ("wire.frame_bytes_max", 70, Severity.ERROR),
        ("consensus.raft.election_timeout_ms", 70, Severity.WARNING),
        ("maintenance.history_retention_s", 70, Severity.WARNING),
    ],
)
def test_settings_that_ought_to_be_alike_are_told_by_how_bad_it_is(name: str, value: Any, severity: Severity) -> None:
    (found,) = differences([info(A, settings={name: 1}), info(B, settings={name: 1}), info(C, settings={name: value})])
    assert (found.setting, found.severity) == (name, severity)
    assert found.values == (("1", ("a:1", "b:1")), (str(value), ("c:1",)))


def test_settings_that_may_differ_do_and_masters_are_not_compared_with_servers() -> None:
    free = ("engines.store", "engines.wal", "maintenance.flush_bytes", "tserver.location", "workers.apply_threads")
    for name in free:
        assert differences([info(A, settings={name: 1}), info(B, settings={name: 2})]) == ()
    mixed = [info(M, "master", settings={"consensus.raft.x": 1}), info(A, settings={"consensus.raft.x": 2})]
    assert differences(mixed) == ()
    masters = [info(M, "master", settings={"master.x": 1}), info(A, "master", settings={"master.x": 2})]
    assert [one.severity for one in differences(masters)] == [Severity.WARNING]


def test_every_rule_names_a_setting_that_there_is() -> None:
    from stelae.host.hybrid_clock import ClockSettings
    from stelae.host.settings import MaintenanceSettings
    from stelae.wire.settings import WireSettings

    sections = {"wire": WireSettings, "clock": ClockSettings, "maintenance": MaintenanceSettings}
    sections |= {"tserver": TabletServerSettings, "master": MasterSettings}
    for rule in RULES:
        section, _, name = rule.name.partition(".")
        if section in sections and name != "*":
            assert name in sections[section].__dataclass_fields__, rule.name


def test_versions_are_grouped() -> None:
    assert versions([info(A), info(B, version="2"), info(C)]) == {"1.0": ("a:1", "c:1"), "2": ("b:1",)}


# -- disks and strays ----------------------------------------------------------------------------


def kept(**changed: int | None) -> QuarantineInfo:
    given: dict[str, Any] = {"count": 1, "size_bytes": 10, "unreadable": 0, "oldest_s": 10, "bytes_max": 100}
    return QuarantineInfo(**{**given, "age_s_max": 1000, "free_bytes_min": 50, "free_bytes": 60, **changed})


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"size_bytes": 101}, "101 bytes are set aside, above 100"),
        ({"oldest_s": 2000}, "is 2000 s old, above 1000"),
        ({"unreadable": 2}, "2 directories do not say"),
    ],
)
def test_a_quarantine_that_is_not_kept_within_its_limits_is_a_warning(changed: dict[str, int], fact: str) -> None:
    assert fact in the_warning(cluster(said(A, quarantine=kept(**changed))))
    assert judged(cluster(said(A, quarantine=kept(oldest_s=None)))) == ([], [])


def test_a_disk_that_is_nearly_full_is_an_error() -> None:
    assert "has 49 bytes of disk left" in the_error(cluster(said(A, quarantine=kept(free_bytes=49))))


def test_a_node_that_cannot_read_its_disk_is_told() -> None:
    """It refuses the question about its quarantine, and nothing was said of its disk: the cluster was healthy."""
    failing = said(A, quarantine=None, free_bytes=0)
    errors, warnings = judged(cluster(failing))
    assert errors == ["the disk of a:1 fails, or has no space left; the log of the node says which"]
    assert [text.partition(":1: ")[2].partition(": ")[0] for text in warnings] == ["the node has not read it"]
    settings = {"clock.clock_error_ms_max": 500, "quarantine.free_bytes_min": 50}
    errors, _ = judged(cluster(said(A, quarantine=None, free_bytes=49, settings=settings)))
    assert [text.partition(",")[0] for text in errors] == ["a:1 has 49 bytes of disk left"]
    assert "quarantine of a:1: the node has not read it" in the_warning(cluster(said(A, quarantine=None)))


def test_a_replica_that_no_table_has_is_a_warning_unless_its_table_can_be_recalled() -> None:
    stray = replica(A, tablet_id=TabletId("x"), table_id="9" * 32)
    state = cluster(said(A, replicas=(replica(A), stray)))
    assert "tablet x, which no table has" in the_warning(state)
    gone = TableSummary(table_id=TableId("9" * 32), name="old", state=TableState.SOFT_DELETED)
    assert judged(msgspec.structs.replace(state, summaries=(*state.summaries, gone))) == ([], [])


def test_a_server_in_maintenance_is_a_warning() -> None:
    lines = cluster().servers
    away = msgspec.structs.replace(lines[0], mode=ServerMode.MAINTENANCE)
    assert "MAINTENANCE" in the_warning(cluster(servers=(away, *lines[1:])))


def test_a_replica_of_a_server_that_is_no_member_is_named() -> None:
    state = cluster()
    (table,) = state.tables
    two = (msgspec.structs.replace(table.tablets[0], members=MEMBERS[:2]),)
    (fact,) = stray_replicas(msgspec.structs.replace(state, tables=(msgspec.structs.replace(table, tablets=two),)))
    assert fact == "c:1 has a replica of tablet t and is no member of it"
    assert [*stray_replicas(state)] == []


def test_a_replica_that_does_not_start_on_a_server_that_is_no_member_is_named() -> None:
    """It was not: only replicas that run were looked at."""
    broken = FailedReplica(tablet_id=TabletId("t"), reason="the superblock cannot be read", op_id_lost=True)
    state = cluster(said(C, replicas=(), failed=(broken,)))
    (table,) = state.tables
    two = (msgspec.structs.replace(table.tablets[0], members=MEMBERS[:2]),)
    (fact,) = stray_replicas(msgspec.structs.replace(state, tables=(msgspec.structs.replace(table, tablets=two),)))
    assert fact.startswith("c:1 has a replica of tablet t that does not start") and "cannot be read" in fact
    assert [*stray_replicas(state)] == [], "it is a member, whose health is told elsewhere"


def test_a_move_that_is_not_complete_is_told_with_what_it_waits_for() -> None:
    """After a move whose client had died, the check said only: healthy."""
    for learners, words in (((C,), "has no vote yet; see: stelae copy list"), ((), "the masters remove the old one")):
        late = said(A, replicas=(replica(A),))
        told = said(B, replicas=(replica(B, moves=((C, A),), learners=learners, config=OpId(1, 2)),))
        _, (text,) = judged(cluster(late, told))
        assert text.startswith("tablet t of people: the replica on a:1 is being moved to c:1; ") and words in text


def test_a_replica_that_an_operator_added_is_told_if_it_is_one_more_than_wanted() -> None:
    table = cluster().tables[0]
    one = (msgspec.structs.replace(table, replication_factor=1),)
    pinned = said(A, replicas=(replica(A, pinned=(C,), config=OpId(1, 2)),))
    assert "tablet t of people has a replica besides the 1 wanted ones" in the_warning(cluster(pinned, tables=one))
    assert judged(cluster(pinned)) == ([], [])
    replacing = said(A, replicas=(replica(A, pinned=(C,), moves=((C, B),), config=OpId(1, 2)),))
    assert "being moved" in the_warning(cluster(replacing, tables=one))


def masters_config(*types: MemberType) -> TabletConfig:
    members = tuple(
        Member(node_id=NodeId(f"{n:032x}"), address=f"m{n}:1", member_type=one) for n, one in enumerate(types)
    )
    return TabletConfig(op_id=OpId(3, 4), members=members)


def test_an_even_number_of_masters_and_one_without_a_vote_are_told_with_the_next_step() -> None:
    voter, new = MemberType.VOTER, MemberType.PRE_VOTER
    assert judged(cluster(masters_config=masters_config(voter))) == ([], [])
    assert judged(cluster(masters_config=masters_config(voter, voter, voter))) == ([], [])
    even = the_warning(cluster(masters_config=masters_config(voter, voter)))
    assert even.startswith("2 masters vote, which tolerate no more failures than 1: add one (stelae master add)")
    joins = the_warning(cluster(masters_config=masters_config(voter, new)))
    assert joins.startswith("master m1:1 is a PRE_VOTER and has no vote: the leader gives it its vote")


def test_a_former_voter_without_its_replica_is_to_be_replaced_and_gets_no_vote() -> None:
    """It was said that the leader gives it its vote once it has caught up. Its new directory is never filled."""
    config = masters_config(MemberType.VOTER, MemberType.PRE_VOTER)
    former = msgspec.structs.replace(config.members[1], was_voter=True)
    config = msgspec.structs.replace(config, members=(config.members[0], former))
    node = former.node_id
    for facts, words in (
        (
            said(node, "master", reports={}),
            f"remove it (stelae master remove {node}), and add a master with a new uuid",
        ),
        (said(node, "master"), "the leader gives it its vote once it has caught up"),
    ):
        _, warnings = judged(cluster(facts, masters_config=config))
        assert [words in text for text in warnings if "has no vote" in text] == [True], warnings
    silent = NodeFacts(node_id=node, address="m1:1", problem="it is down")
    _, warnings = judged(cluster(silent, masters_config=config))
    assert [text for text in warnings if "the leader gives it its vote" in text], "it may have its old directory"


def listing(*masters: NodeId) -> tuple[tuple[NodeId, str], ...]:
    return tuple((node, f"{node[0]}:1") for node in masters)


def warned_of_lists(config: TabletConfig | None, **lists: tuple[NodeId, ...]) -> list[str]:
    nodes = [said(node, listed_masters=listing(*lists[node[0]])) for node in SERVERS if node[0] in lists]
    state = cluster(said(M, "master", listed_masters=listing(M)), *nodes, masters_config=config)
    masters = tablet_health(SYSTEM_TABLET, state.masters, state.nodes)
    found = findings(state, masters, [])
    return [one.text for one in found if "[masters]" in one.text and one.severity is Severity.WARNING]


def test_nodes_that_list_other_masters_than_there_are_are_warned_of_together() -> None:
    """Only the log of each node said so. With all the masters of its list gone, a node without a config finds none."""
    config = TabletConfig(op_id=OpId(1, 9), members=(Member(node_id=M, address="f:1"),))
    (told,) = warned_of_lists(config, a=(M, A), b=(M,), c=(M, A))
    assert told.startswith(
        "[masters] of a:1, c:1 lists f:1 (ffffffff), a:1 (aaaaaaaa); the masters are f:1 (ffffffff):"
    )
    assert "node.toml" in told
    assert len(warned_of_lists(config, a=(A,), b=(B,), c=(M,))) == 2


def test_lists_are_compared_by_uuid_and_only_if_both_sides_are_known() -> None:
    config = TabletConfig(op_id=OpId(1, 9), members=(Member(node_id=M, address="another-name:1"),))
    assert warned_of_lists(config, a=(M,), b=(), c=(M,)) == []
    assert warned_of_lists(None, a=(A,)) == []
