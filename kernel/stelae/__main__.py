"""``python -m stelae``: the same as the ``stelae`` command."""

from stelae.cli.main import main

main()
