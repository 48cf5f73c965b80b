"""The commands as a user runs them: exit code, output, errors.

Most run their entry point in this process. Those of the root, and those beside other plugins, have a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stelae.cli.kit.byte_sizes import byte_limit, byte_size
from stelae.cli.kit.errors import EXIT_MISUSED, report
from stelae.cli.main import main
from stelae.client.times import from_wall_us
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import INSTANCE, Instance, InstanceFile
from stelae.host.metadata_files import HEADER_BYTES, encode
from stelae.host.superblock import PartitionBounds, Superblock, SuperblockFile
from stelae.machine.files import RealFiles
from stelae.partition.schema import HashLevel, PartitionSchema
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import TooOld
from stelae.spi.ids import ClusterId, NodeId, TabletId

UUID = "0123456789abcdef" * 2


class Finished(NamedTuple):
    """A command that ended."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str, path: Path | None = None) -> Finished:
    """Run ``stelae`` with these words, as its entry point does, in this process.

    With ``path``, which then comes first among the places to import from, or for an option of the root, it runs in a
    process of its own."""
    if path is not None or not words or words[0].startswith("-"):
        return run_process(*words, path=path)
    out, err = StringIO(), StringIO()
    before, sys.argv = sys.argv, ["stelae", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    code = ended.value.code or 0
    assert isinstance(code, int)
    return Finished(code, out.getvalue(), err.getvalue())


def run_process(*words: str, path: Path | None = None) -> Finished:
    """Run ``stelae`` with these words in a process of its own."""
    places = [str(path)] if path else []
    before = os.environ.get("PYTHONPATH")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*places, *([before] if before else [])])}
    command = [sys.executable, "-m", "stelae.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    return Finished(done.returncode, done.stdout, done.stderr)


def document(done: Finished) -> Any:
    """The one JSON document on standard output."""
    return json.loads(done.stdout)


def formatted(tmp_path: Path) -> Path:
    root = tmp_path / "node"
    assert run("fs", "format", str(root), "--uuid", UUID).returncode == 0
    return root


def broken_plugin(tmp_path: Path, kind: str) -> Path:
    """A directory with an installed distribution whose plugin cannot be imported."""
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[stelae.plugins]\n{kind}.odd = odd_plugin\n")
    (tmp_path / "odd_plugin.py").write_text("raise RuntimeError('half installed')\n")
    return tmp_path


def test_version_is_one_line() -> None:
    from stelae import __version__

    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stelae {__version__}\n", "")


@pytest.mark.parametrize("words", [("plugins",), ("fs",)])
def test_a_group_without_a_command_shows_its_help(words: tuple[str, ...]) -> None:
    done = run_process(*words, "--help")
    assert done.returncode == 0
    assert "Usage: stelae" in done.stdout.replace("python -m stelae.cli.main", "stelae")


def test_help_names_every_command_group() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("fs", "plugins"):
        assert f"\n  {command} " in done.stdout


def test_a_misspelt_command_is_a_usage_error() -> None:
    done = run("plugin")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command" in done.stderr


def test_no_command_of_ours_imports_arrow_or_sockets_to_show_its_help() -> None:
    program = (
        "import sys\n"
        "from stelae.cli.main import MODULES, build_app\n"
        "for command in ('fs', 'plugins'):\n    build_app(command)\n"
        "heavy = {'pyarrow', 'numpy', 'zmq', 'asyncio', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "for command in (*MODULES, None):\n    build_app(command)\n"
        "heavy = {'pyarrow', 'numpy', 'zmq', 'rich', 'pandas', 'duckdb', 'lmdb', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("command", "plugins"),
    [
        ("table", []),
        ("import", ["stelae_transfer"]),
        ("export", ["stelae_transfer"]),
        ("scan", ["stelae_transfer"]),
        ("get", ["stelae_transfer"]),
        ("sql", ["stelae_transfer"]),
        ("bench", ["stelae_bench"]),
        ("spark", ["stelae_spark_sink"]),
    ],
)
def test_a_command_imports_the_plugin_that_has_it_and_no_other(command: str, plugins: list[str]) -> None:
    program = (
        "import sys\n"
        "from stelae.cli.main import build_app\n"
        f"build_app({command!r})\n"
        "print(sorted(name for name in sys.modules if name.startswith('stelae_') and '.' not in name))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == repr(plugins)


def test_help_lists_the_commands_of_plugins_in_their_place() -> None:
    lines = run("--help").stdout.partition("Commands:")[2].splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert names == [
        *("check", "metrics", "demo", "chaos", "import", "export", "scan", "get", "sql"),
        *(
            "cluster",
            "master",
            "tserver",
            "table",
            "tablet",
            "copy",
            "recover",
            "sim",
            "fs",
            "wal",
            "policy",
            "plugins",
            "bench",
        ),
        "spark",
    ]


def test_list_shows_the_installed_engines_and_imports_none(tmp_path: Path) -> None:
    done = run("plugins", "list", "--json", path=broken_plugin(tmp_path, "wal"))
    names = {(offer["kind"], offer["name"]) for offer in document(done)["plugins"]}
    expected = {("wal", "segmented"), ("consensus", "raft"), ("store", "memory"), ("wal", "odd")}
    assert names >= expected
    assert (done.returncode, done.stderr) == (0, "")


def test_list_is_a_table_for_people() -> None:
    lines = run("plugins", "list").stdout.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "FROM", "MODULE"]
    assert any(line.split()[:2] == ["consensus", "raft"] for line in lines)


@pytest.mark.parametrize("name", ["raft", "consensus.raft"])
def test_show_tells_settings_with_bounds_and_reasons(name: str) -> None:
    shown = document(run("plugins", "show", name, "--json"))
    assert (shown["kind"], shown["name"]) == ("consensus", "raft")
    timeout = next(s for s in shown["settings"] if s["name"] == "election_timeout_ms")
    assert timeout["default"] == 1000
    assert timeout["unit"] == "ms"
    assert timeout["reason"]
    people = run("plugins", "show", name).stdout
    assert "[consensus.raft] of node.toml" in people
    assert "election_timeout_ms" in people


def test_show_of_an_unknown_name_lists_the_known_ones() -> None:
    done = run("plugins", "show", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "consensus.raft" in done.stderr


def test_check_names_a_broken_plugin_its_distribution_and_cause(tmp_path: Path) -> None:
    done = run("plugins", "check", "--json", path=broken_plugin(tmp_path, "wal"))
    found = document(done)
    odd = next(plugin for plugin in found["plugins"] if plugin["name"] == "odd")
    assert (done.returncode, found["ok"], odd["ok"]) == (1, False, False)
    assert "odd 1.0" in odd["problem"]
    assert "half installed" in odd["problem"]
    raft = next(plugin for plugin in found["plugins"] if plugin["name"] == "raft")
    assert raft["ok"] is True


def test_a_broken_command_plugin_costs_a_warning_and_nothing_else(tmp_path: Path) -> None:
    path = broken_plugin(tmp_path, "cli")
    shown = run("--help", path=path)
    assert shown.returncode == 0
    assert "warning: plugin cli.odd of odd 1.0 cannot be imported" in shown.stderr
    assert run("plugins", "list", path=path).stderr == ""


def test_a_plugin_adds_a_command(tmp_path: Path) -> None:
    path = broken_plugin(tmp_path, "cli")
    (path / "odd_plugin.py").write_text(
        "from stelae.spi.hooks import hookimpl\n"
        "@hookimpl\n"
        "def stelae_cli(app):\n"
        "    @app.command()\n"
        "    def odd() -> None:\n"
        "        print('odd indeed')\n"
    )
    done = run("odd", path=path)
    assert (done.returncode, done.stdout) == (0, "odd indeed\n")


def test_a_plugin_adds_a_command_that_its_entry_point_does_not_name(tmp_path: Path) -> None:
    path = broken_plugin(tmp_path, "cli")
    (path / "odd_plugin.py").write_text(
        "from stelae.spi.hooks import hookimpl\n"
        "@hookimpl\n"
        "def stelae_cli(app):\n"
        "    @app.command()\n"
        "    def even() -> None:\n"
        "        print('even indeed')\n"
    )
    done = run("even", path=path)
    assert (done.returncode, done.stdout) == (0, "even indeed\n")
    assert "No such command 'odd'" in run("odd", path=path).stderr


def test_another_plugin_that_is_broken_costs_a_command_not_even_a_warning(tmp_path: Path) -> None:
    done = run("scan", "--help", path=broken_plugin(tmp_path, "cli"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_whose_plugin_is_broken_says_so(tmp_path: Path) -> None:
    done = run("odd", path=broken_plugin(tmp_path, "cli"))
    assert done.returncode == 2
    assert "warning: plugin cli.odd of odd 1.0 cannot be imported" in done.stderr
    assert done.stderr.count("warning:") == 1


def test_format_prints_the_uuid_that_uuid_then_prints(tmp_path: Path) -> None:
    root = str(tmp_path / "deep" / "node")
    made = run("fs", "format", root)
    assert made.returncode == 0
    assert len(made.stdout.strip()) == 32
    assert run("fs", "uuid", root).stdout == made.stdout
    shown = document(run("fs", "uuid", root, "--json"))
    assert shown == {"directory": root, "uuid": made.stdout.strip(), "cluster_id": None}


def test_format_takes_a_uuid_and_a_cluster(tmp_path: Path) -> None:
    root = str(tmp_path / "node")
    done = run("fs", "format", root, "--uuid", UUID, "--cluster-id", "c", "--json")
    assert document(done) == {"directory": root, "uuid": UUID, "cluster_id": "c"}


def test_two_formats_draw_two_uuids(tmp_path: Path) -> None:
    first, second = (run("fs", "format", str(tmp_path / name)).stdout for name in "ab")
    assert first != second


def test_format_twice_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    root = formatted(tmp_path)
    done = run("fs", "format", str(root))
    assert (done.returncode, done.stdout) == (1, "")
    assert "already has a node" in done.stderr
    assert run("fs", "uuid", str(root)).stdout.strip() == UUID


@pytest.mark.parametrize(
    "words",
    [
        ("fs", "format"),
        ("fs", "uuid"),
        ("fs", "format", "DIR", "--uuid", "nonsense"),
        ("fs", "format", "DIR", "--cluster-id", "../c"),
        ("fs", "format", "DIR", "--config", "none.toml"),
        ("fs", "uuid", "--config", "none.toml"),
        ("fs", "dump", "DIR"),
        ("fs", "dump"),
        ("fs", "format", "DIR", "--nonsense"),
    ],
    ids=" ".join,
)
def test_misuse_is_exit_code_2_with_nothing_on_standard_output(words: tuple[str, ...], tmp_path: Path) -> None:
    root = tmp_path / "node"
    done = run(*[str(root) if word == "DIR" else word for word in words])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert not root.exists()


def test_uuid_of_a_directory_without_a_node_says_how_to_make_one(tmp_path: Path) -> None:
    done = run("fs", "uuid", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "no file 'instance', which `stelae fs format` writes" in done.stderr


CONFIG = f"""\
[node]
directory = "data"
listen = "127.0.0.1:7051"
[cluster]
id = "demo"
[tablet]
id = "t"
columns = [{{name = "k", type = "int64"}}]
key = ["k"]
members = [{{uuid = "{UUID}", address = "127.0.0.1:7051"}}]
"""


def test_format_by_a_node_toml_takes_everything_from_it(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(CONFIG)
    done = run("fs", "format", "--config", str(config), "--json")
    expected = {"directory": str(tmp_path / "data"), "uuid": UUID, "cluster_id": "demo"}
    assert document(done) == expected
    assert document(run("fs", "uuid", "--config", str(config), "--json")) == expected


def test_a_mistake_in_node_toml_is_exit_code_2_with_file_and_line(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(CONFIG.replace("listen", "lisen"))
    done = run("fs", "format", "--config", str(config))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{config}:3: unknown key 'lisen' in [node]" in done.stderr
    assert "Did you mean 'listen'?" in done.stderr
    assert not (tmp_path / "data").exists()


def test_dump_of_a_directory_shows_every_file(tmp_path: Path) -> None:
    root = formatted(tmp_path)
    schema = schema_from_plain({"columns": [{"name": "k", "type": "int64"}], "key": ["k"]})
    tablet = TabletId("t1")
    scheme = PartitionSchema((HashLevel((1,), 4),)).to_bytes()
    held = PartitionBounds(hash_buckets=(3,), scheme=scheme)
    block = Superblock(tablet_id=tablet, schemas=(schema.to_bytes(),), results=b"\x01\xff", partition=held)
    SuperblockFile(RealFiles(), DirectoryLayout(str(root)), tablet).save(block)
    done = run("fs", "dump", str(root), "--json")
    files = {entry["kind"]: entry["record"] for entry in document(done)["files"]}
    assert done.returncode == 0
    assert files["instance"]["node_id"] == UUID
    assert files["clock"] == {"ceiling": 0}
    assert files["superblock"]["schemas"] == [schema_to_plain(schema)]
    assert files["superblock"]["results"] == "01ff"
    assert files["superblock"]["partition"]["scheme"] == scheme.hex()
    assert files["superblock"]["partition"]["rows"] == "bucket 3 of 4 by k"
    people = run("fs", "dump", str(root)).stdout
    assert "superblock, format 1" in people
    assert f"node_id: {UUID}" in people


def test_dump_of_one_file_needs_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    instance = Instance(node_id=NodeId(UUID), cluster_id=ClusterId("c"), wal_engine="segmented")
    path.write_bytes(encode(INSTANCE, instance))
    (entry,) = document(run("fs", "dump", str(path), "--json"))["files"]
    assert entry["record"]["cluster_id"] == "c"


def test_dump_reports_damage_beside_what_is_readable_and_fails(tmp_path: Path) -> None:
    root = formatted(tmp_path)
    clock = root / "clock"
    data = bytearray(clock.read_bytes())
    for slot in (0, len(data) // 2):
        data[slot + HEADER_BYTES] ^= 1
    clock.write_bytes(data)
    done = run("fs", "dump", str(root), "--json")
    instance, damaged = document(done)["files"]
    assert done.returncode == 1
    assert instance["kind"] == "instance"
    assert "fails its checksum" in damaged["error"]
    assert str(clock) in damaged["error"]
    assert "UNREADABLE" in run("fs", "dump", str(root)).stdout


def test_dump_of_something_else_says_what_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    done = run("fs", "dump", str(path))
    assert done.returncode == 1
    assert "not a metadata file of a node" in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_closed_pipe_fails_without_a_word(tmp_path: Path, unbuffered: str) -> None:
    root = formatted(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "stelae.cli.main", "fs", "dump", str(root)],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_uuid_works_while_the_node_holds_its_lock(tmp_path: Path) -> None:
    root = formatted(tmp_path)
    lock = RealFiles().lock(DirectoryLayout(str(root)).lock)
    assert run("fs", "uuid", str(root)).stdout.strip() == UUID
    assert InstanceFile(RealFiles(), DirectoryLayout(str(root))).load().node_id == UUID
    lock.release()


def test_a_time_that_is_forgotten_is_told_with_the_first_one_that_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    floor = from_wall_us(int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000)
    assert report(TooOld(floor)) == EXIT_MISUSED
    told = capsys.readouterr().err.strip().rpartition("the oldest readable time is ")[2].removesuffix(" on")
    assert datetime.fromisoformat(told) == datetime(2026, 11, 15, 12, tzinfo=UTC)
    report(TooOld(1 << 63))
    assert capsys.readouterr().err.endswith(f"history floor {1 << 63}\n")


@pytest.mark.parametrize(
    ("words", "teaches"),
    [
        (("pause",), ("--for-s", "keeps what has arrived", "restarts")),
        (("resume",), ("begin again",)),
        (("cancel",), ("--not-for-s", "remove what they have fetched", "another server", "pause")),
        (("limit",), ("--in", "--out", "node.toml", "restarts")),
    ],
)
def test_help_of_a_command_about_copies_says_what_happens_next(
    words: tuple[str, ...], teaches: tuple[str, ...]
) -> None:
    done = run("copy", *words, "--help")
    told = " ".join(done.stdout.split())
    assert done.returncode == 0 and "Example: stelae copy" in told
    assert [text for text in teaches if text not in told] == []


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("pause", "--to", "a:1", "--connect", "a:2"), "either the id of a tablet, or --all"),
        (("cancel", "t123", "--all", "--to", "a:1", "--connect", "a:2"), "either the id of a tablet, or --all"),
        (("pause", "t123", "--to", "a:1", "--for-s", "0", "--connect", "a:2"), "--for-s"),
        (("limit", "a:1", "--in", "fast", "--connect", "a:2"), "must be a number of bytes such as"),
        (("limit", "a:1", "--out", "-5", "--connect", "a:2"), "no limit"),
    ],
)
def test_an_order_about_copies_that_makes_no_sense_is_refused_before_anybody_is_asked(
    words: tuple[str, ...], fault: str
) -> None:
    done = run("copy", *words)
    assert done.returncode == 2 and fault in done.stderr


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("1048576", 1 << 20), ("512k", 512 << 10), ("20MiB", 20 << 20), ("1.5g", 3 << 29), ("2 MB/s", 2 << 20)],
)
def test_sizes_are_read_in_binary_units(text: str, size_bytes: int) -> None:
    assert byte_size("--in", text) == size_bytes == byte_limit("--in", text)
    assert byte_limit("--in", "none") == 0
