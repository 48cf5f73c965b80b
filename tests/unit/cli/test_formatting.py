"""The directory of a node: which uuid `fs format` gives it, and what the errors about a missing one propose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.test_commands import CONFIG, UUID, run, run_process

NEW = "a" * 32


def written(folder: Path, text: str = CONFIG) -> Path:
    config = folder / "node.toml"
    config.write_text(text)
    return config


def test_a_uuid_of_a_listed_member_is_named_with_its_danger(tmp_path: Path) -> None:
    """A new disk was formatted by the node.toml of the lost one, which gave it the uuid of the lost one in silence."""
    done = run("fs", "format", "--config", str(written(tmp_path)))
    assert done.stdout.strip() == UUID
    assert "the uuid is that of the member 127.0.0.1:7051 of [tablet]" in done.stderr
    assert "If that node has run before, remove the directory and format it with another --uuid" in done.stderr


@pytest.mark.parametrize("listens", ["7051", "7052"])
def test_another_uuid_is_printed_without_that_warning(tmp_path: Path, listens: str) -> None:
    config = written(tmp_path, CONFIG.replace('listen = "127.0.0.1:7051"', f'listen = "127.0.0.1:{listens}"'))
    done = run("fs", "format", "--config", str(config), *(("--uuid", NEW) if listens == "7051" else ()))
    assert done.returncode == 0 and done.stdout.strip() != UUID
    assert "[tablet]" not in done.stderr


def test_a_node_without_a_directory_is_formatted_by_its_node_toml(tmp_path: Path) -> None:
    """The message proposed `stelae fs format DIRECTORY`: a random uuid and no cluster id. The node then ran, and served
    no tablet."""
    config = written(tmp_path)
    done = run_process("tserver", "run", "--config", str(config))
    assert done.returncode == 1
    assert f"there is no node in this directory; create one with: stelae fs format --config {config}" in done.stderr
    assert "needs a new uuid" in done.stderr and f"stelae fs format {tmp_path}" not in done.stderr


def test_a_dump_of_the_folder_of_a_node_toml_names_the_directory_of_the_node(tmp_path: Path) -> None:
    """It printed "[Errno 2] No such file or directory: '.../instance'" and no more."""
    assert run("fs", "format", "--config", str(written(tmp_path))).returncode == 0
    done = run("fs", "dump", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no node in this directory: it has no file 'instance'" in done.stderr
    assert f"pass the directory of a node: {tmp_path / 'data'}" in done.stderr


def test_a_misspelt_section_of_an_engine_is_proposed_as_it_is_written(tmp_path: Path) -> None:
    """It proposed "<EngineKind.STORE: 'store'>"."""
    done = run("fs", "format", "--config", str(written(tmp_path, CONFIG + "[storage]\n")))
    assert done.returncode == 2 and "Did you mean 'store'?" in done.stderr
