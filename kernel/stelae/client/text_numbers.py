"""Which numbers, as they are written, a double says: whole ones if it is exactly that number, others if all of their
digits come back when it is printed to as many."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from math import isfinite

DIGITS_MAX = 38
"""Most digits of a decimal."""

SAFE_CHARACTERS = 15
"""A number of no more, without an exponent, has as many digits at most: any double keeps those."""

_DIGITS_OF_ANY = 767
"""Most digits that any double has when all are written."""


def keeps(text: str, value: float) -> bool:
    """Return whether ``value``, the double nearest to a number, says it.

    So it does of ``0.1``, and of a double that was printed to more digits than tell it from others. Whole numbers may
    be names, of which no two may become one."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # An exponent beyond all.
        return False
    if not number.is_finite():
        return True
    if not isfinite(value):
        return False
    if text.strip(" +-").isdecimal():
        return Decimal(value) == number
    mantissa = text.lower().partition("e")[0].replace(".", "")
    digits = len(mantissa.strip(" +-0"))
    return digits <= _DIGITS_OF_ANY and Decimal(f"{value:.{max(digits, 1) - 1}e}") == number


def number_of(text: str) -> float | Decimal:
    """Return a number of JSON: a float where that says it, else a decimal."""
    value = float(text)
    if (len(text) <= SAFE_CHARACTERS and "e" not in text and "E" not in text) or repr(value) == text:
        return value
    return value if keeps(text, value) else Decimal(text)


def decimal_of(numbers: Iterable[Decimal], *, one_scale: bool) -> int | None:
    """Return the scale of decimals of ``DIGITS_MAX`` digits that hold all numbers; ``None``: none do.

    Args:
        one_scale: whether numbers that have a fraction are to have as many digits in it as each other.
    """
    scales, whole = {0}, 0
    for number in numbers:
        if not number.is_finite():
            return None
        scales.add(max(0, -int(number.as_tuple().exponent)))
        whole = max(whole, number.adjusted() + 1)
    scale = max(scales)
    if whole + scale > DIGITS_MAX or (one_scale and len(scales) > 2):
        return None
    return scale
