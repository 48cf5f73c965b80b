"""Gives all logs of a node to another engine: a new ``wals/`` beside the old one, and one record that decides.

Steps of :func:`convert`, each of which may be the last one before a crash:

1. The old engine opens ``wals/`` (its recovery included) and every entry is read; a damaged log is refused.
2. The new engine opens ``wals.converting/``; every log is made there, with its base, entries and commit hint.
3. The new engine is closed, opened again and compared with the old one, entry by entry. Both are closed.
4. **Commit point:** the instance file is replaced: it names the new engine, and the old one as ``converted_from``.
5. ``wals/`` moves to ``quarantine/wals-<old engine>.<number>``.
6. ``wals.converting/`` becomes ``wals/``.
7. The instance file is replaced: nothing is pending any more.

:func:`settle` ends what was interrupted: before step 4 the half-made directory goes, after it steps 5 to 7 are done.

Ordering and durability
    What step 2 made is durable, with its name in the node's directory, before step 4. Step 5 is durable before step 6
    and step 6 before step 7, so whoever reads a pending record finds the new log under one of its two names.
    Superblocks name a tablet's log by its generation, which the copy keeps: nothing in them changes, nor does the mark
    of a clean shutdown, which tells of the node and not of this command."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass

import msgspec

from stelae.convert.copying import compare_logs, copy_logs
from stelae.convert.offline import SILENT, Meter
from stelae.convert.reading import LogReport, check_logs, said_of
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import INSTANCE, Instance, InstanceFile
from stelae.host.metadata_files import NO_CRASH, CrashPoints, save
from stelae.host.settings import ChosenEngine
from stelae.spi.errors import CallerError, Corrupt, Full, StelaeError, StorageError
from stelae.spi.log import ENTRY_OVERHEAD_BYTES
from stelae.spi.services import EngineServices, Files

SPACE_FACTOR = 2
"""Bytes wanted for each byte of entries: an engine of pages takes two for an entry above half a page."""
SPACE_PER_LOG_BYTES = 64 << 10
"""A log's own files, names and tables."""
SPACE_FIXED_BYTES = 128 << 20
"""What engines reserve ahead: two of the largest segments that any of ours makes by default."""


@dataclass(frozen=True, slots=True)
class ConversionPaths:
    """A node's directory, whose lock the caller holds, and what engines are given there."""

    layout: DirectoryLayout
    services: EngineServices
    crash: CrashPoints = NO_CRASH


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    """What a conversion copies, and the bytes that it wants of the disk beside those in use."""

    logs: int
    entries: int
    body_bytes: int
    space_wanted_bytes: int
    space_left_bytes: int


def building(layout: DirectoryLayout) -> str:
    """Where the new log is made. The name has a dot: it is no tablet's and no engine's."""
    return f"{layout.wals}.converting"


def convert(
    place: ConversionPaths, source: ChosenEngine, target: ChosenEngine, meter: Meter = SILENT, *, dry_run: bool = False
) -> ConversionPlan:
    """Give every log to ``target``, after settling what was left unfinished. With ``dry_run`` only step 1 is done.

    The old log stays in quarantine. Any error leaves the old log in its place and in charge, but for one that comes
    after the commit point: then :func:`settle` has to end it.

    Raises:
        CallerError: the log is not of ``source``, or of ``target`` already.
        Corrupt: a log is damaged; nothing was changed.
        Full: there is not enough space; nothing was changed.
        StorageError: something could not be read, written or moved, or the copy differs."""
    files, layout = place.services.files, place.layout
    settle(files, layout, place.crash)
    instance = InstanceFile(files, layout).load()
    if instance.wal_engine != source.name or target.name == source.name:
        fact = f"the log of {layout.root} is of engine {instance.wal_engine!r}"
        raise CallerError(f"{fact}: it cannot be converted from {source.name!r} to {target.name!r}")
    try:
        plan = _build(place, source, target, meter, dry_run)
    except (StelaeError, OSError, KeyboardInterrupt):
        with suppress(StelaeError, OSError):  # What cannot be removed now is removed by the next start.
            _discard(files, layout)
        raise
    if dry_run:
        return plan
    place.crash.hit("convert.before_commit")
    pending = msgspec.structs.replace(instance, wal_engine=target.name, converted_from=source.name)
    try:
        save(files, INSTANCE, layout.instance, pending, place.crash)
    except Full:  # The old record stands, and the copy may be what fills the disk.
        _discard(files, layout)
        raise
    settle(files, layout, place.crash)
    return plan


def settle(files: Files, layout: DirectoryLayout, crash: CrashPoints = NO_CRASH) -> str:
    """End a conversion that was interrupted, forward or back; return what was done, or ``""``.

    Repeating it is harmless. To be called under the lock, before anything opens ``wals/``.

    Raises:
        NotFormatted, StorageError: as ``InstanceFile.load``; or something could not be moved or removed.
        Corrupt: neither ``wals/`` nor a copy is there."""
    instance = InstanceFile(files, layout).load()
    if instance.converted_from is not None:
        _roll_forward(files, layout, instance, crash)
        return f"finished the conversion of the log from {instance.converted_from} to {instance.wal_engine}"
    if not files.exists(building(layout)):
        return ""
    if not files.exists(layout.wals):
        raise Corrupt(f"there is no log, only {building(layout)}; nothing was touched", path=layout.wals)
    _discard(files, layout)
    return f"removed what an interrupted conversion left; the log is still of engine {instance.wal_engine}"


def check_source(reports: list[LogReport]) -> None:
    """Refuse to convert damaged logs: a copy could not tell that something is missing.

    Raises:
        Corrupt: names every such log, and what to do.
        StorageError: none is damaged, but some cannot be read now."""
    bad = [f"{report.log}: {report.problem}" for report in reports if report.problem is not None]
    if any(report.problem is not None and report.problem.damage for report in reports):
        advice = "replace these replicas from their peers while the node runs on its present engine, then convert"
        raise Corrupt(f"{said_of(reports)}; {advice}\n" + "\n".join(bad))
    if bad:
        raise StorageError(f"{said_of(reports)}; see to the disk and try again\n" + "\n".join(bad))


def _build(
    place: ConversionPaths, source: ChosenEngine, target: ChosenEngine, meter: Meter, dry_run: bool
) -> ConversionPlan:
    """Steps 1 to 3."""
    files, layout = place.services.files, place.layout
    with ExitStack() as stack:
        old = source.engine.open(layout.wals, source.config, place.services)
        stack.callback(old.close)
        reports = check_logs(old, meter)
        check_source(reports)
        plan = _plan(reports, files.space_left(layout.root))
        if plan.space_left_bytes < plan.space_wanted_bytes:
            fact = f"a copy wants {plan.space_wanted_bytes} bytes of space, {plan.space_left_bytes} are left"
            raise Full(f"{fact}; nothing was changed", path=layout.root)
        if dry_run:
            return plan
        place.crash.hit("convert.before_copy")
        with ExitStack() as copying:
            new = target.engine.open(building(layout), target.config, place.services)
            copying.callback(new.close)
            copy_logs(old, new, meter)
        files.sync_directory(layout.root)
        place.crash.hit("convert.before_compare")
        with ExitStack() as comparing:
            new = target.engine.open(building(layout), target.config, place.services)
            comparing.callback(new.close)
            compare_logs(old, new, meter)
    return plan


def _plan(reports: list[LogReport], space_left_bytes: int) -> ConversionPlan:
    entries = sum(report.entries for report in reports)
    body_bytes = sum(report.body_bytes for report in reports)
    charged = SPACE_FACTOR * (body_bytes + entries * ENTRY_OVERHEAD_BYTES)
    return ConversionPlan(
        logs=len(reports),
        entries=entries,
        body_bytes=body_bytes,
        space_wanted_bytes=charged + len(reports) * SPACE_PER_LOG_BYTES + SPACE_FIXED_BYTES,
        space_left_bytes=space_left_bytes,
    )


def _discard(files: Files, layout: DirectoryLayout) -> None:
    """Take away what was built. Durably: a later copy must not find old names come back."""
    files.remove_tree(building(layout))
    files.sync_directory(layout.root)


def _roll_forward(files: Files, layout: DirectoryLayout, instance: Instance, crash: CrashPoints) -> None:
    """Steps 5 to 7, from wherever they were left."""
    if files.exists(building(layout)):
        if files.exists(layout.wals):
            crash.hit("convert.before_quarantine")
            files.make_directory(layout.quarantine)
            files.rename(layout.wals, _quarantine_name(files, layout, instance))
            files.sync_directory(layout.quarantine)
            files.sync_directory(layout.root)
        crash.hit("convert.before_rename")
        files.rename(building(layout), layout.wals)
    elif not files.exists(layout.wals):
        raise Corrupt(f"the log is gone, and so is {building(layout)}", path=layout.wals)
    files.sync_directory(layout.root)
    crash.hit("convert.before_clear")
    save(files, INSTANCE, layout.instance, msgspec.structs.replace(instance, converted_from=None), crash)


def _quarantine_name(files: Files, layout: DirectoryLayout, instance: Instance) -> str:
    taken = set(files.listdir(layout.quarantine))
    names = (f"wals-{instance.converted_from}.{number}" for number in range(1, len(taken) + 2))
    return f"{layout.quarantine}/{next(name for name in names if name not in taken)}"
