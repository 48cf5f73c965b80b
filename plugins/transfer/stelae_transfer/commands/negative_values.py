"""A command whose arguments may be negative numbers: ``stelae get -5`` works without ``--``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand

_NEGATIVE = re.compile(r"-(\d|\.\d|inf)", re.IGNORECASE)


class ValuesCommand(TyperCommand):
    """Parses words that begin like a negative number as values. Options of the command must not begin with a digit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. If a value is negative, move all values after the options first."""
        takers = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        return super().parse_args(ctx, values_last(args, takers))


def values_last(args: list[str], takers: Iterable[str]) -> list[str]:
    """Return the words of a command line. If a value is negative, all values come after the options and ``--``.

    Args:
        args: the words of the command line.
        takers: the options that take the next word as their value."""
    options: list[str] = []
    values: list[str] = []
    is_negative = False
    waiting = iter(args)
    for word in waiting:
        if word == "--":
            values += waiting
        elif _NEGATIVE.match(word):
            is_negative = True
            values.append(word)
        elif not word.startswith("-") or word == "-":
            values.append(word)
        else:
            options.append(word)
            if word in takers:
                value = next(waiting, None)
                if value is None:
                    return options  # The parser reports the option without a value.
                options.append(value)
    return [*options, "--", *values] if is_negative else args
