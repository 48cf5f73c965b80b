"""The page of a trace: what it contains, and that no text of a run becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import msgspec
import pytest

from stelae.sim.fault_plan import Fault, FaultKind
from stelae.sim.trace.page import LEAVE_OUT_FIRST, TracePage, select_for_page, trace_page
from stelae.sim.trace.page_html import page_html
from stelae.sim.trace.records import MessageSent, OperationBegun, RunTrace, TraceKind
from stelae.sim.trace.selection import TraceFilter
from tests.unit.sim.trace_samples import commits, config, role, trace_of, vote

COMMAND = "stelae sim run --seed 9"
HOSTILE = "</script><script>alert(1)</script> & @@trace@@ <b>'\""


def page_of(trace: RunTrace, **wanted: Any) -> TracePage:
    return trace_page(trace, TraceFilter(**wanted), COMMAND)


def beat(at_us: int) -> MessageSent:
    return MessageSent(at_us=at_us, sender=0, receiver=1, name="beat", kind=TraceKind.HEARTBEAT)


class Elements(HTMLParser):
    """The elements of a page, and the text inside each kind of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.found[-1] if self.found else ("", {})
        key = attributes.get("id") or tag
        self.texts[key] = self.texts.get(key, "") + data


def test_a_message_has_the_lanes_of_its_sender_and_receiver_and_its_ends() -> None:
    [sent, asked] = page_of(trace_of(vote(1_000, 1_500), vote(2_000, sender=7, lost=True))).records
    assert (sent.lane, sent.to_lane, sent.arrived_us, sent.lost_us) == (0, 1, (1_500,), ())
    assert (asked.lane, asked.to_lane, asked.lost_us) == (3, 1, (2_000,))


def test_clients_have_the_last_lane_and_a_violation_has_none() -> None:
    begun = OperationBegun(at_us=1, client="c", sequence=1, action="read", keys=())
    page = page_of(trace_of(begun, invariant="log_matching"))
    assert page.lanes == ("node 0", "node 1", "node 2", "clients")
    assert [record.lane for record in page.records] == [3, None]
    assert page.verdict == "log_matching is violated: why"


def test_the_page_has_all_kinds_and_draws_those_of_the_text_at_first() -> None:
    page = page_of(trace_of(role(1, "LEADER", 3), beat(2), vote(3, 4)))
    assert page.kinds == {TraceKind.ROLE: 1, TraceKind.VOTE: 1, TraceKind.HEARTBEAT: 1}
    assert page.shown == [TraceKind.ROLE, TraceKind.VOTE]
    assert page.left_out == {}


def test_the_chosen_kinds_are_the_only_ones_and_all_are_drawn() -> None:
    page = page_of(trace_of(role(1, "LEADER", 3), beat(2)), kinds=frozenset({TraceKind.HEARTBEAT}))
    assert page.shown == list(page.kinds) == [TraceKind.HEARTBEAT]
    assert page.left_out == {TraceKind.ROLE: 1}


def test_too_many_records_leave_the_least_telling_kinds_out_and_the_page_says_so() -> None:
    trace = trace_of(*commits(4), *(beat(10 + at) for at in range(5)), role(20, "LEADER", 3))
    kept = select_for_page(trace, TraceFilter(), records_max=6)
    assert kept.left_out == {TraceKind.HEARTBEAT: 5}
    assert len(select_for_page(trace, TraceFilter(), records_max=10).records) == 10
    assert {record.at_us for record in select_for_page(trace, TraceFilter(), records_max=0).records} == {20}
    page = msgspec.structs.replace(page_of(trace), left_out=kept.left_out)
    assert "10 in this page; left out: 5 heartbeat" in page_html(page)


def test_only_kinds_that_are_not_shown_at_first_in_a_long_run_can_be_left_out() -> None:
    few, many = page_of(trace_of(*commits(1))), page_of(trace_of(*commits(5_000), role(1, "LEADER", 3)))
    assert few.shown == [TraceKind.COMMIT]
    assert not set(many.shown) & set(LEAVE_OUT_FIRST)


def test_member_types_are_drawn_only_if_they_differ() -> None:
    same = page_of(trace_of(config(0, 1, "VOTER", "VOTER", "VOTER")))
    changed = page_of(trace_of(config(0, 1, "VOTER", "VOTER")))
    assert same.members == []
    assert {band.state for band in changed.members} == {"VOTER", "OUTSIDE"}


def test_only_the_faults_of_the_chosen_time_are_drawn() -> None:
    pause = Fault(number=1, kind=FaultKind.PAUSE, at_us=100, victim=1, duration_us=50, amount=0)
    trace = trace_of(plan=(pause,))
    assert [span.number for span in page_of(trace, to_us=100).faults] == [1]
    assert page_of(trace, from_us=151).faults == []


def test_the_summary_has_the_command_the_verdict_and_a_link_to_the_violation() -> None:
    page = Elements(page_html(page_of(trace_of(invariant="log_matching"))))
    links = [attributes for tag, attributes in page.found if tag == "a"]
    assert links == [{"class": "bad", "href": "#2000000", "data-at": "2000000"}]
    assert page.texts["code"] == COMMAND
    assert "2.000000 s: log_matching is violated: why" in page.texts["a"]
    good = Elements(page_html(page_of(trace_of())))
    assert "no violation" in good.texts["span"] and "none" in good.texts["dd"]


def test_no_text_of_a_run_becomes_markup() -> None:
    plain = page_of(trace_of(vote(1, 2), invariant="log_matching"))
    record = msgspec.structs.replace(plain.records[0], text=HOSTILE)
    hostile = msgspec.structs.replace(plain, records=[record], verdict=HOSTILE, command=HOSTILE, profile=HOSTILE)
    page = Elements(page_html(hostile))
    assert [tag for tag, _ in page.found] == [tag for tag, _ in Elements(page_html(plain)).found]
    assert page.texts["code"] == HOSTILE
    assert HOSTILE in page.texts["title"]
    assert json.loads(page.texts["trace"])["records"][0]["text"] == HOSTILE


def test_the_page_needs_no_other_file_and_its_script_writes_only_text() -> None:
    page = page_html(page_of(trace_of(vote(1, 2))))
    assert not [tag for tag, attributes in Elements(page).found if "src" in attributes or tag == "link"]
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|fetch\(", page)
    script = (resources.files("stelae.sim.trace") / "page_files/page.js").read_text(encoding="utf-8")
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", script)


@pytest.mark.parametrize("state", ["roles", "members"])
def test_every_state_of_a_band_has_a_colour(state: str) -> None:
    from stelae.sim.trace.lifelines import LifelineState
    from stelae.spi.consensus import Role
    from stelae.spi.members import MemberType

    script = (resources.files("stelae.sim.trace") / "page_files/page.js").read_text(encoding="utf-8")
    names = [*Role, *LifelineState] if state == "roles" else list(MemberType)
    assert [name.value for name in names if f'{name.value}: "#' not in script] == []


def test_every_kind_has_a_colour() -> None:
    script = (resources.files("stelae.sim.trace") / "page_files/page.js").read_text(encoding="utf-8")
    assert [kind.value for kind in TraceKind if f'{kind.value}: "#' not in script] == []


def test_a_filter_of_nodes_keeps_the_roles_of_all() -> None:
    trace = trace_of(role(1, "LEADER", 3), role(1, "FOLLOWER", 3, node=2))
    page = trace_page(trace, replace(TraceFilter(), nodes=frozenset({2})), COMMAND)
    assert [record.lane for record in page.records] == [2]
    assert {band.node for band in page.roles} == {0, 1, 2}
