"""What the demo calls a success: each thing that is not as it should be makes it none."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.local.demo_report import DemoEvent, DemoEventKind, DemoReport, Kill


def good() -> DemoReport:
    kills = [
        Kill(what=what, missing="nothing", acked_at_kill=at, at=0.0, within_load=True, unavailable_ms=3000)
        for what, at in (("SIGKILL of a", 30), ("SIGKILL of b", 60), ("SIGKILL of c", 80))
    ]
    events = [DemoEvent(kind=kind, node="a", at_ms=5, acked=30) for kind in DemoEventKind]
    counts = {"rows_source": 100, "rows_acked": 100, "rows_read": 100}
    return DemoReport(
        masters=3,
        tablets=4,
        election_timeout_ms=1000,
        events=events,
        kills=kills,
        healed_ms=7000,
        replicas_agree=True,
        rows_per_s=9,
        **counts,
    )


def judged(report: DemoReport, **more: Any) -> DemoReport:
    report.judge(**{"disagreement": "", "unhealthy": (), "examples": (), **more})
    return report


def test_a_run_without_a_flaw_is_ok_and_its_document_has_every_figure() -> None:
    document = judged(good()).document()
    assert document == {
        "masters": 3,
        "tablets": 4,
        "rows_source": 100,
        "rows_acked": 100,
        "rows_read": 100,
        "rows_lost": 0,
        "rows_wrong": 0,
        "events": [
            {"kind": "server_killed", "node": "a", "at_ms": 5, "acked": 30},
            {"kind": "master_killed", "node": "a", "at_ms": 5, "acked": 30},
            {"kind": "disk_lost", "node": "a", "at_ms": 5, "acked": 30},
            {"kind": "server_joined", "node": "a", "at_ms": 5, "acked": 30},
        ],
        "kills": [
            {"what": "SIGKILL of a", "acked_at_kill": 30, "unavailable_ms": 3000},
            {"what": "SIGKILL of b", "acked_at_kill": 60, "unavailable_ms": 3000},
            {"what": "SIGKILL of c", "acked_at_kill": 80, "unavailable_ms": 3000},
        ],
        "healed_ms": 7000,
        "election_timeout_ms": 1000,
        "replicas_agree": True,
        "healthy": True,
        "rows_per_s": 9,
        "problems": [],
        "ok": True,
    }


@pytest.mark.parametrize(
    ("flaw", "told"),
    [
        ({"rows_acked": 99}, "1 rows were not acknowledged"),
        ({"rows_lost": 2}, "2 acknowledged rows are lost"),
        ({"rows_wrong": 3}, "3 rows differ"),
        ({"replicas_agree": False}, "replicas do not agree"),
        ({"kills": []}, "the load ended before"),
        ({"events": []}, "server_killed, master_killed, disk_lost, server_joined did not happen"),
    ],
)
def test_any_flaw_is_told_and_makes_the_run_fail(flaw: dict[str, Any], told: str) -> None:
    report = good()
    for name, value in flaw.items():
        setattr(report, name, value)
    assert not judged(report).ok and told in report.problems[0]


def test_a_gap_above_two_election_timeouts_and_a_second_fails_the_run() -> None:
    report = good()
    report.kills[1].unavailable_ms = 3001
    assert not judged(report).ok
    assert report.problems == ["after the SIGKILL of b: nothing for 3001 ms, at most 3000 ms are allowed"]


def test_the_time_without_writes_after_a_lost_disk_is_told_and_not_bounded() -> None:
    report = good()
    report.kills[2].unavailable_ms, report.kills[2].bounded = 3001, False
    assert judged(report).ok and report.document()["kills"][2]["unavailable_ms"] == 3001


def test_a_kill_that_healed_behind_the_load_fails_the_run() -> None:
    report = good()
    report.kills[0].within_load = False
    assert not judged(report).ok


def test_an_unhealthy_cluster_and_examples_fail_the_run() -> None:
    report = judged(good(), unhealthy=["a server is silent"], examples=["row 3: BAD_VALUE"])
    assert not report.healthy
    assert report.problems == ["row 3: BAD_VALUE", "the cluster is not healthy: a server is silent"]
