"""A command whose values may be negative numbers: ``stelae get -5`` needs no ``--`` in front of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand

_NEGATIVE = re.compile(r"-(\d|\.\d|inf)", re.IGNORECASE)


class ValuesCommand(TyperCommand):
    """Takes words that begin as negative numbers do for values; no option of such a command may begin so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with all values behind the options if one is negative."""
        takers = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        return super().parse_args(ctx, values_last(args, takers))


def values_last(args: list[str], takers: Iterable[str]) -> list[str]:
    """Return the words of a command line with values behind the options, if a negative one is among them.

    Args:
        takers: the options that take the next word, whatever that is."""
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
                    return options  # The parser says which option lacks its value.
                options.append(value)
    return [*options, "--", *values] if is_negative else args
