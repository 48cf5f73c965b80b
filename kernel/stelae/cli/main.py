"""The ``stelae`` command: the root application and its one way out.

A command module has a function ``register(app)`` that adds its commands to the root application,
and imports whatever is heavy inside the commands themselves, so that ``stelae --help`` is quick.
``MODULES`` lists these modules with the command that each one brings. Plugins bring more through
the hook ``stelae_cli``; they are loaded only when the command is none of ours."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from stelae import __version__
from stelae.cli.errors import EXIT_INTERRUPTED, EXIT_OK, report
from stelae.cli.output import note
from stelae.spi.errors import StelaeError

MODULES: dict[str, str] = {
    "cluster": "stelae.cli.cluster",
    "master": "stelae.cli.master",
    "tserver": "stelae.cli.tserver",
    "table": "stelae.cli.table",
    "tablet": "stelae.cli.tablet",
    "check": "stelae.cli.check",
    "metrics": "stelae.cli.metrics",
    "demo": "stelae.cli.demo",
    "import": "stelae.cli.import_",
    "export": "stelae.cli.export",
    "scan": "stelae.cli.scan",
    "get": "stelae.cli.get",
    "sql": "stelae.cli.sql",
    "sim": "stelae.cli.sim",
    "fs": "stelae.cli.fs",
    "wal": "stelae.cli.wal",
    "policy": "stelae.cli.policy",
    "plugins": "stelae.cli.plugins",
}
"""Every command of the kernel itself, in the order of ``stelae --help``, and its module."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"stelae {__version__}")
        raise typer.Exit(EXIT_OK)


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A replicated tablet store whose engines are plugins.

    First steps: `stelae demo` runs a cluster and kills a server and a master of it;
    `stelae cluster up DIR` starts one that stays;
    `stelae plugins list` shows which engines `node.toml` can pick."""


def build_app(command: str | None, *, with_plugins: bool = True) -> typer.Typer:
    """Return the root application.

    Args:
        command: what the user asked for: a command of ours needs its own module only, and no
            plugin; anything else (help, a plugin's command, a misspelling) needs all of them."""
    app = typer.Typer(
        callback=_root,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    wanted = [MODULES[command]] if command in MODULES else list(MODULES.values())
    for module in wanted:
        importlib.import_module(module).register(app)
    if command not in MODULES and with_plugins:
        _load_plugins(app)
    return app


def main() -> None:
    """Run the command line and leave with its exit code; errors go to standard error."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    try:
        build_app(command, with_plugins="--version" not in sys.argv)()
    except StelaeError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def _load_plugins(app: typer.Typer) -> None:
    """Add the commands of plugins; a broken one costs a remark and nothing else."""
    from stelae.config.registry import Registry

    registry = Registry.installed()
    for problem in [*registry.load_kind("cli"), *registry.extend_cli(app)]:
        note(f"warning: {problem}")


if __name__ == "__main__":
    main()
