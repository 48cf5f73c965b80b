"""Finds what lies in the directory of a node and belongs to no replica, and says what will remove it. Reads only.

A crash, an interrupted copy or deletion, and deleted replicas leave something on purpose: it is needed later, or the
next start removes it. What no code ever removes is a *stray*: of a lost superblock, or not of this system at all.

Each directory of the layout has a function, which knows who cleans there:

    tablet-meta, consensus-meta   the next replacement of the same file
    wals                          the start of the node (``tablet_loader``); the replicas own the rest
    data                          the same
    copying                       the limits of stages (``stage_limits``), or a start that the replica survives
    quarantine                    its limits (``quarantine``), or the start
    serving                       the start

The files within a replica's own ``data/<tablet-id>`` belong to its store engine, which removes what its manifest does
not name whenever it opens them. They are not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stelae.host.directory_layout import DirectoryLayout
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_stage import read_manifest
from stelae.lifecycle.directory_size import bytes_below
from stelae.lifecycle.quarantine import CONTENTS, QuarantineSettings, directory_of, list_quarantine
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding
from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import LogId, TabletId, tablet_id
from stelae.spi.services import Files

NEXT_START = "the next start of the node"
NO_PROCESS = ""
MASTERS = "the masters, once the tablet has other members or its table is dropped"
_TOO_OLD = "the running node, once it is older than [stage] age_s_max"
_INTERRUPTED = "what an interrupted copy has fetched; the next copy goes on with it"
_READY = "of a complete copy, or of one in place of a damaged replica; the next copy goes on with it"
LOST_BLOCK = "its superblock is gone, so the node cannot know whose rows these are"
NO_BLOCK = "its superblock cannot be read, or is gone"
_AT_START = frozenset(
    {StartupAction.TOMBSTONE, StartupAction.ROLL_FORWARD, StartupAction.DELETE_SELF, StartupAction.REMOVE}
)


class LeftoverKind(StrEnum):
    """What a leftover is. The values are stable."""

    STAGE = "STAGE"  #: What an interrupted copy has fetched.
    ROWS = "ROWS"
    LOG = "LOG"
    QUARANTINE = "QUARANTINE"
    SERVED = "SERVED"  #: Written for a copy that another node made from this one.
    TEMPORARY = "TEMPORARY"  #: Of an interrupted replacement of a metadata file.
    FOREIGN = "FOREIGN"  #: No file that a node writes has such a name there.


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One file or directory that belongs to no replica."""

    kind: LeftoverKind
    path: str  #: Relative to the node's directory. Of a log: ``wals``, whichever files its engine has.
    tablet_id: TabletId | None
    size_bytes: int | None  #: ``None`` if only the engine knows.
    why: str  #: What it is, for people.
    cleaned_by: str  #: What removes it; empty: no process does.
    cleaned_us: int | None = None  #: Wall-clock microseconds at which it is due, if its age decides.

    @property
    def is_stray(self) -> bool:
        """Whether no process will remove it."""
        return self.cleaned_by == NO_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """What is known of the directory of a stopped node."""

    files: Files
    layout: DirectoryLayout
    findings: Mapping[TabletId, TabletFinding]  #: Of every tablet with metadata or a log.
    logs: Sequence[LogId]  #: All logs that the engine has.
    stage: StageSettings
    quarantine: QuarantineSettings


def find_leftovers(state: DirectoryState) -> list[Leftover]:
    """Return everything that belongs to no replica, in the order of kinds and paths. Blocks."""
    found = [*_stages(state), *_rows(state), *_logs(state), *_quarantined(state), *_served(state), *_temporary(state)]
    order = {kind: number for number, kind in enumerate(LeftoverKind)}
    return sorted(found, key=lambda one: (order[one.kind], one.path, one.why))


def _stages(state: DirectoryState) -> Iterator[Leftover]:
    layout, age_us = state.layout, state.stage.age_s_max * 1_000_000
    for name, tablet in _names(state, layout.copying):
        if tablet is None:
            yield _foreign(state, f"{layout.copying}/{name}")
            continue
        finding = state.findings.get(tablet)
        hosted = finding is not None and finding.decision.action is StartupAction.START
        manifest = read_manifest(state.files, layout, tablet)
        by, due_us = _TOO_OLD, None
        if manifest is None:
            by, why = "the running node at its next look", "a copy left it, and its manifest cannot be read"
        elif hosted and finding is not None and finding.superblock is not None and not finding.superblock.log_only:
            by, due_us, why = f"{NEXT_START}, if the replica starts; else {_TOO_OLD}", manifest.used_us + age_us, _READY
        else:
            due_us, why = manifest.used_us + age_us, _INTERRUPTED
        path = layout.stage_of(tablet)
        yield _leftover(state, LeftoverKind.STAGE, path, tablet, why, by, due_us)


def _rows(state: DirectoryState) -> Iterator[Leftover]:
    for name, tablet in _names(state, state.layout.data):
        path = f"{state.layout.data}/{name}"
        if tablet is None:
            yield _foreign(state, path)
            continue
        finding = state.findings.get(tablet)
        if finding is not None and finding.superblock is None and finding.failure:
            yield _leftover(state, LeftoverKind.ROWS, path, tablet, f"rows of a tablet: {NO_BLOCK}", MASTERS)
        elif finding is None or finding.superblock is None:
            yield _leftover(state, LeftoverKind.ROWS, path, tablet, f"rows of a tablet: {LOST_BLOCK}", NO_PROCESS)
        elif finding.decision.action in _AT_START:
            yield _leftover(state, LeftoverKind.ROWS, path, tablet, f"{finding.decision.why}", NEXT_START)


def _logs(state: DirectoryState) -> Iterator[Leftover]:
    for log in sorted(state.logs):
        finding = state.findings.get(log.tablet_id)
        if finding is None:
            continue
        what = f"log of generation {log.generation}"
        if finding.superblock is None:
            if finding.decision.action is StartupAction.NOTHING:
                why, by = f"empty {what}: a creation was cut short", "the next creation of the tablet, if there is one"
            else:
                why, by = f"{what}: {NO_BLOCK}", MASTERS
        elif finding.decision.action in _AT_START:
            why, by = f"{what}: {finding.decision.why}", NEXT_START
        elif log != finding.superblock.log_id:
            why, by = f"{what}: the replica has generation {finding.superblock.generation}", NO_PROCESS
        else:
            continue
        yield Leftover(
            kind=LeftoverKind.LOG,
            path=_relative(state, state.layout.wals),
            tablet_id=log.tablet_id,
            size_bytes=None,
            why=why,
            cleaned_by=by,
        )


def _quarantined(state: DirectoryState) -> Iterator[Leftover]:
    files, layout, settings = state.files, state.layout, state.quarantine
    named = {one.superblock.quarantine for one in state.findings.values() if one.superblock is not None}
    listed = list_quarantine(files, layout)
    for one in listed:
        place = directory_of(layout, one.name)
        tablet = TabletId(one.name.rpartition(".")[0]) if one.of_deletion else None
        by, due_us = "the running node, when the quarantine is above [quarantine] bytes_max", None
        why = "the data of a deleted replica" if one.of_deletion else "a log that a conversion replaced"
        holds = any(files.exists(f"{place}/{part}") for part in CONTENTS)
        if one.of_deletion and not holds and _relative(state, place) not in named:
            by, why = NEXT_START, "a deletion was interrupted before it began to count"
        elif one.about is not None:
            by = "the running node, once it is older than [quarantine] age_s_max, or sooner for its other limits"
            due_us = one.about.deleted_us + settings.age_s_max * 1_000_000
            why = f"the data of a deleted replica: {one.about.reason}"
        yield _leftover(state, LeftoverKind.QUARANTINE, place, tablet, why, by, due_us)
    known = {one.name for one in listed}
    for name, _ in _names(state, layout.quarantine):
        if name not in known:
            yield _foreign(state, f"{layout.quarantine}/{name}")


def _served(state: DirectoryState) -> Iterator[Leftover]:
    for name, _ in _names(state, state.layout.serving):
        why = "written for copies that an earlier process of the node served"
        yield _leftover(state, LeftoverKind.SERVED, f"{state.layout.serving}/{name}", None, why, NEXT_START)


def _temporary(state: DirectoryState) -> Iterator[Leftover]:
    for directory in (state.layout.superblocks, state.layout.consensus):
        for name, tablet in _names(state, directory):
            if tablet is not None:
                continue
            path, of = f"{directory}/{name}", name.removeprefix(".").removesuffix(".tmp")
            if of == name or not state.files.exists(f"{directory}/{of}"):
                yield _foreign(state, path)
                continue
            why = f"an interrupted replacement of {of}"
            by = "the next replacement of that file"
            yield _leftover(state, LeftoverKind.TEMPORARY, path, TabletId(of), why, by)


def _names(state: DirectoryState, directory: str) -> Iterator[tuple[str, TabletId | None]]:
    """Return each name in a directory, with the tablet whose id it is."""
    if not state.files.exists(directory):
        return
    for name in sorted(state.files.listdir(directory)):
        try:
            yield name, tablet_id(name)
        except BadIdentifier:
            yield name, None


def _foreign(state: DirectoryState, path: str) -> Leftover:
    return _leftover(state, LeftoverKind.FOREIGN, path, None, "no file of a node has such a name there", NO_PROCESS)


def _leftover(
    state: DirectoryState,
    kind: LeftoverKind,
    path: str,
    tablet: TabletId | None,
    why: str,
    by: str,
    due_us: int | None = None,
) -> Leftover:
    return Leftover(
        kind=kind,
        path=_relative(state, path),
        tablet_id=tablet,
        size_bytes=bytes_below(state.files, path),
        why=why,
        cleaned_by=by,
        cleaned_us=due_us,
    )


def _relative(state: DirectoryState, path: str) -> str:
    return path.removeprefix(f"{state.layout.root}/")
