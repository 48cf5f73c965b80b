"""Carries out ``stelae tablet quarantine``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import pick
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import bytes_text, print_fitted
from stelae.cli.no_node_here import instance_in
from stelae.cli.node_config import read_config
from stelae.cli.offline_node import OfflineNode
from stelae.config.registry import Registry
from stelae.host.directory_layout import DirectoryLayout
from stelae.lifecycle.quarantine import Quarantined, directory_of, list_quarantine, purge, tablet_of
from stelae.lifecycle.restore_from_quarantine import OpenAside, restore
from stelae.lifecycle.startup_decisions import StartupAction, inspect_tablet
from stelae.machine.files import RealFiles
from stelae.spi.errors import CallerError, PluginError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState


def run_list(directory: str | None, config: str | None, *, as_json: bool) -> int:
    """Print the directories in quarantine and return the exit code."""
    if (directory is None) == (config is None):
        raise CallerError("pass either the directory of a node or --config with its node.toml")
    root = os.path.abspath(directory or "")
    if config is not None:
        root = read_config(config, Registry.installed()).node.directory
    files, layout = RealFiles(), DirectoryLayout(root)
    instance_in(root, near=config is None)
    found = [_plain(one) for one in list_quarantine(files, layout)]
    if as_json:
        print_json({"directory": root, "size_bytes": sum(one["size_bytes"] for one in found), "quarantine": found})
    elif found:
        rows = [
            (o["name"], o["deleted"] or "-", bytes_text(o["size_bytes"]), o["table"] or "-", o["why"]) for o in found
        ]
        print_fitted(("NAME", "DELETED", "SIZE", "TABLE", "WHY"), rows)
    else:
        note(f"the quarantine of {root} is empty")
    return EXIT_OK


def run_purge(
    directory: str | None,
    config: str | None,
    names: Sequence[str],
    older_than_s: float | None,
    *,
    everything: bool,
    as_json: bool,
) -> int:
    """Delete directories of the quarantine and return the exit code."""
    if sum([bool(names), older_than_s is not None, everything]) != 1:
        raise CallerError("pass exactly one of --name NAME, --older-than-s SECONDS and --all")
    with OfflineNode.opened(directory, config) as node:
        files, layout = node.services.files, node.layout
        found = list_quarantine(files, layout)
        named = {one.name: one for one in (_named(found, name) for name in names)}
        chosen = [*named.values()] if names else _older(found, older_than_s)
        if chosen:
            _check_finished(node, chosen)
            purge(files, layout, [one.name for one in chosen])
    size_bytes = sum(one.size_bytes for one in chosen)
    if as_json:
        print_json({"directory": node.root, "purged": [one.name for one in chosen], "size_bytes": size_bytes})
    else:
        note(f"purged {len(chosen)} directories, {bytes_text(size_bytes)}")
    return EXIT_OK


def run_restore(directory: str | None, config: str | None, name: str, *, as_json: bool) -> int:
    """Restore a replica and return the exit code."""
    with OfflineNode.opened(directory, config) as node:
        chosen = _named(list_quarantine(node.services.files, node.layout), name)
        if not chosen.of_deletion:
            raise CallerError(
                f"{name} is not a replica but a log from `stelae wal convert`; convert the log back instead"
            )
        aside_of = chosen.about.wal_engine if chosen.about is not None else ""
        opener = _opener(node, aside_of or node.wal_engine)
        with node.engine() as wal:
            block = restore(node.services.files, node.layout, wal, chosen.name, opener)
            last = wal.logs()[block.log_id].last
    if as_json:
        plain = {"directory": node.root, "restored": chosen.name, "tablet_id": block.tablet_id, "last": str(last)}
        print_json({**plain, "generation": block.generation})
    else:
        note(f"restored tablet {block.tablet_id} up to {last}; start the node, and check with: stelae check")
        note("the masters delete it again if its table is gone or it is no longer a member of its tablet")
    return EXIT_OK


def _opener(node: OfflineNode, engine_name: str) -> OpenAside:
    """Return a function that opens a log in quarantine. ``PluginError``: the engine cannot read such a log."""
    picked = node.picked(engine_name)
    opened_aside = getattr(picked.engine, "opened_aside", None)
    if opened_aside is None:
        raise PluginError(
            f"log engine {engine_name!r} cannot read logs in quarantine (it has no `opened_aside`); "
            "let the masters create another replica"
        )

    def opener(place: str, log: LogId) -> AbstractContextManager[tuple[LogState, Iterator[Entry]]]:
        found: AbstractContextManager[tuple[LogState, Iterator[Entry]]] = opened_aside(
            place, log, picked.config, node.services
        )
        return found

    return opener


def _check_finished(node: OfflineNode, chosen: Sequence[Quarantined]) -> None:
    """Raise ``CallerError`` if an interrupted deletion still has to move data into one of the directories."""
    files, layout = node.services.files, node.layout
    with node.engine() as wal:
        tablets = [tablet_of(one.name) for one in chosen]
        found = [inspect_tablet(files, layout, wal.logs(), wal.op_id_at, tablet) for tablet in tablets]
    for one, tablet, now in zip(chosen, tablets, found, strict=True):
        if one.of_deletion and now.decision.action is StartupAction.ROLL_FORWARD:
            directory = directory_of(layout, one.name)
            fact = f"the deletion of tablet {tablet} was interrupted and still has to fill {directory}"
            raise CallerError(f"{fact}; start the node once to complete it; nothing was purged")


def _named(found: Sequence[Quarantined], name: str) -> Quarantined:
    names = {one.name: one.name for one in found}
    # A name with its number is a whole one. The number may begin that of another deletion of the tablet.
    known = {one: one for one in names if one == name} if "." in name else names
    chosen = pick("directory in quarantine", name, known, "stelae tablet quarantine list", shown=names)
    return next(one for one in found if one.name == chosen)


def _older(found: Sequence[Quarantined], older_than_s: float | None) -> list[Quarantined]:
    """Return the directories that are older, or all of them if no age is given. Those without a date are kept."""
    if older_than_s is None:
        return list(found)
    before_us = int((time.time() - older_than_s) * 1_000_000)
    return [one for one in found if one.about is not None and one.about.deleted_us < before_us]


def _plain(one: Quarantined) -> dict[str, Any]:
    about = one.about
    unknown = "cannot be read" if one.of_deletion else "old log of a conversion"
    deleted = None if about is None else datetime.fromtimestamp(about.deleted_us / 1_000_000, UTC)
    return {
        "name": one.name,
        "tablet_id": tablet_of(one.name) if one.of_deletion else None,
        "table": "" if about is None else about.table_name,
        "deleted": None if deleted is None else f"{deleted:%Y-%m-%dT%H:%M:%SZ}",
        "size_bytes": one.size_bytes,
        "wal_engine": "" if about is None else about.wal_engine,
        "why": about.reason if about is not None else unknown,
        "readable": about is not None,
    }
