"""The report of ``stelae spark demo``: it is ok only if everything is equal and both kills hit a running job."""

from __future__ import annotations

from typing import Any

import pytest

from stelae_spark_sink.demo.report import ServerKill, SparkDemoReport, SumPair


def kill(job: str, **changes: Any) -> ServerKill:
    values = {"what": f"SIGKILL in {job}", "rows_before": 10, "rows_during": 5, "caught_up": True, **changes}
    return ServerKill(job=job, **values)


def judged(
    *, disagreement: str = "", unhealthy: tuple[str, ...] = (), examples: tuple[str, ...] = (), **changes: Any
) -> SparkDemoReport:
    values: dict[str, Any] = {
        "rows_source": 20,
        "rows_read": 20,
        "batches": 2,
        "sums": [SumPair(what="rows", source=20, table=20)],
        "kills": [kill("write"), kill("read")],
        "replicas_agree": not disagreement,
        **changes,
    }
    report = SparkDemoReport(**values)
    report.judge(disagreement=disagreement, unhealthy=unhealthy, examples=examples)
    return report


def test_a_demo_that_holds_is_ok_and_its_document_says_so() -> None:
    document = judged().document()
    assert (document["ok"], document["problems"], document["healthy"]) == (True, [], True)
    assert document["sums"] == [{"what": "rows", "source": 20, "table": 20}]
    assert [kill["job"] for kill in document["kills"]] == ["write", "read"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rows_missing": 1}, "1 rows of the source are not in the table"),
        ({"rows_wrong": 2}, "2 rows of the table are not those of the source"),
        ({"sums": [SumPair(what="rows", source=20, table=19)]}, "rows: 20 in the source, 19 in the table"),
        ({"sums": []}, "no sums were compared"),
        ({"kills": [kill("write")]}, "1 of 2 kills happened"),
        ({"kills": [kill("write", rows_before=0), kill("read")]}, "did not continue without the server"),
        ({"kills": [kill("write"), kill("read", rows_during=0)]}, "did not continue without the server"),
        ({"kills": [kill("write"), kill("read", caught_up=False)]}, "the server did not catch up"),
        ({"disagreement": "tablet t: a has 1, b has 2"}, "replicas do not agree: tablet t"),
        ({"unhealthy": ("tserver-1: no heartbeat",)}, "the cluster is not healthy: tserver-1"),
        ({"examples": ("missing: (1,)",)}, "missing: (1,)"),
    ],
)
def test_each_thing_that_does_not_hold_is_a_problem(changes: dict[str, Any], problem: str) -> None:
    report = judged(**changes)
    assert not report.ok
    assert len(report.problems) == 1 and problem in report.problems[0]
