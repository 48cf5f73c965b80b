"""A trace as text: one line for each event, in the column of its node."""

from __future__ import annotations

import pytest

from stelae.sim.fault_plan import Fault, FaultKind
from stelae.sim.node_change import NodeChange
from stelae.sim.trace.message_text import message_text
from stelae.sim.trace.record_text import CHANGES, fault_text, links_text, record_text
from stelae.sim.trace.records import LinksChanged, MessageSent, ReplicaConfigChanged, RunTrace, TraceKind
from stelae.sim.trace.selection import RECORDS_MAX, TraceFilter, select
from stelae.sim.trace.text import text_lines
from stelae.spi.ids import OpId
from tests.unit.sim.trace_samples import changed, commits, config, role, trace_of, vote


def lines(trace: RunTrace, **wanted: object) -> list[str]:
    """The lines of the events, without the heading, and the last line."""
    _, _, _, _, *events, empty, last = text_lines(select(trace, TraceFilter(**wanted)))  # type: ignore[arg-type]
    assert empty == ""
    return [*events, last]


def test_a_message_has_a_line_where_it_is_sent_and_where_it_arrives() -> None:
    *events, _healed, _last = lines(trace_of(role(1, "CANDIDATE", 4), vote(1_000_000, 1_500_000)))
    assert [line.split() for line in events] == [
        ["0.000001", "?", "CANDIDATE", "term", "4", ".", "."],
        ["1.000000", "?", "->", "1", "vote?", "term", "4", "last", "3.15", ".", "."],
        ["1.500000", "?", ".", "<-", "0", "vote?", "term", "4", "last", "3.15", "."],
    ]
    starts = [events[0].index("CANDIDATE"), events[1].index("->"), events[2].index("<-")]
    assert starts[0] == starts[1] < starts[2]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (vote(1, lost=True), "LOST"),
        (vote(1), "still in flight"),
        (vote(1, 2, 3), "DUPLICATE"),
        (vote(1, 2, sender=3), "client 0"),
    ],
)
def test_what_became_of_a_message_is_told(message: MessageSent, told: str) -> None:
    assert sum(told in line for line in lines(trace_of(message))) == 1


def test_marks_show_the_state_of_other_nodes_also_where_roles_are_not_shown() -> None:
    trace = trace_of(role(1, "LEADER", 4), role(1, "FOLLOWER", 4, node=2), changed(2, NodeChange.PAUSED), *commits(2))
    [first, second, _last] = lines(trace, kinds=frozenset({TraceKind.COMMIT}))
    assert first.split()[1:] == ["#", ".", "commit", "1", "|"]
    assert second.split()[1:] == ["=", ".", "commit", "2", "|"]


def test_a_violation_and_the_faults_have_lines_across_all_columns() -> None:
    plan = (Fault(number=2, kind=FaultKind.PAUSE, at_us=5, victim=1, duration_us=1_000, amount=0),)
    fault, healed, violation, _last = lines(trace_of(plan=plan, invariant="log_matching"))
    assert fault.endswith("--- fault 2: pause of node 1 for 0.001 s")
    assert healed.endswith("--- all faults have ended")
    assert violation.endswith("*** VIOLATION of log_matching: why")


def test_replication_is_left_out_of_a_long_trace_and_the_last_line_says_so() -> None:
    few, many = trace_of(*commits(RECORDS_MAX)), trace_of(*commits(RECORDS_MAX + 1))
    assert lines(few)[-1] == f"{RECORDS_MAX} records shown, none left out"
    assert f"0 records shown; left out: {RECORDS_MAX + 1} commit" in lines(many)[-1]
    assert len(lines(many, kinds=frozenset({TraceKind.COMMIT}))) == RECORDS_MAX + 2


def test_a_message_that_arrives_within_the_chosen_time_is_shown_there() -> None:
    trace = trace_of(vote(10, 500_000), vote(20, 600))
    assert [line.split()[0] for line in lines(trace, from_us=1_000, to_us=1_000_000)[:-1]] == ["0.500000"]


def test_only_records_of_the_chosen_node_are_shown() -> None:
    trace = trace_of(role(1, "FOLLOWER", 1), role(1, "FOLLOWER", 1, node=1), vote(5, 6, sender=2, receiver=1))
    shown = lines(trace, nodes=frozenset({1}), kinds=frozenset({TraceKind.ROLE, TraceKind.VOTE}))
    assert shown[-1].startswith("2 records")


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("raft.vote", {"term": 4, "last": [3, 15], "pre": True}, "pre-vote? term 4 last 3.15"),
        ("raft.vote", {"term": 4, "last": [3, 15], "transfer": True}, "transfer vote? term 4 last 3.15"),
        ("raft.vote_reply", {"term": 3, "campaign_term": 4, "pre": True}, "pre-vote for term 4 granted"),
        (
            "raft.vote_reply",
            {"term": 5, "campaign_term": 4, "refusal": "VOTED"},
            "vote for term 4 refused: VOTED, in term 5",
        ),
        ("raft.append", {"term": 4, "prev": [3, 15], "commit": 14}, "append 4.16..4.18 after 3.15 commit 14 term 4"),
        ("raft.append_reply", {"term": 4, "match": 18}, "match 18 commit 0 term 4"),
        (
            "raft.append_reply",
            {"term": 4, "refusal": "MISMATCH", "rejected": 17, "hint": [3, 15]},
            "append refused: MISMATCH at 17, logs may agree at 3.15, in term 4",
        ),
        ("raft.timeout_now", {"term": 4}, "timeout_now term 4"),
        ("other.thing", {"flag": True, "at": [1, 2]}, "thing flag at 1.2"),
    ],
)
def test_messages_are_described_in_the_words_of_raft(name: str, fields: dict[str, object], text: str) -> None:
    kind = TraceKind.APPEND if name == "raft.append" else TraceKind.MESSAGE
    entries = (OpId(4, 16), OpId(4, 18)) if kind is TraceKind.APPEND else (None, None)
    message = MessageSent(
        at_us=1, sender=0, receiver=1, name=name, kind=kind, fields=fields, first=entries[0], last=entries[1]
    )
    assert message_text(message) == text


@pytest.mark.parametrize(
    ("links", "told"),
    [
        (((0, 1), (1, 0), (1, 2), (2, 1)), (1, "all links cut")),
        (((0, 1), (2, 1)), (1, "incoming links cut")),
        (((1, 0), (1, 2)), (1, "outgoing links cut")),
        (((2, 0),), (2, "links 2>0 cut")),
    ],
)
def test_cut_links_are_described_by_the_node_that_they_cut_off(
    links: tuple[tuple[int, int], ...], told: tuple[int, str]
) -> None:
    assert links_text(LinksChanged(at_us=1, links=links, cut=True), 3) == told


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (config(1, 4, "VOTER", "VOTER", "PRE_VOTER"), "config 1.4: 0, 1, 2 PRE_VOTER"),
        (config(1, 4, "VOTER", "", "VOTER", committed=False), "config 1.4: 0, 2; not committed"),
        (config(1, 0), "config 1.0: no members"),
    ],
)
def test_a_config_names_its_members_and_the_types_that_do_not_vote(record: ReplicaConfigChanged, text: str) -> None:
    assert record_text(record, 3) == text


def test_every_change_of_a_node_has_a_description() -> None:
    assert set(CHANGES) == set(NodeChange)


def test_a_fault_of_all_links_names_no_victim() -> None:
    fault = Fault(number=1, kind=FaultKind.LOSSY, at_us=5, victim=1, duration_us=2_000_000, amount=0)
    assert fault_text(fault) == "fault 1: lossy of all nodes for 2.000 s"
