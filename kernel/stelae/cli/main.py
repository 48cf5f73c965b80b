"""The ``stelae`` command: the root application and its exit codes.

A command module has a function ``register(app)`` that adds its commands to the root application. It imports heavy
libraries inside the commands, so that ``stelae --help`` is quick. ``MODULES`` lists the modules of the kernel with the
command that each one adds. Plugins add commands through the hook ``stelae_cli``. They are loaded only when the command
is not in ``MODULES``."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from stelae import __version__
from stelae.cli.kit.errors import EXIT_INTERRUPTED, EXIT_OK, report
from stelae.cli.kit.output import note
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
    "sim": "stelae.cli.sim",
    "fs": "stelae.cli.fs",
    "wal": "stelae.cli.wal",
    "policy": "stelae.cli.policy",
    "plugins": "stelae.cli.plugins",
}
"""The commands of the kernel, in the order of ``stelae --help``, and their modules."""


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


def _new_app() -> typer.Typer:
    return typer.Typer(
        callback=_root,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def build_app(command: str | None, *, with_plugins: bool = True) -> typer.Typer:
    """Return the root application.

    Args:
        command: the command that the user typed. A command of the kernel loads its own module and no plugin. A
            command of a plugin loads the plugins alone. Anything else (help, a misspelling) loads everything.
        with_plugins: whether plugins may add commands."""
    app = _new_app()
    if command in MODULES:
        importlib.import_module(MODULES[command]).register(app)
        return app
    of_plugins = _new_app()
    if with_plugins:
        _load_plugins(of_plugins)
    if command is None or command not in _names(of_plugins):
        for module in MODULES.values():
            importlib.import_module(module).register(app)
    app.registered_commands += of_plugins.registered_commands
    app.registered_groups += of_plugins.registered_groups
    return app


def _names(app: typer.Typer) -> set[str | None]:
    """Names of the commands and command groups of an application."""
    return {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}


def main() -> None:
    """Run the command line and exit with its exit code. Errors go to standard error."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    try:
        build_app(command, with_plugins="--version" not in sys.argv)()
    except StelaeError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def _load_plugins(app: typer.Typer) -> None:
    """Add the commands of plugins. A broken plugin costs a warning and nothing else."""
    from stelae.config.registry import Registry

    registry = Registry.installed()
    for problem in [*registry.load_kind("cli"), *registry.extend_cli(app)]:
        note(f"warning: {problem}")


if __name__ == "__main__":
    main()
