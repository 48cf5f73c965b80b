"""Carries out ``stelae recover catalog``."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.name_lookup import pick
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.masters_target import MastersTarget
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.client.counted import counted
from stelae.recover.catalog_plan import CatalogPlan, FoundTable, plan_catalog
from stelae.recover.catalog_rebuild import CatalogSurvey, begin_epoch, hand_over, survey_catalog
from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.recovery_epoch import TAG_MAX


@dataclass(frozen=True, slots=True)
class CatalogWish:
    """What the user wants in the catalog, as the options say it."""

    names: Sequence[str]  #: ``TABLE_ID=NAME``.
    left_out: Sequence[str]  #: Tablet ids.
    create_missing: bool

    def plan(self, survey: CatalogSurvey) -> CatalogPlan:
        """Return the plan. Raises ``CallerError`` if an option names no table or tablet that is found."""
        found = plan_catalog(survey.replicas, known=survey.known)
        tables: dict[str, str] = {table.table_id: table.table_id for table in found.tables}
        tablets: dict[str, str] = {tablet: tablet for table in found.tables for tablet in table.tablets}
        names = {}
        for given in self.names:
            table_id, equals, name = given.partition("=")
            if not equals or not name:
                raise CallerError(f"--name {given!r}: expected TABLE_ID=NAME, as --name 3f9c1a20=readings")
            names[pick("table", table_id, tables, "stelae recover catalog")] = name
        left_out = {TabletId(pick("tablet", one, tablets, "stelae recover catalog")) for one in self.left_out}
        return plan_catalog(
            survey.replicas, known=survey.known, names=names, left_out=left_out, create_missing=self.create_missing
        )


def run_recover_catalog(
    target: MastersTarget,
    servers: Sequence[str],
    wish: CatalogWish,
    *,
    apply: bool,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Print what the servers have that the catalog does not, adopt it if asked to, and return the exit code."""

    async def run() -> tuple[CatalogSurvey, CatalogPlan, dict[str, str]]:
        with StatusLine(progress) as line:
            async with target.masters() as (client, catalog):
                survey = await survey_catalog(
                    client.connection, catalog, servers, timeout_s=target.timeout_s, progress=line.show
                )
                plan = wish.plan(survey)
                if not apply:
                    return survey, plan, {}
                return survey, plan, await _adopt(client.connection, catalog, survey, plan, target.timeout_s, line)

    survey, plan, results = asyncio.run(run())
    if as_json:
        print_json(_plain(survey, plan, results))
    else:
        _print(survey, plan, results, apply)
        if not apply and (survey.astray or any(table.adoption for table in plan.tables)):
            note("nothing was changed; hand over these servers, and adopt these tables, with the option --apply")
        if apply and survey.needs_epoch:
            note("next: stelae master add HOST:PORT, for each further master; then: stelae check")
    failed = survey.silent or plan.unreadable or any(table.problems for table in plan.tables)
    return EXIT_FAILED if failed or any(results.values()) else EXIT_OK


async def _adopt(
    connection: Connection,
    catalog: CatalogClient,
    survey: CatalogSurvey,
    plan: CatalogPlan,
    timeout_s: float,
    line: StatusLine,
) -> dict[str, str]:
    """Adopt the tables of the plan. Return for each table id why it was not adopted; empty if it was."""
    if survey.needs_epoch:
        line.show("the master begins a recovery epoch")
        await begin_epoch(connection, survey, secrets.randbelow(TAG_MAX + 1), timeout_s=timeout_s)
    if survey.astray:
        line.show(f"handing {counted(len(survey.astray), 'server')} to the new masters")
        await hand_over(connection, catalog, survey, timeout_s=timeout_s)
    results: dict[str, str] = {}
    adopted = [table.adoption for table in plan.tables if table.adoption is not None]
    for adoption in adopted:
        line.show(f"adopting table {len(results) + 1} of {len(adopted)}")
        try:
            await catalog.change(adoption, timeout_s=timeout_s)
        except StelaeError as error:
            results[adoption.table_id] = str(error)
        else:
            results[adoption.table_id] = ""
    return results


def _plain(survey: CatalogSurvey, plan: CatalogPlan, results: dict[str, str]) -> dict[str, Any]:
    return {
        "begins_epoch": survey.needs_epoch,
        "servers_of_the_lost_catalog": list(survey.astray),
        "silent_servers": [{"address": address, "reason": why} for address, why in sorted(survey.silent.items())],
        "unreadable_tablets": [{"tablet_id": tablet, "reason": why} for tablet, why in plan.unreadable],
        "tables": [
            {
                "table_id": table.table_id,
                "name": table.name,
                "columns": list(table.columns),
                "tablets": list(table.tablets),
                "missing_partitions": table.missing,
                "replicas": table.replication_factor,
                "problems": list(table.problems),
                "adopted": results.get(table.table_id) == "",
                "error": results.get(table.table_id, ""),
            }
            for table in plan.tables
        ],
    }


def _print(survey: CatalogSurvey, plan: CatalogPlan, results: dict[str, str], apply: bool) -> None:
    for table in plan.tables:
        print("\n".join(_table_lines(table, results.get(table.table_id))), end="\n\n")
    for address in survey.astray:
        print(f"server {address}: {'handed to' if apply else 'does not follow'} the masters of this catalog")
    for tablet, why in plan.unreadable:
        print(f"tablet {tablet}: no replica can be read: {why}")
    for address, why in sorted(survey.silent.items()):
        note(f"server {address} does not answer, so what only it has is not here: {why}")
    if not plan.tables and not plan.unreadable:
        note("the catalog has every tablet that the servers have; there is nothing to adopt")


def _table_lines(table: FoundTable, result: str | None) -> list[str]:
    what = f"{counted(len(table.tablets), 'tablet')} of {counted(table.replication_factor, 'replica')}"
    lines = [f"table {table.table_id}, to be called {table.name}: {what}", f"  columns: {', '.join(table.columns)}"]
    lines += [f"  CANNOT BE ADOPTED: {problem}" for problem in table.problems]
    if table.missing and not table.problems:
        lines.append(f"  {counted(table.missing, 'partition')} without a tablet: created empty")
    if result is not None:
        lines.append(f"  not adopted: {result}" if result else "  adopted")
    return lines
