"""Carries out ``stelae tablet convert-consensus``."""

from __future__ import annotations

from typing import Any

from stelae.cli.engine_in_toml import set_engine
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.offline_node import OfflineNode, PrintingMeter
from stelae.config.contracts import EngineKind
from stelae.convert.consensus_engine import ChangedTablet
from stelae.spi.errors import CallerError


def run_convert_consensus(
    directory: str | None, config: str | None, to: str | None, *, dry_run: bool, as_json: bool
) -> int:
    """Change the consensus engine of all tablets of a stopped node, then its node.toml. Return the exit code."""
    with OfflineNode.opened(directory, config) as node:
        if node.settled:
            note(node.settled)
        wanted = to or node.configured_consensus
        if wanted is None:
            raise CallerError("no engine to convert to; pass --to ENGINE")
        changed = node.change_consensus(wanted, PrintingMeter(), dry_run=dry_run)
        is_set = node.configured_consensus == wanted
        if config is not None and not is_set and not dry_run:
            is_set = set_engine(config, EngineKind.CONSENSUS, wanted)
    if as_json:
        print_json(_document(node, wanted, changed, dry_run, is_set if config is not None else None))
    else:
        _print(node, wanted, changed, dry_run)
    if not dry_run and not is_set:
        note(f'write consensus = "{wanted}" in [engines] of node.toml before you start the node')
    return EXIT_OK


def _document(
    node: OfflineNode, wanted: str, changed: list[ChangedTablet], dry_run: bool, is_set: bool | None
) -> dict[str, Any]:
    tablets = [{"tablet_id": one.tablet_id, "from": one.old_engine} for one in changed]
    return {"directory": node.root, "to": wanted, "dry_run": dry_run, "tablets": tablets, "node_toml_is_set": is_set}


def _print(node: OfflineNode, wanted: str, changed: list[ChangedTablet], dry_run: bool) -> None:
    if not changed:
        print(f"nothing to convert: every tablet of {node.root} already has the consensus engine {wanted}")
    verb = "can be converted" if dry_run else "converted"
    for one in changed:
        print(f"{verb} from {one.old_engine} to {wanted}: tablet {one.tablet_id}")
