"""What is left in the directories of the tablet servers after a run: no orphan files."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.local.leftover_files import FilesNotChecked, orphan_files
from stelae.local.node_process import NodeProcess
from stelae_chaos.operations import ChaosFinding
from stelae_chaos.report import ChaosReport


def add_orphan_files(report: ChaosReport, servers: Sequence[NodeProcess]) -> None:
    """Stop tablet servers, and add a finding for every file that nothing will ever remove. Blocks."""
    for node in servers:
        node.ask_to_stop()
    for node in servers:
        try:
            orphans = orphan_files(node)
        except FilesNotChecked as error:
            report.findings.append(ChaosFinding(check="files", key=node.name, fact=str(error)))
            continue
        report.directories_checked += 1
        report.findings += [ChaosFinding(check="files", key=node.name, fact=str(orphan)) for orphan in orphans]
