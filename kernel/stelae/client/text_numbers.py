"""Decides whether a double represents a number that is written as text.

It represents a whole number if it is exactly equal. It represents another number if printing the double with as many
digits gives the number's digits again."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from math import isfinite

DIGITS_MAX = 38
"""The most digits of a decimal."""

SAFE_CHARACTERS = 15
"""A number of at most this many characters, without an exponent, has at most as many digits. Every double keeps 15
digits."""

_DIGITS_OF_ANY = 767
"""The most significant digits of any double, written exactly."""


def keeps(text: str, value: float) -> bool:
    """Return whether ``value``, the double nearest to the number ``text``, represents it.

    It does for ``0.1``, and for a double that was printed with more digits than necessary. Whole numbers must be equal,
    because they may be identifiers, and two identifiers must not become one."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # The exponent is too large.
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
    """Return a number of JSON: a float if that represents it, else a decimal."""
    value = float(text)
    if (len(text) <= SAFE_CHARACTERS and "e" not in text and "E" not in text) or repr(value) == text:
        return value
    return value if keeps(text, value) else Decimal(text)


def decimal_of(numbers: Iterable[Decimal], *, one_scale: bool) -> int | None:
    """Return the scale of a decimal type with ``DIGITS_MAX`` digits that holds all numbers; ``None``: no such type.

    Args:
        one_scale: whether all numbers with a fraction must have the same number of digits in it.
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
