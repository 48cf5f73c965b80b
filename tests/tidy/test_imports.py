"""The import matrix: layers see only what the architecture lets them see."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.imports import home, imported, refusal
from tests.tidy.tree import ROOT, parsed, python_files, rules


def allowed_for(layer: str, module: str) -> list[str]:
    table = rules()["imports"]
    if not layer:
        return table["root"].get(module, [])
    if layer.startswith("plugins/"):
        name, engine = layer.removeprefix("plugins/"), table["plugins"]["engine"]
        return table["plugins"].get(name, engine + table["engines"].get(name, []))
    return table["kernel"].get(layer, [])


def violations(path: Path, tree: ast.Module) -> list[str]:
    layer, package = home(path)
    own = package.split(".")[0]
    kernel = rules()["imports"]["kernel"]
    found = []
    for line, name in imported(tree, package):
        reason = refusal(layer, own, name, kernel, allowed_for(layer, path.stem))
        if reason:
            found.append(f"{path}:{line}: {reason}")
    return found


def test_every_module_imports_only_the_layers_it_may_see() -> None:
    found = [v for path in python_files("kernel", "plugins") for v in violations(path, parsed(path))]
    assert not found, "\n".join(found)


def test_every_kernel_package_has_a_row_in_the_matrix() -> None:
    packages = {p.parent.name for p in (ROOT / "kernel/stelae").glob("*/__init__.py")}
    assert packages == set(rules()["imports"]["kernel"])


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernel/stelae/spi/x.py", "from stelae.wire import envelope"),
        ("kernel/stelae/wire/x.py", "import stelae.host.replica"),
        ("kernel/stelae/host/x.py", "from stelae.machine.files import RealFiles"),
        ("kernel/stelae/host/x.py", "from stelae import server"),
        ("kernel/stelae/host/x.py", "from stelae.rows.batcher import Batcher"),
        ("kernel/stelae/spi/x.py", "from stelae.rows import keys"),
        ("kernel/stelae/rows/x.py", "from stelae.host import results"),
        ("kernel/stelae/host/x.py", "from stelae.config.registry import Registry"),
        ("kernel/stelae/host/deep/x.py", "from ...server import tserver"),
        ("kernel/stelae/client/x.py", "def f():\n    from stelae.host import clock"),
        ("kernel/stelae/local/x.py", "from stelae.host import loop"),
        ("kernel/stelae/local/x.py", "import stelae.host.settings"),
        ("kernel/stelae/sim/x.py", "import stelae_wal_segmented"),
        ("kernel/stelae/cli/x.py", "import stelae.testing.fakes"),
        ("kernel/stelae/testing/x.py", "from stelae.cli import main"),
        ("kernel/stelae/host/x.py", "import importlib\nimportlib.import_module('stelae.sim')"),
        ("kernel/stelae/spi/x.py", "if TYPE_CHECKING:\n    from stelae.host import loop"),
        ("kernel/stelae/spi/x.py", "from stelae.nowhere import x"),
        ("kernel/stelae/__init__.py", "from stelae.cli.main import main"),
        ("plugins/wal_x/stelae_wal_x/x.py", "from stelae.host import files"),
        ("plugins/wal_x/stelae_wal_x/x.py", "import stelae_consensus_raft"),
        ("plugins/wal_x/stelae_wal_x/x.py", "from stelae_shared.lmdb_files.gate import Gate"),
        ("plugins/bench/stelae_bench/x.py", "from stelae.sim import run"),
        ("plugins/console/stelae_console/x.py", "from stelae.host import loop"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str) -> None:
    assert len(violations(Path(path), ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernel/stelae/spi/x.py", "from stelae.spi.ids import OpId\nfrom . import errors"),
        ("kernel/stelae/local/x.py", "from stelae.config.node_toml import load_config"),
        ("kernel/stelae/__main__.py", "from stelae.cli.main import main"),
        ("kernel/stelae/cli/x.py", "from stelae import __version__\nimport stelae"),
        ("plugins/wal_x/stelae_wal_x/x.py", "from stelae_wal_x.format import Header\nimport os"),
        ("plugins/store_x/stelae_store_x/x.py", "from stelae.rows.keys import encode_keys"),
        (
            "plugins/store_lmdb/stelae_store_lmdb/x.py",
            "from stelae.rows import keys\nfrom stelae_shared.lmdb_files import gate",
        ),
        ("plugins/bench/stelae_bench/x.py", "from stelae.host import loop"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert violations(Path(path), ast.parse(source)) == []
