"""node.toml: what is right is typed, and each mistake gives one message with its line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stelae.config.node_toml import load_config, parse_config
from stelae.config.registry import Registry
from stelae.config.sections import EngineNames
from stelae.host.hybrid_clock import ClockSettings
from stelae.host.settings import LogSettings, MaintenanceSettings, NodeConfig, WorkerSettings
from stelae.spi.errors import ConfigError
from stelae.spi.ids import ZERO
from stelae.spi.members import MemberType
from tests.unit.host_config.plugins import Dist, Point, WalConfig, offering, wal, working

UUIDS = ["c" * 32, "a" * 32, "b" * 32]
WHOLE = f"""\
[node]
directory = "data/n1"
listen = "127.0.0.1:7051"

[cluster]
id = "demo"

[tablet]
id = "rows"
columns = [
  {{name = "key", type = "int64"}},
  {{name = "name", type = "string", nullable = true}},
  {{name = "price", type = "decimal(12,2)"}},
]
key = ["key"]
members = [
  {{uuid = "{UUIDS[0]}", address = "127.0.0.1:7051"}},
  {{uuid = "{UUIDS[1]}", address = "host-2:7052"}},
  {{uuid = "{UUIDS[2]}", address = "[::1]:7053"}},
]

[engines]
wal = "segmented"

[wal.segmented]
segment_bytes = 512

[log]
group_bytes_max = 65536

[clock]
clock_error_ms_max = 500
"""
SMALL = '[node]\ndirectory = "d"\nlisten = "127.0.0.1:0"\n[cluster]\nid = "c"\n'


def parse(text: str, registry: Registry | None = None) -> NodeConfig:
    return parse_config(text, "/etc/stelae/node.toml", registry or working())


def refused(text: str, registry: Registry | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, registry)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert WHOLE.count(old) == 1, f"{old!r} has to be there once"
    return WHOLE.replace(old, new)


def test_a_whole_file_is_typed() -> None:
    config = parse(WHOLE)
    assert config.node.directory == "/etc/stelae/data/n1"
    assert config.cluster_id == "demo"
    assert config.wal.config == WalConfig(segment_bytes=512)
    assert config.log == LogSettings(group_bytes_max=65536)
    assert config.clock == ClockSettings(clock_error_ms_max=500)
    assert config.tablet is not None
    assert [c.name for c in config.tablet.schema.columns] == ["key", "name", "price"]
    assert [c.id for c in config.tablet.schema.columns] == [1, 2, 3]
    assert config.tablet.schema.key == (1,)


def test_the_first_member_is_the_hinted_leader_and_the_config_is_sorted() -> None:
    tablet = parse(WHOLE).tablet
    assert tablet is not None
    assert tablet.hinted_leader == UUIDS[0]
    initial = tablet.initial_config()
    assert [member.node_id for member in initial.members] == sorted(UUIDS)
    assert initial.op_id == ZERO
    assert {member.member_type for member in initial.members} == {MemberType.VOTER}


def test_a_small_file_takes_every_default() -> None:
    config = parse(SMALL)
    assert config.tablet is None
    assert (config.wal.name, config.consensus.name, config.store.name) == ("segmented", "raft", "columnar")
    assert config.log.queue_bytes_max == 64 << 20
    assert config.clock.clock_error_ms_max == 10_000
    assert config.wire.insecure_listen is False


def test_the_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(SMALL)
    assert load_config(str(path), working()).node.directory == str(tmp_path / "d")


def test_whole_numbers_are_taken_for_a_fraction() -> None:
    assert parse(SMALL + "[wal.segmented]\nfill = 1\n").wal.config.fill == 1.0


MISTAKES = [
    # what is changed, into what, the line, words of the message
    ("directory = ", "directry = ", 2, ["unknown key 'directry' in [node]", "'directory'"]),
    ('directory = "data/n1"\n', "", 1, ["[node] lacks the key 'directory'", "directory ="]),
    ('"data/n1"', "7", 2, ["directory must be a string, not 7"]),
    ('"data/n1"', '""', 2, ["directory is empty"]),
    ('listen = "127.0.0.1:7051"', 'listen = "7051"', 3, ["'7051' is not an address", "127.0.0.1:7"]),
    ('listen = "127.0.0.1:7051"', 'listen = "127.0.0.1:x"', 3, ["is not an address"]),
    ('listen = "127.0.0.1:7051"', 'listen = "127.0.0.1:65536"', 3, ["is not an address"]),
    ('listen = "127.0.0.1:7051"', 'listen = "0.0.0.0:7051"', 3, ["insecure_listen = true"]),
    ('listen = "127.0.0.1:7051"', 'listen = "*:7051"', 3, ["cannot listen on the name '*'"]),
    ('listen = "127.0.0.1:7051"', 'listen = "127.0.0.1.example.org:1"', 3, ["cannot listen on"]),
    ('listen = "127.0.0.1:7051"', 'listen = "localhost.example.org:1"', 3, ["cannot listen on"]),
    ("[cluster]", "[custer]", 5, ["unknown key 'custer' in the file", "'cluster'"]),
    ('[cluster]\nid = "demo"', "cluster = 1", 0, ["must be a section"]),
    ('id = "demo"', "", 5, ["[cluster] lacks the key 'id'"]),
    ('id = "demo"', 'id = "../x"', 6, ["cluster id '../x' is not usable"]),
    ('id = "demo"', "id = 5", 6, ["id must be a string, not 5"]),
    ('id = "rows"', 'id = "a/b"', 9, ["tablet id 'a/b' is not usable"]),
    ('id = "rows"\n', "", 8, ["[tablet] lacks the key 'id'"]),
    ('"int64"', '"int65"', 11, ["unknown column type 'int65'", "int64"]),
    ('name = "name"', 'name = "key"', 12, ["column name 'key' is repeated"]),
    ('name = "name"', 'nam = "name"', 12, ["unknown key 'nam'", "'name'"]),
    ("nullable = true", "nullable = 1", 12, ["nullable must be true or false, not 1"]),
    ('key = ["key"]', 'key = ["price", "kee"]', 15, ["'kee', which is not a column", "key, name, price"]),
    ('key = ["key"]', 'key = ["name"]', 15, ["'name' must not be nullable"]),
    ('key = ["key"]', 'key = ["key", "key"]', 15, ["occurs twice"]),
    ('key = ["key"]', "key = []", 15, ["key is empty"]),
    ('key = ["key"]', 'key = "key"', 15, ["key must be an array, not 'key'"]),
    ('key = ["key"]', "key = [1]", 15, ["must be a string, not 1"]),
    ("a" * 32, "A" * 32, 18, ["node uuid", "stelae fs uuid"]),
    ("a" * 32, "c" * 32, 18, ["uuid '" + "c" * 32 + "' is repeated"]),
    ("host-2:7052", "127.0.0.1:7051", 18, ["address '127.0.0.1:7051' is repeated"]),
    ("host-2:7052", "host-2:0", 18, ["port 0 in", "1 to 65535"]),
    ("host-2:7052", "host-2", 18, ["'host-2' is not an address"]),
    (f'  {{uuid = "{UUIDS[1]}", address = "host-2:7052"}},\n', "", 16, ["2 members", "1 or 3"]),
    ('wal = "segmented"', 'wla = "segmented"', 23, ["unknown key 'wla' in [engines]", "'wal'"]),
    ('wal = "segmented"', 'wal = "x"', 23, ["no wal engine 'x'", "segmented", "plugins list"]),
    ("[wal.segmented]", "[wal.segmentd]", 25, ["unknown key 'segmentd' in [wal]", "'segmented'"]),
    ("[wal.segmented]", "[wall.segmented]", 25, ["unknown key 'wall'", "'wal'"]),
    ("segment_bytes = 512", "segment_byte = 512", 26, ["[wal.segmented]", "'segment_bytes'"]),
    ("segment_bytes = 512", "segment_bytes = 15", 26, ["out of bounds", "16 to 4096 bytes", "1024"]),
    ("segment_bytes = 512", "segment_bytes = 4097", 26, ["out of bounds"]),
    ("segment_bytes = 512", "segment_bytes = true", 26, ["a whole number, not true"]),
    ("segment_bytes = 512", 'segment_bytes = "1 kB"', 26, ["not '1 kB'", "Accepted: 16 to 4096 bytes", "is 1024"]),
    ("segment_bytes = 512", "segment_bytes = 1.5", 26, ["a whole number, not 1.5"]),
    ("segment_bytes = 512", "fill = nan", 26, ["out of bounds"]),
    ("segment_bytes = 512", "recycle = 0", 26, ["true or false, not 0"]),
    ("segment_bytes = 512", "mode = 'quick'", 26, ["mode cannot be 'quick'", "'fast', 'safe'"]),
    ("segment_bytes = 512", "mode = 1", 26, ["mode cannot be 1"]),
    ("group_bytes_max = 65536", "group_bytes_max = 1", 29, ["4096 to 1073741824 bytes"]),
    ("group_bytes_max = 65536", 'sync = "never"', 29, ["unknown key 'sync' in [log]"]),
    ("segment_bytes = 512", 'mode = "slow"', 26, ["mode cannot be 'slow'", "'fast', 'safe'"]),
    ("clock_error_ms_max = 500", "clock_error_ms_max = 1", 32, ["100 to 3600000 ms"]),
    ("[clock]", "[clock", 31, ["not TOML"]),
    ("[clock]", "[log]", 31, ["not TOML"]),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), MISTAKES, ids=[new.strip()[:40] for _, new, _, _ in MISTAKES])
def test_a_mistake_gives_its_line_the_fact_and_the_way_out(old: str, new: str, line: int, words: list[str]) -> None:
    text = (
        "cluster = 1\n" + WHOLE.replace('[cluster]\nid = "demo"\n', "") if new == "cluster = 1" else changed(old, new)
    )
    message = refused(text)
    assert message.startswith(f"/etc/stelae/node.toml:{line or 1}: "), message
    assert "\n" in message, "there is a next step on a line of its own"
    for word in words:
        assert word in message


def test_a_section_that_is_missing_altogether_is_asked_for() -> None:
    assert "there is no section [node]" in refused('[cluster]\nid = "c"\n')
    assert "there is no section [cluster]" in refused('[node]\ndirectory="d"\nlisten="[::1]:1"\n')


def test_an_address_beyond_loopback_needs_as_many_words() -> None:
    text = SMALL.replace('"127.0.0.1:0"', '"0.0.0.0:7050"\ninsecure_listen = true')
    config = parse(text)
    assert config.node.insecure_listen is True
    assert config.wire.insecure_listen is True
    assert "unknown key 'insecure_listen' in [wire]" in refused(SMALL + "[wire]\ninsecure_listen = true\n")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_every_form_of_loopback_is_accepted(host: str) -> None:
    assert parse(SMALL.replace("127.0.0.1:0", f"{host}:7050")).node.listen == f"{host}:7050"


def _registry(point: Point) -> Registry:
    registry = Registry([point])
    for engine in ("raft", "columnar"):
        kind = "consensus" if engine == "raft" else "store"
        made = working().engine(_kind(kind), engine)
        registry.register(offering(f"stelae_{kind}_engines", made), engine)
    return registry


def _kind(name: str) -> Any:
    from stelae.config.contracts import EngineKind

    return EngineKind(name)


def test_a_broken_engine_is_reported_at_the_line_that_picks_it() -> None:
    def explode() -> Any:
        raise ImportError("libfoo is missing")

    message = refused(SMALL + '[engines]\nwal = "foo"\n', _registry(Point("wal.foo", explode, dist=Dist("foo"))))
    assert message.startswith("/etc/stelae/node.toml:7: plugin wal.foo of foo 9.1 cannot be")
    assert "libfoo is missing" in message


def test_a_missing_extra_is_reported_at_the_line_that_picks_its_engine() -> None:
    needy = wal("lmdb", optional_modules={"no_such_module_at_all": "lmdb"})
    point = Point("wal.lmdb", lambda: offering("stelae_wal_engines", needy))
    message = refused(SMALL + '[engines]\nwal = "lmdb"\n', _registry(point))
    assert message.startswith("/etc/stelae/node.toml:7: wal engine 'lmdb' needs")
    assert "pip install 'stelae[lmdb]'" in message


def test_a_duplicate_engine_is_refused_also_when_it_is_not_picked() -> None:
    def never() -> Any:
        raise AssertionError("nothing is imported")

    registry = Registry([Point("wal.x", never), Point("wal.x", never, dist=Dist("other"))])
    message = refused(SMALL + '[engines]\nwal = "segmented"\n', registry)
    assert message.startswith("/etc/stelae/node.toml:6: plugin wal.x is announced by")
    assert "other 9.1" in message


def test_a_section_of_an_engine_that_is_not_picked_is_left_alone() -> None:
    registry = working()
    registry.register(offering("stelae_wal_engines", wal("other")), "other")
    assert parse(SMALL + "[wal.other]\nanything = 1\n", registry).wal.name == "segmented"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load_config(str(tmp_path / "none.toml"), working())
    (tmp_path / "latin").write_bytes(b"a = '\xe9'")
    with pytest.raises(ConfigError, match="latin: not UTF-8 at byte 5"):
        load_config(str(tmp_path / "latin"), working())


@pytest.mark.parametrize("section", [LogSettings, ClockSettings, WorkerSettings, MaintenanceSettings, EngineNames])
def test_every_setting_of_the_kernel_has_a_reason_and_a_default_within_bounds(section: Any) -> None:
    from stelae.spi.settings import limits_of

    for field in dataclasses.fields(section):
        limits = limits_of(field)
        assert limits.reason
        if limits.low is not None and limits.high is not None:
            assert limits.low <= field.default <= limits.high


def test_a_flush_must_begin_before_writes_are_refused() -> None:
    text = SMALL + "[maintenance]\nflush_bytes = 1000000\nreplica_memory_bytes_max = 999999\n"
    message = refused(text, working())
    assert "refused at 999999 bytes of memory, but a flush begins only at 1000000" in message
    assert "a few times flush_bytes" in message
