"""The ``stelae`` command: the root application and its exit codes.

A command module has a function ``register(app)`` that adds its commands to the root application. It imports heavy
libraries inside the commands, so that ``stelae --help`` is quick. ``MODULES`` lists the modules of the kernel with the
command that each one adds.

Plugins add commands through the hook ``stelae_cli``. An entry point ``cli.COMMAND`` says which plugin has the command,
so that ``stelae COMMAND`` imports no other plugin. A command of the kernel imports none."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from stelae import __version__
from stelae.cli.kit.errors import EXIT_OK, print_owed, report, report_file_error, report_refusal
from stelae.cli.kit.interrupt import reported_interrupt
from stelae.cli.kit.json_document import DOCUMENT
from stelae.cli.kit.output import flushed_output, note
from stelae.spi.errors import PluginError, StelaeError

MODULES: dict[str, str] = {
    "cluster": "stelae.cli.cluster",
    "master": "stelae.cli.master",
    "tserver": "stelae.cli.tserver",
    "table": "stelae.cli.table",
    "tablet": "stelae.cli.tablet",
    "copy": "stelae.cli.copy",
    "recover": "stelae.cli.recover",
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

    First steps: `stelae demo` runs a cluster and kills one of its tablet servers and one of its masters.
    `stelae cluster up DIR` starts a cluster that keeps running.
    `stelae plugins list` shows the engines that `node.toml` can choose."""


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
            command that an entry point names loads that plugin alone. Anything else loads everything: help, a
            misspelling, a command that no entry point names. A broken plugin then costs a warning and nothing else.
        with_plugins: whether plugins may add commands."""
    app = _new_app()
    if command in MODULES:
        importlib.import_module(MODULES[command]).register(app)
        return app
    if with_plugins and command is not None:
        _load_plugins(app, command)
        if command in _names(app):
            return app
        app = _new_app()
    for module in MODULES.values():
        importlib.import_module(module).register(app)
    for problem in _load_plugins(app) if with_plugins else ():
        note(f"warning: {problem}")
    return app


def _names(app: typer.Typer) -> set[str | None]:
    """Names of the commands and command groups of an application."""
    return {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}


def main() -> None:
    """Run the command line and exit with its exit code. Errors go to standard error, and with ``--json`` also to
    standard output."""
    DOCUMENT.begin(asked="--json" in sys.argv)  # For errors before the option is read, such as an unknown command.
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    try:
        with reported_interrupt(), flushed_output():
            build_app(command, with_plugins="--version" not in sys.argv)()
    except SystemExit as end:
        report_refusal(end)
        raise
    except StelaeError as error:
        sys.exit(report(error))
    except OSError as error:
        sys.exit(report_file_error(error))
    except Exception as error:  # A bug, whose traceback follows.
        print_owed(error, f"{type(error).__name__}: {error}")
        raise


def _load_plugins(app: typer.Typer, command: str = "") -> list[PluginError]:
    """Add the commands of plugins: of all, or of the one whose entry point is ``cli.COMMAND``. Return what failed."""
    from stelae.config.registry import Registry

    registry = Registry.installed()
    return [*registry.load_kind("cli", command), *registry.extend_cli(app)]


if __name__ == "__main__":
    main()
