"""Converts all logs of a node to another engine: builds a new ``wals/`` beside the old one, and commits by one record.

The steps of :func:`convert`. A crash may happen after each of them.

1. The old engine opens ``wals/`` and recovers its logs. Every entry is read. A damaged log is refused.
2. The new engine opens ``wals.converting/``. Every log is created there, with its base, entries and commit hint.
3. The new engine is closed, opened again and compared with the old one, entry by entry. Both are closed.
4. **Commit point:** the instance file is replaced. It names the new engine, and the old one as ``converted_from``.
5. ``wals/`` moves to ``quarantine/wals-<old engine>.<number>``.
6. ``wals.converting/`` becomes ``wals/``.
7. The instance file is replaced. It no longer has ``converted_from``.

:func:`settle` finishes a conversion that was interrupted. Before step 4 it removes the incomplete directory, after step
4 it does steps 5 to 7.

Ordering and durability
    The logs of step 2 and the name of their directory are durable before step 4. Step 5 is durable before step 6, and
    step 6 before step 7. So if the instance file has ``converted_from``, the new log has one of its two names.
    Superblocks name a tablet's log by its generation, which the copy keeps. So no superblock changes. The mark of a
    clean shutdown does not change either, because it describes the node and not this command."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass

import msgspec

from stelae.convert.copying import compare_logs, copy_logs
from stelae.convert.log_check import LogReport, check_logs, problem_counts
from stelae.convert.offline import SILENT, ProgressMeter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import INSTANCE, Instance, InstanceFile
from stelae.host.metadata_files import NO_CRASH, CrashPoints, save
from stelae.host.settings import ChosenEngine
from stelae.spi.errors import CallerError, Corrupt, Full, StelaeError, StorageError
from stelae.spi.log import ENTRY_OVERHEAD_BYTES
from stelae.spi.services import EngineServices, Files

SPACE_FACTOR = 2
"""Bytes of space for each byte of entries. An engine with pages takes two for an entry above half a page."""
SPACE_PER_LOG_BYTES = 64 << 10
"""Space for the files, names and tables of one log."""
SPACE_FIXED_BYTES = 128 << 20
"""Space that engines reserve ahead: two of the largest segments of our engines by default."""


@dataclass(frozen=True, slots=True)
class ConversionPaths:
    """A node's directory, whose lock the caller holds, and the services for engines in it."""

    layout: DirectoryLayout
    services: EngineServices
    crash: CrashPoints = NO_CRASH


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    """What a conversion copies, and how much free space it needs."""

    logs: int
    entries: int
    body_bytes: int
    space_wanted_bytes: int
    space_left_bytes: int


def building(layout: DirectoryLayout) -> str:
    """Return the directory in which the new log is built. Its name has a dot, so no tablet and no engine uses it."""
    return f"{layout.wals}.converting"


def convert(
    place: ConversionPaths,
    source: ChosenEngine,
    target: ChosenEngine,
    meter: ProgressMeter = SILENT,
    *,
    dry_run: bool = False,
) -> ConversionPlan:
    """Convert every log to ``target``, after :func:`settle`. With ``dry_run``, only step 1 is done.

    The old log stays in quarantine. After an error before the commit point, the node still uses the old log. After a
    later error, :func:`settle` must finish the conversion.

    Raises:
        CallerError: the log is not of engine ``source``, or is already of ``target``.
        Corrupt: a log is damaged; nothing was changed.
        Full: there is not enough space; nothing was changed.
        StorageError: a file could not be read, written or moved, or the copy differs."""
    files, layout = place.services.files, place.layout
    settle(files, layout, place.crash)
    instance = InstanceFile(files, layout).load()
    if instance.wal_engine != source.name or target.name == source.name:
        fact = f"the log of {layout.root} is of engine {instance.wal_engine!r}"
        raise CallerError(f"{fact}: it cannot be converted from {source.name!r} to {target.name!r}")
    try:
        plan = _build(place, source, target, meter, dry_run)
    except (StelaeError, OSError, KeyboardInterrupt):
        with suppress(StelaeError, OSError):  # The next start removes what cannot be removed now.
            _discard(files, layout)
        raise
    if dry_run:
        return plan
    place.crash.hit("convert.before_commit")
    pending = msgspec.structs.replace(instance, wal_engine=target.name, converted_from=source.name)
    try:
        save(files, INSTANCE, layout.instance, pending, place.crash)
    except Full:  # The old instance file is unchanged, and the copy may be what fills the disk.
        _discard(files, layout)
        raise
    settle(files, layout, place.crash)
    return plan


def settle(files: Files, layout: DirectoryLayout, crash: CrashPoints = NO_CRASH) -> str:
    """Finish or undo a conversion that was interrupted; return a description of what was done, or ``""``.

    Repeating it is harmless. The caller holds the lock of the directory, and nothing has opened ``wals/``.

    Raises:
        NotFormatted, StorageError: as ``InstanceFile.load``; or a directory could not be moved or removed.
        Corrupt: there is no ``wals/`` and no complete copy."""
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
    """Refuse to convert damaged logs, because a copy could not show that entries are missing.

    Raises:
        Corrupt: names every damaged log, and what to do.
        StorageError: no log is damaged, but some cannot be read now."""
    bad = [f"{report.log}: {report.problem}" for report in reports if report.problem is not None]
    if any(report.problem is not None and report.problem.damage for report in reports):
        advice = "replace these replicas from their peers while the node runs on its present engine, then convert"
        raise Corrupt(f"{problem_counts(reports)}; {advice}\n" + "\n".join(bad))
    if bad:
        raise StorageError(f"{problem_counts(reports)}; repair the disk and try again\n" + "\n".join(bad))


def _build(
    place: ConversionPaths, source: ChosenEngine, target: ChosenEngine, meter: ProgressMeter, dry_run: bool
) -> ConversionPlan:
    """Do steps 1 to 3."""
    files, layout = place.services.files, place.layout
    with ExitStack() as stack:
        old = source.engine.open(layout.wals, source.config, place.services)
        stack.callback(old.close)
        reports = check_logs(old, meter)
        check_source(reports)
        plan = _plan(reports, files.space_left(layout.root))
        if plan.space_left_bytes < plan.space_wanted_bytes:
            fact = f"a copy needs {plan.space_wanted_bytes} bytes of space, {plan.space_left_bytes} are left"
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
    """Remove the copy durably, so that a crash cannot bring back its files for a later copy."""
    files.remove_tree(building(layout))
    files.sync_directory(layout.root)


def _roll_forward(files: Files, layout: DirectoryLayout, instance: Instance, crash: CrashPoints) -> None:
    """Do steps 5 to 7, as far as they are not done.

    A process that was killed may have renamed the instance file and not yet synced its name."""
    files.sync_directory(layout.root)
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
