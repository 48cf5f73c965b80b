"""Files into tables and out again, by the commands alone, on real nodes; importing processes are really killed."""

from __future__ import annotations

import csv
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from typer.testing import CliRunner

from stelae.cli.kit.errors import exit_code
from stelae.cli.main import build_app
from stelae.cli.node_formatting import format_here
from stelae.client import connect
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.ports import free_ports
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId
from tests.e2e.starting import start
from tests.e2e.test_client import leader_of
from tests.e2e.test_tutorial import end_all_of

STELAE = [sys.executable, "-m", "stelae"]
RUN_S = 120
WAIT_S = 60
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}
COLUMNS = [
    {"name": "sensor", "type": "int32"},
    {"name": "minute", "type": "int64"},
    {"name": "celsius", "type": "double", "nullable": True},
    {"name": "note", "type": "string", "nullable": True},
]
WIDE = 300


class Done(NamedTuple):
    """What a command left behind."""

    stdout: str
    stderr: str


def stelae(cluster: LocalCluster, *words: str, code: int = 0) -> Done:
    """Run a command against real nodes, in this process: dozens of interpreters would take longer than what they do."""
    done = CliRunner().invoke(build_app(words[0]), [*words], env=where(cluster))
    errors, exited = done.stderr, done.exit_code
    if isinstance(done.exception, StelaeError):
        errors, exited = f"{errors}error: {done.exception}\n", exit_code(done.exception)
    assert exited == code, f"{words}: {exited} {done.exception!r}\n{done.stdout[-2000:]}\n{errors[-2000:]}"
    return Done(done.stdout, errors)


def where(cluster: LocalCluster) -> dict[str, str]:
    """The environment in which commands need not be told where the cluster is."""
    return {**os.environ, "STELAE_CONNECT": ",".join(cluster.addresses), "COLUMNS": "80", "LINES": "24"}


def started(folder: Path, columns: list[dict[str, Any]], key: list[str], nodes: int) -> LocalCluster:
    spec = TabletSpec(tablet_id=TabletId("readings"), columns=columns, key=key)
    options = ClusterOptions(node_count=nodes, settings=SETTINGS)
    return start(LocalCluster.create(folder, spec, options, formatted=format_here))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes with one table, ``readings``."""
    made = started(tmp_path_factory.mktemp("three") / "cluster", COLUMNS, ["sensor", "minute"], 3)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node with a table of 300 columns."""
    columns = [{"name": "id", "type": "int64"}]
    columns += [{"name": f"c{n}", "type": "string", "nullable": True} for n in range(1, WIDE)]  # type: ignore[dict-item]
    made = started(tmp_path_factory.mktemp("wide") / "cluster", columns, ["id"], 1)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test of the three nodes leaves the table as it found it: without rows."""
    yield
    if "cluster" in request.fixturenames:
        with connect(request.getfixturevalue("cluster").addresses) as client:
            table = client.table("readings")
            table.delete(table.scan(list(table.key)).to_arrow())


def rows(sensor: int, count: int) -> pa.Table:
    return pa.table(
        {
            "sensor": pa.array([sensor] * count, pa.int32()),
            "minute": pa.array(range(count), pa.int64()),
            "celsius": pa.array([None if n % 7 == 0 else n / 4 for n in range(count)]),
            "note": pa.array([None if n % 5 == 0 else f'n°{n}, "said"\n' if n % 3 else "" for n in range(count)]),
        }
    )


def content(cluster: LocalCluster) -> pa.Table:
    """The table, in key order."""
    with connect(cluster.addresses) as client:
        return client.table("readings").scan(order="key").to_arrow()


def same(found: pa.Table, expected: pa.Table) -> bool:
    return bool(found.combine_chunks().cast(expected.schema).equals(expected.combine_chunks()))


def comes_true(process: subprocess.Popen[Any], ready: Callable[[], bool]) -> bool:
    """Wait until something holds while a process runs; false if the process was done before, or it took too long."""
    deadline = time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(0.002)  # What other processes write to disk and table is looked at: neither tells.
    return False


def killed_when(cluster: LocalCluster, words: list[str], ready: Callable[[], bool]) -> bool:
    """Start an import and kill it with SIGKILL once something holds; false if it was done before."""
    process = subprocess.Popen([*STELAE, *words], env=where(cluster), stderr=subprocess.DEVNULL)
    comes_true(process, ready)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def positions(journal: Path) -> list[dict[str, int]]:
    """The whole lines of a journal behind the first."""
    if not journal.exists():
        return []
    *lines, _ = journal.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[1:]]


@pytest.mark.parametrize("mode", ["upsert", pytest.param("insert", marks=pytest.mark.long)])
def test_an_import_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    cluster: LocalCluster, tmp_path: Path, mode: str
) -> None:
    count = 100_000 if mode == "upsert" else 40_000  # Rows that are there already are read back one by one.
    source = rows(1, count)
    path = tmp_path / "readings.csv"
    arrow_csv.write_csv(source, path)
    with path.open("ab") as file:
        file.write(b"1,oops,1,x\n")
    journal = tmp_path / "readings.csv.readings.import"
    words = ["import", str(path), "--mode", mode]
    assert killed_when(cluster, words, lambda: bool(positions(journal)))
    assert positions(journal)[-1]["reserved"] > 0
    with connect(cluster.addresses) as client:
        table = client.table("readings")
        again = killed_when(cluster, words, lambda: table.get((1, count // 4)) is not None)
    if again:  # Else it was done before anybody looked, and the rows are there all the same.
        done = json.loads(stelae(cluster, *words, "--json", code=1).stdout)
        assert (done["rows"], done["written"], done["bad"]) == (count + 1, count, 1)
    (bad,) = (tmp_path / "readings.csv.readings.bad.jsonl").read_text().splitlines()
    assert json.loads(bad)["row"] == count + 1
    assert "expected int64, got 'oops'" in json.loads(bad)["reason"]
    assert not journal.exists()
    assert same(content(cluster), source)


def test_an_import_goes_on_when_the_leader_dies_under_it(cluster: LocalCluster, tmp_path: Path) -> None:
    source = rows(2, 80_000)
    path = tmp_path / "readings.parquet"
    parquet.write_table(source, path)
    journal = tmp_path / "readings.parquet.readings.import"
    victim = leader_of(cluster)
    process = subprocess.Popen(
        [*STELAE, "import", str(path), "--json"], env=where(cluster), stdout=subprocess.PIPE, text=True
    )
    is_under_way = comes_true(process, lambda: bool(positions(journal)))
    victim.kill()
    assert is_under_way, "the import was done before its leader could die"
    out, _ = process.communicate(timeout=RUN_S)
    victim.start()
    assert process.returncode == 0 and json.loads(out)["written"] == 80_000
    assert same(content(cluster), source)


def test_what_is_exported_and_imported_again_is_the_same(cluster: LocalCluster, tmp_path: Path) -> None:
    source = rows(3, 2000)
    parquet.write_table(source, tmp_path / "source.parquet")
    stelae(cluster, "import", str(tmp_path / "source.parquet"))
    for name in ("a.csv.gz", "a.jsonl.zst", "a.parquet"):
        path = tmp_path / name
        done = json.loads(stelae(cluster, "export", str(path), "--json").stdout)
        assert done["rows"] == 2000 and done["at"] > 0, name
        gone = stelae(cluster, "import", str(path), "--mode", "delete").stdout
        assert gone.startswith(f"{path} -> readings: 2,000 rows written (delete)\n")
        assert content(cluster).num_rows == 0
        stelae(cluster, "import", str(path), "--mode", "insert")
        assert same(content(cluster), source), name
    again = stelae(cluster, "export", str(path), code=2)
    assert "replace it with --overwrite" in again.stderr
    stelae(cluster, "import", str(path), "--mode", "delete")
    assert stelae(cluster, "scan", "--count", "--at", str(done["at"])).stdout == "2000\n"


def test_rows_that_cannot_be_taken_are_told_and_the_rest_is_there(cluster: LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "odd.csv.gz"
    lines = ["sensor,minute,celsius,note", "4,1,nan,a", "4,1,2.5,b", "4", "4,3,inf,c", ",4,1,d", "4,5,warm,e"]
    lines += ["99999999999,6,1,f", "4,7,1,\udcff", "4,8,1e999,g", "4,9,,"]
    path.write_bytes(gzip.compress("\n".join(lines).encode(errors="surrogateescape")))
    done = stelae(cluster, "import", str(path), "--json", code=1)
    document = json.loads(done.stdout)
    assert (document["rows"], document["written"], document["bad"]) == (10, 4, 6)
    told = [json.loads(line) for line in Path(document["bad_rows_file"]).read_text().splitlines()]
    assert [(row["row"], row["code"]) for row in told] == [
        (3, "RAGGED"),
        (5, "BAD_VALUE"),
        (6, "BAD_VALUE"),
        (7, "BAD_VALUE"),
        (8, "BAD_VALUE"),
        (9, "BAD_VALUE"),
    ]
    assert "expected int32, got null" in told[1]["reason"]
    found = json.loads(stelae(cluster, "scan", "--json").stdout)["rows"]
    assert found == [[4, 1, 2.5, "b"], [4, 3, "Infinity", "c"], [4, 9, None, None]]


def test_json_lines_of_several_kinds_are_judged_by_the_table_that_is_there(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """One value of another kind among the first rows refused the whole file."""
    path = tmp_path / "kinds.jsonl"
    lines = ['{"sensor": 1, "minute": 1, "note": "a"}', '{"sensor": "x", "minute": 1}', '{"sensor": 1, "minute": [2]}']
    path.write_text("\n".join([*lines, '{"sensor": 1, "minute": 3, "note": {"a": 1}}', '{"sensor": 1, "minute": 4}']))
    done = json.loads(stelae(cluster, "import", str(path), "--json", code=1).stdout)
    assert (done["rows"], done["written"], done["bad"]) == (5, 2, 3)
    told = [json.loads(line) for line in Path(done["bad_rows_file"]).read_text().splitlines()]
    assert [(row["row"], row["code"]) for row in told] == [(2, "BAD_VALUE"), (3, "BAD_VALUE"), (4, "BAD_VALUE")]
    refused = stelae(cluster, "import", str(path), "--table", "other", "--key", "sensor", code=2).stderr
    assert "no table 'other'" in refused and "has values of the kinds" in refused


def test_a_table_is_scanned_got_and_queried(cluster: LocalCluster, tmp_path: Path) -> None:
    parquet.write_table(rows(5, 1000), tmp_path / "a.parquet")
    before = json.loads(stelae(cluster, "import", str(tmp_path / "a.parquet"), "--json").stdout)["timestamp"]
    (tmp_path / "b.csv").write_text("sensor,minute,note\n5,1,changed\n")
    stelae(cluster, "import", str(tmp_path / "b.csv"), "--mode", "update")

    text = ["scan", "--where", "minute >= 997 and celsius is not null", "--columns", "minute,celsius"]
    assert stelae(cluster, *text).stdout == "minute\tcelsius\n997\t249.25\n998\t249.5\n999\t249.75\n"
    assert stelae(cluster, *text, "--format", "csv", "--limit", "1").stdout == '"minute","celsius"\n997,249.25\n'
    assert json.loads(stelae(cluster, *text, "--json").stdout)["rows"][0] == [997, 249.25]
    twice = [*text[:2], "minute >= 997", "--where", "celsius < 249.6", "--columns", "minute"]
    assert stelae(cluster, *twice).stdout == "minute\n997\n998\n"
    table = stelae(cluster, *text, "--format", "table").stdout
    assert table == "minute  celsius\n   997   249.25\n   998    249.5\n   999   249.75\n"
    stelae(cluster, *text, "--output", str(tmp_path / "c.parquet"))
    assert parquet.read_table(tmp_path / "c.parquet").num_rows == 3
    piped = subprocess.run([*STELAE, *text, "--format", "parquet"], capture_output=True, env=where(cluster))
    assert parquet.read_table(pa.BufferReader(piped.stdout)).num_rows == 3

    assert "note     changed\n" in stelae(cluster, "get", "5", "1").stdout
    old = json.loads(stelae(cluster, "get", "5", "1", "--at", str(before), "--json").stdout)
    assert old == {"found": True, "row": {"sensor": 5, "minute": 1, "celsius": 0.25, "note": 'n°1, "said"\n'}}
    assert "has no row with sensor = -5, minute = -1" in stelae(cluster, "get", "-5", "-1", code=1).stderr
    assert "has no row with sensor = 5, minute = 5000" in stelae(cluster, "get", "5", "5000", code=1).stderr

    query = "SELECT count(*) AS n, max(minute) AS last FROM readings WHERE minute < 500 AND note IS NOT NULL"
    done = stelae(cluster, "sql", query, "--json", "--explain")
    assert json.loads(done.stdout) == {"columns": ["n", "last"], "rows": [[400, 499]]}
    assert "scan of readings: columns minute, note; " in done.stderr and "; 400 rows read" in done.stderr
    assert "minute < 500" in done.stderr and "note is not null" in done.stderr
    joined = f"SELECT sum(b.minute) FROM readings a JOIN '{tmp_path / 'b.csv'}' b USING (sensor, minute)"
    assert stelae(cluster, "sql", joined, "--format", "csv").stdout.splitlines()[1] == "1"
    changed = ["scan", "--since", str(before), "--columns", "minute,note"]
    assert stelae(cluster, *changed).stdout == "sensor\tminute\tnote\tis_deleted\n5\t1\tchanged\tfalse\n"
    counted = "SELECT count(*) FROM readings WHERE note = 'changed'"
    assert stelae(cluster, "sql", counted, "--at", str(before)).stdout.splitlines()[1] == "0"


def test_changes_are_printed_and_exported_in_every_form_and_go_on_from_each_other(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("sensor,minute,note\n6,1,a\n6,2,b\n6,3,c\n")
    began = json.loads(stelae(cluster, "import", str(tmp_path / "a.csv"), "--json").stdout)["timestamp"]
    (tmp_path / "b.csv").write_text("sensor,minute,note\n6,1,aa\n6,4,d\n")
    stelae(cluster, "import", str(tmp_path / "b.csv"))
    (tmp_path / "c.csv").write_text("sensor,minute\n6,2\n")
    stelae(cluster, "import", str(tmp_path / "c.csv"), "--mode", "delete")
    since = ["--since", str(began), "--columns", "note"]
    expected = [[6, 1, "aa", False], [6, 2, None, True], [6, 4, "d", False]]
    done = stelae(cluster, "scan", *since, "--json")
    columns = ["sensor", "minute", "note", "is_deleted"]
    assert json.loads(done.stdout) == {"columns": columns, "rows": expected}
    assert stelae(cluster, "scan", *since, "--count").stdout == "3\n"
    assert stelae(cluster, "scan", *since, "--limit", "1", "--format", "jsonl").stdout == (
        '{"sensor":6,"minute":1,"note":"aa","is_deleted":false}\n'
    )
    for form in ("table", "lines", "text", "csv", "tsv", "jsonl"):
        assert "aa" in stelae(cluster, "scan", *since, "--format", form).stdout
    for ending, read in (("parquet", parquet.read_table), ("arrow", read_arrow)):
        stelae(cluster, "scan", *since, "--output", str(tmp_path / f"d.{ending}"))
        assert [list(row.values()) for row in read(tmp_path / f"d.{ending}").to_pylist()] == expected
    exported = json.loads(stelae(cluster, "export", str(tmp_path / "e.parquet"), *since, "--json").stdout)
    assert exported["rows"] == 3 and parquet.read_table(tmp_path / "e.parquet").num_rows == 3
    found = re.search(r"--since (\d+)", done.stderr)
    assert found is not None
    assert int(found[1]) == exported["at"]
    assert stelae(cluster, "scan", "--since", found[1], "--count").stdout == "0\n"
    stelae(cluster, "import", str(tmp_path / "a.csv"), "--mode", "insert-ignore")
    assert stelae(cluster, "scan", "--since", found[1], "--columns", "note").stdout.splitlines()[1:] == [
        "6\t2\tb\tfalse"
    ]


def read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scan", "--where", "celsus > 1"], "did you mean 'celsius'"),
        (["scan", "--columns", "minut"], "the table has: sensor, minute, celsius, note; did you mean 'minute'"),
        (["scan", "--table", "nowhere"], "no table 'nowhere'; there are: readings"),
        (["scan", "--since", "5m", "--where", "minute > 1"], "remove --where and filter the output"),
        (["scan", "--since", "2026-06-02T00:00", "--at", "2026-06-01T00:00"], "since must not be after until"),
        (["scan", "readings"], "unexpected argument 'readings'; pass a table as --table readings"),
        (["get", "readings", "-5", "1"], "'readings' is a table; pass it as --table readings"),
        (["export", "-", "--format", "csv"], "not '-'; to print rows: stelae scan --format csv"),
        (["get", "5"], "the key is sensor (int32), minute (int64): pass 2 values, not 1"),
        (["sql", "SELECT * FROM readngs"], "the tables are: readings"),
    ],
)
def test_wrong_usage_says_what_is_known_and_changes_nothing(cluster: LocalCluster, words: list[str], says: str) -> None:
    done = stelae(cluster, *words, code=2)
    assert says in done.stderr and done.stdout == ""


def test_a_table_that_differs_or_is_missing_is_told_with_what_would_describe_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    path = tmp_path / "other.csv"
    path.write_text("sensor,minute,kelvin\n1,2,300.5\n")
    done = stelae(cluster, "import", str(path), code=2)
    assert "column 'kelvin' is not in the table" in done.stderr and "--skip-unknown" in done.stderr
    assert "1 row written" in stelae(cluster, "import", str(path), "--skip-unknown").stdout
    missing = stelae(cluster, "import", str(path), "--table", "other", "--key", "sensor", code=2)
    assert "no table 'other'; there are: readings" in missing.stderr
    assert '{ name = "kelvin", type = "double", nullable = true }' in missing.stderr
    assert stelae(cluster, "import", str(path), "--dry-run", "--skip-unknown").stdout.endswith("nothing was written\n")


def test_a_file_without_rows_makes_no_table_and_changes_none(cluster: LocalCluster, tmp_path: Path) -> None:
    """All columns of the table that it made were text."""
    path = tmp_path / "readings.csv"
    for text in ("sensor,minute", "sensor,minute\n"):
        path.write_text(text)
        for words in (["--table", "other", "--key", "sensor"], ["--show-schema"], ["--table", "other", "--dry-run"]):
            said = stelae(cluster, "import", str(path), *words, code=2).stderr
            assert "has no rows to infer the types of sensor, minute from" in said
            assert "stelae table create" in said
        assert "0 rows written" in stelae(cluster, "import", str(path)).stdout
        assert stelae(cluster, "import", str(path), "--dry-run").stdout.endswith("0 rows, 0 bad; nothing was written\n")
        assert json.loads(stelae(cluster, "import", str(path), "--json").stdout)["rows"] == 0
    parquet.write_table(rows(1, 0), tmp_path / "typed.parquet")
    assert (
        '"minute", type = "int64"'
        in stelae(cluster, "import", str(tmp_path / "typed.parquet"), "--show-schema", "--key", "minute").stdout
    )
    parquet.write_table(pa.table({}), tmp_path / "nothing.parquet")
    assert "has no columns" in stelae(cluster, "import", str(tmp_path / "nothing.parquet"), code=2).stderr


def test_whole_numbers_beyond_64_bits_make_a_key_and_numbers_with_a_fraction_make_none_unasked(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The key became a double: of three rows that were written two were there."""
    path = tmp_path / "wide.csv"
    path.write_text("id,x\n12345678901234567890,0.5\n12345678901234567891,1.5\n18446744073709551615,2.5\n")
    design = stelae(cluster, "import", str(path), "--show-schema", "--key", "id").stdout
    assert '"id", type = "decimal(38,0)"' in design and '"x", type = "double"' in design
    for words in (["--show-schema"], ["--dry-run", "--table", "wide"], ["--table", "wide"]):
        said = stelae(cluster, "import", str(path), *words, "--key", "x", code=2).stderr
        assert "key column 'x' has numbers with a fraction or an exponent, whose type must be chosen" in said
        assert "stelae table create wide --column x:TYPE ... --key x" in said
    assert "unique in the first rows: id" in stelae(cluster, "import", str(path), "--show-schema", code=2).stderr
    parquet.write_table(pa.table({"x": [0.5]}), tmp_path / "typed.parquet")
    assert "double" in stelae(cluster, "import", str(tmp_path / "typed.parquet"), "--show-schema", "--key", "x").stdout


def test_rows_of_one_key_that_would_be_gone_without_a_word_are_told(cluster: LocalCluster, tmp_path: Path) -> None:
    """Six rows were written, said the command, and two of them were there."""
    path = tmp_path / "readings.csv"
    path.write_text("sensor,minute,note\n1,1,a\n1,2,b\n1,1,c\n")
    told = "1 of the first 3 rows have the key (sensor, minute) of an earlier row, and replace it"
    assert f"{told}; --key note would be unique in these rows" in stelae(cluster, "import", str(path)).stderr
    assert "and replace it" in stelae(cluster, "import", str(path), "--dry-run").stderr
    assert "2 of the first 3 rows" in stelae(cluster, "import", str(path), "--show-schema", "--key", "sensor").stderr
    assert "and are skipped" in stelae(cluster, "import", str(path), "--mode", "insert-ignore").stderr
    assert "of the first" not in stelae(cluster, "import", str(path), "--mode", "update").stderr
    path.write_text("sensor,minute\n1,1\n1,2\n2,1\n")
    assert "of the first" not in stelae(cluster, "import", str(path)).stderr
    assert (
        "; unique in the first rows: sensor,minute together"
        in stelae(cluster, "import", str(path), "--show-schema", code=2).stderr
    )
    path.write_text("sensor,minute,celsius\n1,1,2.5\n1,2,NA\n2,1,3\n")
    design = stelae(cluster, "import", str(path), "--show-schema", "--key", "sensor,minute")
    fact = "column 'celsius' becomes string: 1 of the first 3 values are not of type double, such as 'NA'"
    told = f"{fact}; --null NA reads it as null"
    assert told in design.stderr and '"celsius", type = "string"' in design.stdout
    design = stelae(cluster, "import", str(path), "--show-schema", "--key", "sensor,minute", "--null", "NA")
    assert "becomes string" not in design.stderr and '"celsius", type = "double"' in design.stdout
    path.write_text("sensor;minute\n1;1\n")
    assert "pass --delimiter ';'" in stelae(cluster, "import", str(path), code=2).stderr


def test_a_table_of_300_columns_is_readable_on_a_terminal(wide: LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"c{n}" for n in range(1, WIDE))])
        for n in range(3):
            writer.writerow([n, *(f"{n}.{c} " + "long " * (c % 50) for c in range(1, WIDE))])
    stelae(wide, "import", str(path))
    shown = on_a_terminal(wide, "scan")
    assert all(len(line) <= 80 for line in shown) and len(shown) == 5
    assert shown[0].split()[:2] == ["id", "c1"] and shown[0].endswith("…")
    assert "of 300 columns; show more with --columns or --format lines" in shown[-1]
    every = on_a_terminal(wide, "scan", "--format", "lines", "--limit", "1")
    assert all(len(line) <= 80 for line in every)
    assert [line.split()[0] for line in every if not line.startswith(" ")][-1] == "c299"
    refused = on_a_terminal(wide, "scan", "--format", "parquet")
    assert "parquet is a binary format; write it to a file with --output" in " ".join(refused)


def on_a_terminal(cluster: LocalCluster, *words: str) -> list[str]:
    """What a command shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*STELAE, *words], stdout=theirs, stderr=theirs, env=where(cluster))
    os.close(theirs)
    found = b""
    try:
        while data := os.read(ours, 65536):
            found += data
    except OSError:
        pass  # How Linux tells the end of a terminal.
    process.wait(timeout=RUN_S)
    os.close(ours)
    return found.decode().replace("\r\n", "\n").splitlines()


DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "howto/load-and-query-a-file.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_page_on_files_runs_as_written_and_prints_what_it_shows(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    found = [
        (kind, body.replace("127.0.0.1:7051", f"127.0.0.1:{port}")) for kind, body in BLOCK.findall(PAGE.read_text())
    ]
    script, expected = ["set -u"], []
    for (kind, body), (following, shown) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind == "sh":
            expected.append(shown if following == "text" else "")
            script.append(f"exec > printed.{len(expected)}\n{body}")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["sh", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**environment, "COLUMNS": "80"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=3 * RUN_S)  # The page starts thirty interpreters.
    finally:
        end_all_of(process)
    for number, shown in enumerate(expected, start=1):
        assert (tmp_path / f"printed.{number}").read_text() == shown, f"block {number}\n{errors}"
    assert len(expected) > 6
