"""Carries out ``stelae fs check``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import bytes_text, print_fitted
from stelae.cli.node_config import read_config
from stelae.cli.offline_node import OfflineNode
from stelae.config.registry import Registry
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.leftovers import DirectoryState, Leftover, find_leftovers
from stelae.lifecycle.quarantine import QuarantineSettings


def run_check(directory: str | None, config: str | None, *, as_json: bool) -> int:
    """Print what belongs to no replica and return the exit code."""
    extra = {} if config is None else read_config(config, Registry.installed()).extra
    with OfflineNode.opened(directory, config) as node:
        if node.settled:
            note(node.settled)
        files, layout = node.services.files, node.layout
        with node.engine() as wal:
            logs = wal.logs()
            findings = {one.tablet_id: one for one in node.findings(wal)}
        state = DirectoryState(
            files=files,
            layout=layout,
            findings=findings,
            logs=list(logs),
            stage=extra.get("stage") or StageSettings(),
            quarantine=extra.get("quarantine") or QuarantineSettings(),
        )
        found = find_leftovers(state)
    strays = [one for one in found if one.is_stray]
    failed = [one for one in findings.values() if one.failure]
    if as_json:
        total = sum(one.size_bytes or 0 for one in found)
        document = {"directory": node.root, "size_bytes": total, "leftovers": [_plain(one) for one in found]}
        print_json({**document, "failed": [{"tablet_id": one.tablet_id, "reason": one.failure} for one in failed]})
    else:
        _print(node.root, found, strays)
        for one in failed:
            note(f"tablet {one.tablet_id} does not start: {one.failure}")
    return EXIT_FAILED if strays or failed else EXIT_OK


def _print(root: str, found: list[Leftover], strays: list[Leftover]) -> None:
    if not found:
        note(f"{root} has nothing that belongs to no replica")
        return
    rows = [(one.kind.value, _place(one), bytes_text(one.size_bytes), _due(one) or "-", one.why) for one in found]
    print_fitted(("KIND", "PATH", "SIZE", "DUE", "WHAT"), rows)
    for kind, by in sorted({(one.kind.value, one.cleaned_by) for one in found if not one.is_stray}):
        note(f"{kind}: removed by {by}")
    if strays:
        note(
            f"{len(strays)} of these are not removed by any process; look at them, and move them away while the node "
            "is stopped:"
        )
        for one in strays:
            note(f"  {root}/{one.path}{f' (tablet {one.tablet_id})' if one.tablet_id is not None else ''}")


def _place(one: Leftover) -> str:
    return one.path if one.tablet_id is None or one.tablet_id in one.path else f"{one.path}: {one.tablet_id}"


def _due(one: Leftover) -> str | None:
    if one.cleaned_us is None:
        return None
    return f"{datetime.fromtimestamp(one.cleaned_us / 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _plain(one: Leftover) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "path": one.path,
        "tablet_id": one.tablet_id,
        "size_bytes": one.size_bytes,
        "why": one.why,
        "cleaned_by": one.cleaned_by or None,
        "due": _due(one),
    }
