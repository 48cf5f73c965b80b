"""``stelae wal``: what the commands print of a node's log, how they refuse, and what they leave."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.cli.offline_node import PrintingMeter
from stelae.convert.conversion import building
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import InstanceFile, lock_directory
from stelae.machine.files import RealFile, RealFiles
from stelae.spi.errors import CallerError, ConfigError, Corrupt, Locked, StelaeError, StorageError
from tests.unit.convert.places import SEGMENTED, formatted, place

FILES = RealFiles()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A node with three logs of ``segmented``: ``busy`` with 30 entries, two without any."""
    formatted(place(FILES, str(tmp_path / "node")), SEGMENTED)
    return str(tmp_path / "node")


def invoke(*words: str, code: int = 0) -> tuple[str, str]:
    """Run a command; return both its outputs."""
    done = CliRunner().invoke(build_app("wal"), ["wal", *words])
    if isinstance(done.exception, StelaeError):
        raise done.exception
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout, done.stderr


def document(*words: str, code: int = 0) -> Any:
    return json.loads(invoke(*words, "--json", code=code)[0])


def op_ids(found: dict[str, Any]) -> Sequence[str]:
    return [entry["op_id"] for entry in found["entries"]]


def damage(root: str, index: int) -> str:
    """Flip a byte in the body of an entry of ``busy``; return the file."""
    stamp = b"<%d.%d><" % (4 if index > 19 else 1, index)
    for path in sorted(Path(root, "wals", "busy").glob("*.seg")):
        data = bytearray(path.read_bytes())
        if (at := data.find(stamp)) >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            return str(path)
    raise AssertionError(f"no segment has entry {index}")


def test_dump_prints_a_line_for_each_entry_that_is_left(root: str) -> None:
    lines = invoke("dump", root)[0].splitlines()
    assert lines[0].split() == ["LOG", "OP_ID", "KIND", "TIMESTAMP", "SIZE_BYTES", "SUMMARY"]
    assert lines[1].split()[:5] == ["busy/3", "1.5", "WRITE", "1000005", "900"]
    assert len(lines) == 31


def test_dump_keeps_to_one_tablet_a_first_index_and_a_limit(root: str) -> None:
    assert op_ids(document("dump", root, "--tablet", "busy", "--from", "19", "--limit", "3")) == [
        "1.19",
        "4.20",
        "4.21",
    ]
    assert op_ids(document("dump", root, "--tablet", "empty")) == []
    assert "continue with --from" in invoke("dump", root, "--limit", "3")[1]
    with pytest.raises(CallerError, match="tablets with a log: busy, copied, empty"):
        invoke("dump", root, "--tablet", "nobody")


def test_dump_shows_bodies_when_asked(root: str) -> None:
    (entry,) = document("dump", root, "--limit", "1", "--bodies")["entries"]
    assert bytes.fromhex(entry["body"]).startswith(b"<1.5><1.5>")
    assert "body" not in document("dump", root, "--limit", "1")["entries"][0]


def test_verify_is_content_with_whole_logs(root: str) -> None:
    found = document("verify", root)
    assert found["ok"] and [log["log"] for log in found["logs"]] == ["busy/3", "copied/2", "empty/1"]
    assert [line.split()[-1] for line in invoke("verify", root)[0].splitlines()] == ["STATE", "ok", "ok", "ok"]


def test_verify_names_file_offset_and_last_good_entry_of_a_damaged_log(root: str) -> None:
    path = damage(root, 11)
    found = document("verify", root, code=1)
    problem = found["logs"][0]["problem"]
    assert (
        problem["damage"]
        and not found["ok"]
        and [log["problem"] is None for log in found["logs"]] == [False, True, True]
    )
    assert (problem["path"], problem["last_good"]) == (path, "1.10")
    assert 0 < problem["offset"] < os.path.getsize(path)
    shown, remark = invoke("verify", root, code=1)
    assert f"{path}@{problem['offset']}: " in shown and "(last good entry: 1.10)" in shown
    assert remark == "1 of 3 logs are damaged\n"


def test_dump_of_a_damaged_log_says_so_and_exits_with_1(root: str) -> None:
    path = damage(root, 11)
    found = document("dump", root, code=1)
    assert any(path in problem for problem in found["problems"])
    assert document("dump", root, "--limit", "2")["problems"] == []


def test_what_the_disk_does_not_give_back_now_is_named_and_not_called_damage(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = {path for index in (11, 12) for path in Path(root, "wals", "busy").glob("*.seg") if stamped(path, index)}
    whole = RealFile.pread

    def failing(file: RealFile, size: int, offset: int) -> bytes:
        if file.path == str(path) and size >= 900:
            raise StorageError("cannot read: Input/output error", path=file.path, offset=offset)
        return whole(file, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "pread", failing)
        problem = document("verify", root, code=1)["logs"][0]["problem"]
        assert (problem["path"], problem["damage"]) == (str(path), False)
        assert "1 of 3 logs cannot be read now" in invoke("verify", root, code=1)[1]
        assert f"cannot be read now: {path}" in invoke("dump", root, code=1)[1]
        with pytest.raises(StorageError, match="1 of 3 logs cannot be read now; repair the disk") as caught:
            invoke("convert", root, "--to", "shared")
        assert not isinstance(caught.value, Corrupt)
    assert document("verify", root)["ok"]


def stamped(path: Path, index: int) -> bool:
    return b"<1.%d><" % index in path.read_bytes()


def test_stats_show_every_log_and_the_engines_own_figures(root: str) -> None:
    found = document("stats", root)
    busy = found["logs"][0]
    assert (busy["base"], busy["last"], busy["commit_hint"], busy["entries"]) == ("1.4", "4.34", 30, 30)
    assert busy["body_bytes"] == 15 * 990
    assert found["engine"] == "segmented" and found["stats"]["logs"] == 3
    assert "ENGINE segmented" in invoke("stats", root)[0]


@pytest.mark.parametrize("to", ["shared", "lmdb"])
def test_convert_changes_the_engine_and_keeps_the_old_log(root: str, to: str) -> None:
    before = document("dump", root, "--bodies")
    done = document("convert", root, "--to", to)
    assert (done["from"], done["to"], done["entries"]) == ("segmented", to, 30)
    assert InstanceFile(FILES, DirectoryLayout(root)).load().wal_engine == to
    assert document("dump", root, "--bodies") == before
    assert os.listdir(f"{root}/quarantine") == ["wals-segmented.1"]
    assert "nothing to convert: the log of" in invoke("convert", root, "--to", to)[0]


def test_a_dry_run_says_what_would_be_copied_and_changes_no_engine(root: str) -> None:
    done = document("convert", root, "--to", "shared", "--dry-run")
    assert done["dry_run"] and done["entries"] == 30
    assert done["space_left_bytes"] > done["space_wanted_bytes"]
    assert InstanceFile(FILES, DirectoryLayout(root)).load().wal_engine == "segmented"
    assert not os.path.exists(building(DirectoryLayout(root)))


def node_toml(tmp_path: Path, root: str, settings: str) -> str:
    sections = f'[node]\ndirectory = "{root}"\nlisten = "127.0.0.1:0"\n[cluster]\nid = "c"\n[engines]\nwal = "shared"\n'
    path = tmp_path / "node.toml"
    path.write_text(sections + settings)
    return str(path)


def test_node_toml_names_the_directory_and_the_engine_to_be(root: str, tmp_path: Path) -> None:
    config = node_toml(tmp_path, root, "")
    assert len(document("dump", "--config", config)["entries"]) == 30
    assert document("convert", "--config", config)["to"] == "shared"
    assert document("convert", "--config", config, "--to", "lmdb")["from"] == "shared"


def test_convert_names_the_log_that_it_has_set_aside_and_no_other(root: str) -> None:
    """A directory of an operator ended it with a traceback, and an older log was named if its number was higher."""
    for name in ("wals-segmented.2", "wals-segmented.before-upgrade"):
        Path(root, "quarantine", name).mkdir(parents=True)
    said = invoke("convert", root, "--to", "shared")[1]
    assert f"the old log is kept; remove {root}/quarantine/wals-segmented.1 when the node has caught up" in said


def test_convert_says_where_the_old_log_is_and_what_node_toml_still_has_to_say(root: str, tmp_path: Path) -> None:
    config = node_toml(tmp_path, root, "")
    said = invoke("convert", "--config", config)[1]
    assert (
        f"remove {root}/quarantine/wals-segmented.1 when the node has caught up" in said
        and "before you start" not in said
    )
    said = invoke("convert", "--config", config, "--to", "segmented")[1]
    assert "node.toml chooses 'shared'; write wal = \"segmented\" in [engines] before you start" in said
    assert f"remove {root}/quarantine/wals-shared.1 when the node has caught up" in said
    assert (
        "wals-shared.2 when the node has caught up"
        in [invoke("convert", root, "--to", to)[1] for to in ("shared", "segmented")][1]
    )


def test_convert_of_a_directory_says_that_node_toml_has_to_name_the_engine(root: str) -> None:
    """Without --config it said nothing of node.toml, and the node refused to start."""
    said = invoke("convert", root, "--to", "shared")[1]
    assert 'write wal = "shared" in [engines] of its node.toml before you start the node' in said
    assert "node.toml" not in invoke("convert", root, "--to", "segmented", "--dry-run")[1]


def test_the_settings_of_the_engine_that_still_owns_the_log_are_read_from_node_toml(root: str, tmp_path: Path) -> None:
    config = node_toml(tmp_path, root, "[wal.segmented]\nsegment_bytes_first = 5\n")
    with pytest.raises(ConfigError, match=r"node\.toml:9: segment_bytes_first = 5 is out of bounds"):
        invoke("dump", "--config", config)


@pytest.mark.parametrize("words", [("convert",), ("dump",)])
def test_directory_or_node_toml_has_to_be_given(words: tuple[str, ...]) -> None:
    with pytest.raises(CallerError, match="pass either the directory"):
        invoke(*words)


def test_convert_without_an_engine_says_which_one_it_is_now(root: str) -> None:
    with pytest.raises(CallerError, match=r"pass --to ENGINE .the log has the engine 'segmented' now"):
        invoke("convert", root)


def test_an_unknown_engine_is_refused_with_the_known_ones(root: str) -> None:
    with pytest.raises(StelaeError, match="known wal engines: lmdb, segmented, shared"):
        invoke("convert", root, "--to", "nope")


def test_a_damaged_log_is_not_converted(root: str) -> None:
    damage(root, 11)
    with pytest.raises(Corrupt, match="replace these replicas"):
        invoke("convert", root, "--to", "shared")
    assert InstanceFile(FILES, DirectoryLayout(root)).load().wal_engine == "segmented"


def test_a_node_in_use_is_refused_with_the_process_that_holds_it(root: str) -> None:
    lock = lock_directory(FILES, DirectoryLayout(root), 4711)
    for words in (("dump",), ("verify",), ("stats",), ("convert", "--to", "lmdb")):
        with pytest.raises(Locked, match="process 4711"):
            invoke(words[0], root, *words[1:])
    lock.release()
    invoke("verify", root)


def test_what_an_interrupted_conversion_left_is_removed_and_told(root: str) -> None:
    os.makedirs(f"{building(DirectoryLayout(root))}/half")
    assert "removed what an interrupted conversion left" in invoke("convert", root)[1]
    assert not os.path.exists(building(DirectoryLayout(root)))


def test_a_log_behind_a_link_is_not_exchanged(root: str, tmp_path: Path) -> None:
    os.rename(f"{root}/wals", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", f"{root}/wals")
    with pytest.raises(CallerError, match="is a link or on another disk"):
        invoke("convert", root, "--to", "shared")
    assert len(document("dump", root)["entries"]) == 30


def test_progress_is_told_once_a_second_with_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 100.0
    monkeypatch.setattr("stelae.cli.offline_node.time.monotonic", lambda: now_s)
    meter = PrintingMeter()
    meter.begin("copying", 400)
    meter.add(50, 1 << 20)
    now_s = 102.0
    meter.add(50, 1 << 20)
    meter.add(50, 1 << 20)
    assert capsys.readouterr().err == "copying: 100 of 400 entries, 2 MiB, about 6 s left\n"
