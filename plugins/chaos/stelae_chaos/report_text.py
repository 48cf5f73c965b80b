"""Prints the report of a run: the tables and the findings, or one JSON document."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from stelae.cli.kit.output import note, print_json, print_table
from stelae_chaos.operations import ChaosFinding
from stelae_chaos.report import ChaosReport

FINDINGS_MAX: Final = 20
"""The most findings that are printed. The document has all."""


def show(report: ChaosReport, plot: Path, *, as_json: bool) -> None:
    """Print a report on standard output, and its findings on standard error."""
    document = {**report.document(), "plot": str(plot)}
    if as_json:
        print_json({**document, "findings": [_plain(finding) for finding in report.findings]})
    else:
        _print(document)
        for line in report.left_out_lines():
            print(line)
        print(f"\n{'ok' if report.clean else f'NOT OK, findings: {len(report.findings)}'}")
    for finding in report.findings[:FINDINGS_MAX]:
        note(f"finding: {finding}")
        for operation in finding.operations:
            note(f"    {operation}")
    if len(report.findings) > FINDINGS_MAX:
        note(f"and {len(report.findings) - FINDINGS_MAX} more findings; --json has all")
    for fact in report.unwritten:
        note(fact)
    if report.findings:
        note(f"repeat the same plan with --seed {report.seed}")
        note(f"note: the load average of this machine is {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def _print(document: dict[str, Any]) -> None:
    print(f"seed {document['seed']}, {document['seconds']} s with faults\n")
    counts = document["workloads"]
    columns = ("acknowledged", "refused", "unknown", "reads")
    print_table(
        ("WORKLOAD", "ACKNOWLEDGED", "REFUSED", "NO ANSWER", "READS"),
        [(name, *(f"{found[column]:,}" for column in columns)) for name, found in counts.items()],
    )
    print()
    print_table(("FAULT", "TIMES"), [*document["faults"].items()])
    print(f"\nlatency p50 {_ms(document['p50_ms'])}, p99 {_ms(document['p99_ms'])}")
    print(f"longest time without an acknowledged write {_ms(document['longest_gap_ms'])}")
    if document["disks_replaced"]:
        print(f"lost disks whose replicas the masters replaced: {document['disks_replaced']}")
    if document["directories_checked"]:
        print(f"searched for orphan files: the directories of {document['directories_checked']} tablet servers")
    print(f"timeline {document['plot']}")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _plain(finding: ChaosFinding) -> dict[str, Any]:
    return {"check": finding.check, "key": finding.key, "fact": finding.fact, "operations": list(finding.operations)}
