"""The commands on a stopped master: what they refuse before anything is done, and what their help teaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import lock_directory
from stelae.machine.files import RealFiles
from tests.unit.cli.test_commands import UUID, run


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The file of a formatted master that was never started."""
    file = tmp_path / "node.toml"
    file.write_text(
        f'[node]\ndirectory = "{tmp_path / "data"}"\nlisten = "127.0.0.1:1"\n[cluster]\nid = "c"\n'
        f'[masters]\nmembers = [{{uuid = "{UUID}", address = "127.0.0.1:1"}}]\n'
    )
    assert run("fs", "format", "--config", str(file), "--uuid", UUID).returncode == 0
    return str(file)


def test_a_node_that_runs_is_refused(config: str, tmp_path: Path) -> None:
    lock = lock_directory(RealFiles(), DirectoryLayout(str(tmp_path / "data")), 1)
    try:
        for words in (("rewrite", f"{UUID}=m:1"), ("copy", "--from", "127.0.0.1:1")):
            done = run("master", *words, "--config", config)
            assert done.returncode == 1 and "in use by" in done.stderr and "stop it first" in done.stderr
    finally:
        lock.release()


def test_a_master_without_a_catalog_has_no_config_to_rewrite(config: str) -> None:
    done = run("master", "rewrite", f"{UUID}=m:1", "--config", config)
    assert done.returncode == 2 and "has no system tablet" in done.stderr and "Nothing was changed" in done.stderr


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("master-1:7051", "is no member; write UUID=HOST:PORT"),
        (f"{UUID}=master-1", "is not an address"),
        ("1=master-1:7051", "'1'"),
    ],
)
def test_a_member_that_is_not_written_as_one_is_refused(member: str, said: str, config: str) -> None:
    done = run("master", "rewrite", member, "--config", config)
    assert done.returncode == 2 and said in done.stderr


def test_a_directory_that_is_not_formatted_is_refused(config: str, tmp_path: Path) -> None:
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    done = run("master", "copy", "--from", "127.0.0.1:1", "--config", config)
    assert done.returncode == 1 and "stelae fs format" in done.stderr


@pytest.mark.parametrize("command", ["rewrite", "copy"])
def test_the_help_says_what_happens_and_what_is_refused(command: str) -> None:
    shown = run("master", command, "--help")
    assert shown.returncode == 0 and "--config" in shown.stdout and "--json" in shown.stdout
    assert "It is refused while the node runs" in shown.stdout and "Example: stelae master" in shown.stdout
