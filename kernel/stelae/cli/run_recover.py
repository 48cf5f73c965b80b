"""Carries out ``stelae recover plan`` and ``stelae recover apply``."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stelae.cli.kit.connection import BadTarget, connect_to_nodes, split
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.name_lookup import pick
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.masters_target import MastersTarget
from stelae.cli.recover_text import print_plan, tablets_text
from stelae.client.connection import Connection
from stelae.recover.execution import RecoveryOutcome, RecoveryResult, apply_plan, until_whole
from stelae.recover.plan import NotPlanned, RecoveryPlan, decode_plan, encode_plan
from stelae.recover.survey import Survey, survey_masters, survey_servers, survey_system_tablet
from stelae.spi.errors import CallerError, ConfigError
from stelae.spi.ids import TabletId
from stelae.spi.recovery_epoch import TAG_MAX


@dataclass(frozen=True, slots=True)
class RecoverTarget:
    """The cluster that the command line names."""

    directory: Path | None
    connect: str
    servers: str
    masters: str
    timeout_s: float
    progress: bool | None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Connect to the nodes of ``--servers`` or ``--masters``, or to masters that serve."""
        if given := self._given():
            async with await connect_to_nodes(given, self.timeout_s) as connection:
                yield connection
        else:
            async with self._serving_masters().masters() as (client, _):
                yield client.connection

    async def survey(self, table: str, line: StatusLine) -> Survey:
        """Ask the cluster what is left of its tablets, or of its system tablet."""
        if given := self._given():
            if table:
                raise BadTarget("--table needs masters that serve; without them, name tablets by --tablet")
            line.show("asking the nodes")
            ask = survey_system_tablet if self.masters else survey_servers
            async with self.connection() as connection:
                return await ask(connection, given, timeout_s=self.timeout_s)
        async with self._serving_masters().masters() as (client, catalog):
            return await survey_masters(
                client.connection, catalog, table=table, timeout_s=self.timeout_s, progress=line.show
            )

    def _serving_masters(self) -> MastersTarget:
        return MastersTarget(self.directory, self.connect, self.timeout_s)

    def _given(self) -> list[str]:
        """Return the addresses of ``--servers`` or ``--masters``; none if masters are to be asked."""
        options = {"--servers": self.servers, "--masters": self.masters, "--connect": self.connect}
        given = [name for name, value in options.items() if value] + ["--dir"] * (self.directory is not None)
        if len(given) > 1 and given != ["--connect", "--dir"]:
            raise BadTarget(f"pass only one of {' and '.join(given)}")
        return split(self.servers or self.masters)


def run_plan(target: RecoverTarget, wanted: Sequence[str], table: str, out: Path | None, *, as_json: bool) -> int:
    """Print the plan, write it if asked to, and return the exit code."""

    async def run() -> Survey:
        with StatusLine(target.progress) as line:
            return await target.survey(table, line)

    survey = asyncio.run(run())
    known: dict[str, str] = {tablet.tablet_id: tablet.tablet_id for tablet in survey.tablets}
    only = {TabletId(pick("tablet", one, known, "stelae tablet list")) for one in wanted}
    plan, healthy = survey.plan(secrets.randbelow(TAG_MAX + 1), time.time_ns() // 1000, only)
    if out is not None:
        _write(out, encode_plan(plan))
    if as_json:
        silent = [{"address": address, "reason": why} for address, why in sorted(survey.silent.items())]
        left = msgspec.to_builtins(healthy) if wanted else []
        print_json({**msgspec.to_builtins(plan), "left_alone": left, "silent_nodes": silent})
    else:
        print_plan(plan, survey.silent)
        _note_left_alone(healthy, wanted)
        if out is not None and plan.tablets:
            note(f"written to {out}; stop the lost nodes for good, then: stelae recover apply {out}")
    return EXIT_FAILED if plan.unrecoverable else EXIT_OK


def _note_left_alone(healthy: Sequence[NotPlanned], wanted: Sequence[str]) -> None:
    if wanted:
        for tablet in healthy:
            note(f"tablet {tablet.tablet_id} is not in the plan: {tablet.why}")
    elif healthy:
        note(f"{tablets_text(len(healthy))} with a majority {'is' if len(healthy) == 1 else 'are'} left alone")


def run_apply(target: RecoverTarget, file: Path, *, yes: bool, wait_s: float, as_json: bool) -> int:
    """Apply a plan and return the exit code: ``EXIT_FAILED`` if a tablet was not, or cannot be, recovered."""
    plan = decode_plan(_read(file))
    outcomes: list[RecoveryOutcome] = []
    incomplete: list[str] = []
    if not as_json and (plan.tablets or plan.unrecoverable):
        print_plan(plan)
    if plan.tablets:
        if not yes:
            _confirm(plan)
        outcomes, incomplete = asyncio.run(_apply(target, plan, wait_s))
    else:
        note("the plan recovers no tablet; there is nothing to do")
    if as_json:
        print_json({"tablets": msgspec.to_builtins(outcomes), "incomplete": incomplete})
    else:
        for outcome in outcomes:
            print(f"{outcome.tablet_id}  {outcome.result}  {outcome.text}")
        for tablet_id in incomplete:
            note(f"tablet {tablet_id} does not have all of its replicas yet; `stelae check` shows what it waits for")
    failed = sum(outcome.result is RecoveryResult.FAILED for outcome in outcomes)
    if target.masters and outcomes and not failed:
        note(f"next: stelae master add HOST:PORT --connect {plan.tablets[0].survivor.address}, for each new master")
    if failed:
        note(f"{tablets_text(failed)} of {len(outcomes)} not recovered; the lines above say what to do next")
    if plan.unrecoverable:
        fact = f"{tablets_text(len(plan.unrecoverable))} without a survivor cannot be recovered"
        note(f"{fact}; start one of its servers again, or restore the table from a backup")
    return EXIT_FAILED if failed or incomplete or plan.unrecoverable else EXIT_OK


async def _apply(target: RecoverTarget, plan: RecoveryPlan, wait_s: float) -> tuple[list[RecoveryOutcome], list[str]]:
    with StatusLine(target.progress) as line:
        ended: list[RecoveryOutcome] = []

        def done(outcome: RecoveryOutcome) -> None:
            ended.append(outcome)
            line.show(f"{len(ended)} of {tablets_text(len(plan.tablets))}")

        async with target.connection() as connection:
            outcomes = await apply_plan(connection, plan, timeout_s=target.timeout_s, done=done)
            recovered = {one.tablet_id for one in outcomes if one.result is not RecoveryResult.FAILED}
            rest = msgspec.structs.replace(plan, tablets=tuple(t for t in plan.tablets if t.tablet_id in recovered))
            if not wait_s:
                return outcomes, []
            return outcomes, [*await until_whole(connection, rest, timeout_s=wait_s, progress=line.show)]


def _confirm(plan: RecoveryPlan) -> None:
    if not sys.stdin.isatty():
        raise CallerError("the recovery may lose acknowledged writes; read the plan, then pass --yes")
    question = f"Recover {tablets_text(len(plan.tablets))}, and give up what is lost? It cannot be undone [y/N]:"
    print(question, end=" ", file=sys.stderr, flush=True)  # Not standard output, which may be the document of --json.
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CallerError("the recovery was not confirmed; nothing was changed")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        again = "make it with `stelae recover plan --out FILE`"
        raise ConfigError(f"cannot read the plan {file}: {error.strerror}; {again}") from error


def _write(file: Path, text: bytes) -> None:
    try:
        file.write_bytes(text)
    except OSError as error:
        raise ConfigError(f"cannot write the plan to {file}: {error.strerror}; choose another file") from error
