"""``stelae-spark`` as a process: backups and restores that are killed, another cluster, damaged files, spark-submit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import AddColumn, Client, DropColumn, RenameColumn, RenameTable, SetDefault, Table, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters

RUN_S = 300.0
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}
SPARK_ARGUMENTS = (
    "--master local[2,3] --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 "
    "--conf spark.driver.host=127.0.0.1 --conf spark.sql.session.timeZone=America/New_York "
    "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'"
)
COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "int64"},
    {"name": "kind", "type": "string"},
    {"name": "Kind", "type": "float", "nullable": True},
    {"name": "celsius, `°C`", "type": "double", "nullable": True},
    {"name": "price", "type": "decimal(20,3)", "nullable": True, "default": Decimal("0.500")},
    {"name": "day", "type": "date", "nullable": True},
    {"name": "at", "type": "timestamp", "nullable": True},
    {"name": "raw", "type": "binary", "nullable": True},
]
"""Two names that are one to Spark, one that needs quotes, and every type that a session could change."""

PARTITION = {
    "hash": [{"columns": ["kind"], "buckets": 2}],
    "range": {"columns": ["id"], "ranges": [{"until": [5000]}, {"from": [5000], "until": [20_000]}]},
}
ROWS = 10_000

SITE = '''
"""Python imports this module when it starts: at the place of the test, the program is killed."""
import os
import re
import signal
from pathlib import Path

marker = Path(os.environ.get("KILL_MARKER", "/nowhere"))


def kill():
    if marker.exists():
        marker.unlink()
        os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)


def kills(module, name, *, before=False):
    """Kill the program before or after a function."""
    function = getattr(module, name)

    def replaced(*arguments, **options):
        if before:
            kill()
        result = function(*arguments, **options)
        kill()
        return result

    setattr(module, name, replaced)


if marker.exists():
    place = marker.read_text()
    if place == "written":
        from stelae_spark_sink.backup import backup_job
        kills(backup_job, "counts_by_file", before=True)
    elif place == "verified":
        from stelae_spark_sink.backup import backup_job
        kills(backup_job, "counts_by_file")
    elif place == "reading":
        from stelae_spark_sink.backup import table_parts
        scan_of = table_parts.scan_of

        def cut(*arguments):
            for batch in scan_of(*arguments):
                yield batch.slice(0, 10)
                kill()

        table_parts.scan_of = cut
    elif place == "created":
        from stelae_spark_sink.backup import restore_job
        kills(restore_job, "_interim_table")
    elif place == "full":
        from stelae_spark_sink.backup import restore_job
        kills(restore_job, "_write_backup")
    elif place == "writing":
        from stelae.client.epoch import AsyncEpoch
        from stelae_spark_sink import task_writer
        write, task_writer.WRITE_ROWS = AsyncEpoch.write, 1000

        async def half(self, *arguments, **options):
            result = await write(self, *arguments, **options)
            kill()
            return result

        AsyncEpoch.write = half
    elif place == "complete":
        from stelae_spark_sink.backup import restore_job
        kills(restore_job, "_check_rows")
'''


def started(folder: Path) -> ClusterWithMasters:
    cluster = ClusterWithMasters.create(
        folder, ClusterOptions(node_count=3, settings=SETTINGS), masters=1, formatted=format_here
    )
    cluster.start()
    return cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWithMasters]:
    """One master and three tablet servers."""
    made = started(tmp_path_factory.mktemp("backups") / "cluster")
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def client(cluster: ClusterWithMasters) -> Iterator[Client]:
    """A client of the cluster."""
    with connect(cluster.addresses) as connected:
        yield connected


class Program:
    """Runs ``stelae-spark``.

    Args:
        folder: for the backups, and for the module that kills the program.
        masters: addresses of the cluster.
    """

    def __init__(self, folder: Path, masters: list[str]) -> None:
        self.backups = folder / "backups"
        self._marker = folder / "kill-at"
        self._site = folder / "site"
        self._site.mkdir()
        (self._site / "sitecustomize.py").write_text(SITE)
        self.connect = ["--connect", ",".join(masters)]

    def start(
        self, *arguments: str, launcher: list[str] | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        grouped = "os.setsid(); os.environ['KILL_GROUP'] = str(os.getpid())"
        start = f"import os, sys; {grouped}; os.execv(sys.argv[1], sys.argv[1:])"
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{SPARK_ARGUMENTS} pyspark-shell",
            "PYTHONPATH": os.pathsep.join([str(self._site), os.environ.get("PYTHONPATH", "")]),
            "KILL_MARKER": str(self._marker),
            **variables,
        }
        command = launcher or [sys.executable, "-m", "stelae_spark_sink.backup"]
        return subprocess.run(
            [sys.executable, "-c", start, *command, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_S if launcher is None else 4 * RUN_S,
            check=False,
        )

    def run(self, *arguments: str, exit_code: int = 0) -> Any:
        """Run to the end, and return what it printed as JSON, or its error."""
        ran = self.start(*arguments, *(["--json"] if not exit_code else []))
        assert ran.returncode == exit_code, ran.stderr[-4000:]
        return ran.stderr if exit_code else json.loads(ran.stdout)

    def run_killed(self, place: str, *arguments: str) -> None:
        """Run until the program is killed at a place."""
        self._marker.write_text(place)
        ran = self.start(*arguments)
        assert not self._marker.exists(), f"the place {place} was not reached:\n{ran.stderr[-4000:]}"
        assert ran.returncode == -signal.SIGKILL, ran.stderr[-4000:]

    def backup(self, table: str, *more: str) -> Any:
        return self.run("backup", table, str(self.backups), *self.connect, *more)

    def restore(self, table: str, *more: str, exit_code: int = 0) -> Any:
        return self.run("restore", table, str(self.backups), *self.connect, *more, exit_code=exit_code)


@pytest.fixture
def program(tmp_path: Path, cluster: ClusterWithMasters) -> Program:
    """The command, with a folder of its own for backups."""
    return Program(tmp_path, [*cluster.addresses])


def row(number: int) -> dict[str, Any]:
    at = datetime(1, 1, 1, 0, 0, 0, number) if number % 2 else datetime(2026, 3, 8, 2, 30)
    usual = [
        number / 7,
        number / 3,
        Decimal(number).scaleb(-3),
        date(1582, 10, 1 + number % 28),
        at,
        str(number).encode(),
    ]
    odd = [float("-inf"), float("nan"), None, None, None, b""]
    values = [number, f"k{number % 5}", *(usual if number % 7 else odd)]
    return dict(zip([str(column["name"]) for column in COLUMNS], values, strict=True))


def contents(table: Table) -> list[str]:
    """All columns and rows, in a form in which NaN equals NaN."""
    rows = table.scan(order="key").to_pylist()
    return [repr([*table.columns.items()]), *(repr(sorted(one.items())) for one in rows)]


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> Iterator[Table]:
    """A table of four tablets with rows."""
    name = f"table of {request.node.name}"[:80]
    created = client.create_table(name, COLUMNS, ["id", "kind"], partition=PARTITION)
    created.insert([row(number) for number in range(ROWS)])
    yield created


def change(client: Client, table: Table) -> Table:
    """Delete and replace rows, and alter the columns; return the altered table."""
    table.delete([{"id": number, "kind": f"k{number % 5}"} for number in range(0, ROWS, 10)])
    unit = AddColumn("unit", "string", default="C")
    client.alter_table(table.name, unit, RenameColumn("price", to="cost"), DropColumn("raw"))
    client.alter_table(table.name, SetDefault("unit", "K"), AddColumn("raw", "timestamp", nullable=True))
    table.refresh()
    table.upsert(
        [{"id": number, "kind": f"k{number % 5}", "cost": Decimal(number)} for number in range(ROWS, ROWS + 100)]
    )
    table.insert({"id": 15_000, "kind": "new", "unit": "F", "raw": datetime(2026, 1, 1)})
    return table


def test_a_table_is_restored_as_of_each_of_its_backups(client: Client, table: Table, program: Program) -> None:
    expected, made = [], []
    name = table.name
    for step in (
        lambda: None,
        lambda: change(client, table),
        lambda: client.alter_table(name, RenameTable(f"{name} 2")),
    ):
        step()
        table.refresh()
        made.append(program.backup(table.name))
        expected.append(contents(table))
    assert [one["kind"] for one in made] == ["full", "incremental", "incremental"]
    listed = program.run("list", str(program.backups))["backups"]
    assert [(one["id"], one["state"]) for one in sorted(listed, key=lambda one: one["at"])] == [
        (one["id"], "whole") for one in made
    ]
    assert all(not one["problems"] for one in program.run("verify", str(program.backups))["backups"])
    for number, one in enumerate(made):
        restored = program.restore(one["table"], "--at", one["time"], "--as", f"restored {number}")
        found = client.table(f"restored {number}")
        assert contents(found) == expected[number]
        assert restored["rows"] == len(expected[number]) - 1 and len(restored["backups"]) == number + 1
        assert (found.partition, found.replicas) == (table.partition, table.replicas)


def test_a_backup_that_is_killed_is_no_backup_and_the_next_one_is_whole(
    client: Client, table: Table, program: Program
) -> None:
    arguments = ["backup", table.name, str(program.backups), *program.connect]
    for place in ("reading", "written", "verified"):
        program.run_killed(place, *arguments)
    full = program.backup(table.name)
    assert full["kind"] == "full"
    change(client, table)
    program.run_killed("reading", *arguments)
    assert program.backup(table.name)["parent"] == full["id"]
    listed = program.run("list", str(program.backups))["backups"]
    assert sorted(one["state"] for one in listed) == ["unfinished"] * 4 + ["whole"] * 2
    program.restore(table.name, "--as", f"{table.name}, restored")
    assert contents(client.table(f"{table.name}, restored")) == contents(table)


def test_a_restore_that_is_killed_anywhere_is_continued_and_never_shows_half_a_table(
    client: Client, table: Table, program: Program
) -> None:
    program.backup(table.name)
    change(client, table)
    program.backup(table.name)
    name = f"{table.name}, restored"
    arguments = ["restore", table.name, str(program.backups), *program.connect, "--as", name]
    for place in ("created", "writing", "full", "writing", "complete"):
        program.run_killed(place, *arguments)
        assert name not in client.tables()
    program.restore(table.name, "--as", name)
    assert contents(client.table(name)) == contents(table)
    assert not [one for one in client.tables() if one.startswith(f"{name}.")]


def test_a_table_is_restored_into_another_cluster_and_replaced_there(
    client: Client, table: Table, program: Program, tmp_path: Path
) -> None:
    program.backup(table.name)
    other = started(tmp_path / "other")
    try:
        program.connect = ["--connect", ",".join(other.addresses)]
        with connect(other.addresses, timeout_s=RUN_S) as there:
            program.restore(table.name, "--replicas", "1")
            restored = there.table(table.name)
            assert (contents(restored), restored.replicas) == (contents(table), 1)
            restored.delete([{"id": 1, "kind": "k1"}])
            assert "there is a table" in program.restore(table.name, exit_code=2)
            program.restore(table.name, "--replace")
            assert contents(there.table(table.name)) == contents(table)
            assert there.tables() == [table.name]
            recalled = there.recall_table(restored.table_id, name="recalled")
            assert recalled.get((1, "k1")) is None and recalled.scan().count() == ROWS - 1
    finally:
        other.kill()


def test_damaged_files_are_found_and_nothing_is_restored(client: Client, table: Table, program: Program) -> None:
    made = program.backup(table.name)
    folder = Path(made["folder"].removeprefix("file:"))
    first, second, *_ = sorted((folder / "rows").glob("*.parquet"))
    (folder / "rows" / f".{first.name}.crc").unlink()  # Without it, only our own checks are left.
    content = bytearray(first.read_bytes())
    content[len(content) // 3] ^= 0xFF
    first.write_bytes(content)
    second.unlink()
    ran = program.start("verify", str(program.backups), "--json")
    (found,) = json.loads(ran.stdout)["backups"]
    assert ran.returncode == 1 and len(found["problems"]) == 2
    assert [name in " ".join(found["problems"]) for name in (first.name, f"{second.name} is missing")] == [True, True]
    tables = client.tables()
    error = program.restore(table.name, "--as", "never", exit_code=1)
    assert "error: " in error and first.name in error and client.tables() == tables
    manifest = folder / "manifest.json"
    (folder / ".manifest.json.crc").unlink()
    manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 1', b'"rows": 2', 1))
    assert "is damaged" in program.restore(table.name, "--as", "never", exit_code=2)
    assert [one["state"] for one in program.run("list", str(program.backups))["backups"]] == ["damaged"]


def test_the_command_runs_in_spark_submit(client: Client, table: Table, program: Program) -> None:
    binaries = Path(sys.executable).parent
    path = subprocess.run(
        [binaries / "stelae-spark", "path"], check=True, capture_output=True, text=True
    ).stdout.strip()
    submit = [str(binaries / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false", path]
    shown = ["--json", "--progress"]
    ran = program.start("backup", table.name, str(program.backups), *program.connect, *shown, launcher=submit)
    assert ran.returncode == 0, ran.stderr[-4000:]
    # spark-submit writes what the program writes to standard error to its own standard output.
    assert json.loads(ran.stdout[ran.stdout.index("\n{\n") :])["rows"] == ROWS
    lines = [line for line in ran.stdout.splitlines() if f"full backup of {table.name}: done after" in line]
    assert [line.startswith("verifying the ") for line in lines] == [False, True]


def test_the_page_on_backups_runs_as_written(
    client: Client, cluster: ClusterWithMasters, program: Program, tmp_path: Path
) -> None:
    created = client.create_table("readings", COLUMNS, ["id", "kind"], partition=PARTITION)
    created.insert([row(number) for number in range(ROWS)])
    page = Path(__file__).parents[2] / "docs/howto/back-up-and-restore.md"
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 4
    script = re.sub(r"(?<= )/backups\b", str(program.backups), "".join(blocks)).replace("~/try", str(cluster.directory))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = program.start("-euc", script, launcher=["/bin/sh"], PATH=path)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "removed file:" in ran.stdout
    assert contents(client.table("readings")) == contents(client.table("readings-restored"))
    assert client.table("readings").table_id != created.table_id
