"""The summary of a demo."""

from __future__ import annotations

import os

from stelae.cli.kit.output import note, print_json, print_table
from stelae.local.demo_report import DemoReport


def show(report: DemoReport, source: str, seconds: float, *, as_json: bool) -> None:
    """Print the result of a demo on standard output, and its problems on standard error."""
    if as_json:
        print_json({**report.document(), "seconds": round(seconds, 1)})
    else:
        print(f"{source}: {report.rows_source:,} rows in {seconds:.1f} s\n")
        most = f"at most {report.gap_ms_max:,} ms"
        rows = [
            ("acknowledged", f"{report.rows_acked:,}"),
            ("read back", f"{report.rows_read:,}"),
            ("lost", f"{report.rows_lost:,}"),
            ("wrong", f"{report.rows_wrong:,}"),
            ("rows per second", f"{report.rows_per_s:,}"),
            ("replicas agree", f"yes, of {report.tablets} tablets" if report.replicas_agree else "NO"),
            ("cluster healthy", "yes" if report.healthy else "NO"),
        ]
        print_table(("what", "result"), rows)
        for kill in report.kills:
            print(f"\n{kill.what}, at {kill.acked_at_kill:,} rows:")
            print(f"  {kill.missing} for {kill.unavailable_ms:,} ms" + (f" ({most})" if kill.bounded else ""))
        if report.healed_ms:
            print(
                f"\nEvery tablet had all of its replicas again {report.healed_ms / 1000:.1f} s after a disk was lost."
            )
        print(f"\n{'ok' if report.ok else 'NOT OK'}")
    for problem in report.problems:
        note(f"problem: {problem}")
    if report.problems:
        note(f"note: the load average of this machine is {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
