"""The text of a plan of recovery."""

from __future__ import annotations

from collections.abc import Mapping

from stelae.cli.kit.output import note
from stelae.cli.kit.terminal_layout import age_text
from stelae.recover.loss import moment
from stelae.recover.plan import LostMember, RankedReplica, RecoveryPlan, TabletPlan
from stelae.spi.recovery_epoch import recovery_epoch


def print_plan(plan: RecoveryPlan, silent: Mapping[str, str] | None = None) -> None:
    """Print what a plan does to each tablet, and what is lost, and which addresses are silent, each with the reason."""
    for tablet in plan.tablets:
        print("\n".join(_tablet_lines(tablet)), end="\n\n")
    for left in plan.unrecoverable:
        print(f"tablet {left.tablet_id}{_of(left.table)} CANNOT BE RECOVERED: {left.why}\n")
    for address, why in sorted((silent or {}).items()):
        note(f"node {address} does not answer, so a tablet that only silent nodes have is not here: {why}")
    if not plan.tablets and not plan.unrecoverable:
        which = "every tablet of the nodes that answer" if silent else "every tablet"
        note(f"{which} has its majority; there is nothing to recover")


def tablets_text(count: int) -> str:
    """Return a number of tablets in words."""
    return f"{count} tablet" + ("" if count == 1 else "s")


def _tablet_lines(tablet: TabletPlan) -> list[str]:
    epoch = recovery_epoch(tablet.term)
    lines = [f"tablet {tablet.tablet_id}{_of(tablet.table)}: recover {tablet.survivor.address} in epoch {epoch}"]
    lines += [f"  {'*' if one.node_id == tablet.survivor.node_id else ' '} {_ranked(one)}" for one in tablet.ranking]
    lines += [f"  x {_lost(one)}" for one in tablet.lost]
    return lines + [f"  {sentence}" for sentence in tablet.loss]


def _ranked(one: RankedReplica) -> str:
    newest = f", newest entry of {moment(one.applied_us)}" if one.applied_us else ""
    unusable = f"; cannot be recovered: {one.unusable}" if one.unusable else ""
    return f"{one.address} has the log up to {one.last}, committed up to index {one.commit}{newest}{unusable}"


def _lost(one: LostMember) -> str:
    silent = "" if one.silent_ms is None else f" (last heartbeat {age_text(one.silent_ms)} ago)"
    return f"{one.address or one.node_id} is lost: {one.why}{silent}"


def _of(table: str) -> str:
    return f" of {table}" if table else ""
