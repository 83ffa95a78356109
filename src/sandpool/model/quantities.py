"""Kubernetes quantities: exact numbers with a suffix, such as 100m, 1.5Gi or 2e3.

Parsing, canonical form, comparison and addition follow apimachinery: never floating point, the suffix family (binary, decimal,
exponent) is remembered, precision ends at one nano and rounds away from zero, binary values are capped at 2**63-1.
A suffix without any digit, which Go reads as zero, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache, total_ordering

PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_MATCH = re.compile(
    r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)", re.ASCII
)  # linear: nothing is given back
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+", re.ASCII)
_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_LIMIT = 2**63 - 1
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MAX_EXPONENT = 400  # keeps 1e999999999 from being computed
_MAX_DIGITS = 1000
_REMEMBERED = 32  # maximum characters of a cached text: most pods use the same few amounts


class Family(Enum):
    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


class QuantityError(ValueError):
    """Text that is not a quantity; the message is Kubernetes'."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A number in nanos, and its suffix family. Equal numbers are equal whatever their family."""

    nanos: int
    family: Family = Family.DECIMAL

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __add__(self, other: Quantity) -> Quantity:
        """The sum, in the suffix family of the left operand, or of the right one if the left is zero, as in Kubernetes."""
        return Quantity(self.nanos + other.nanos, self.family if self.nanos else other.family)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.family if self.nanos else other.family)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _away_from_zero(Fraction(self.nanos, 10**9))

    @property
    def milli(self) -> int:
        return _away_from_zero(Fraction(self.nanos, 10**6))

    def __str__(self) -> str:
        return _write(self.nanos, self.family)


def parse(text: str | int | float) -> Quantity:
    """Parses a quantity as it appears in JSON: text or a number."""
    if isinstance(text, bool):
        raise QuantityError(_WRONG)
    if not isinstance(text, str):
        text = str(text)
    return _remembered(text) if len(text) <= _REMEMBERED else _parse(text)


def _parse(text: str) -> Quantity:
    found = _MATCH.fullmatch(text)
    if found is None:
        raise QuantityError(_WRONG)
    sign, whole, fraction, suffix = found[1], found[2], found[3] or "", found[4]
    if (not whole and not fraction) or len(whole) + len(fraction) > _MAX_DIGITS:
        raise QuantityError(_WRONG)
    bits, power, family = _scale(suffix)
    nanos = _shifted(int(whole + fraction) << bits, power + 9 - len(fraction))
    if sign == "-":
        nanos = -nanos
    return Quantity(_cap(nanos) if family is Family.BINARY else nanos, family)


_remembered = lru_cache(maxsize=4096)(_parse)


def canonical(text: str | int | float) -> str:
    return str(parse(text))


def _scale(suffix: str) -> tuple[int, int, Family]:
    """The power of two, the power of ten and the family of a suffix."""
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix], Family.DECIMAL
    if suffix in _BINARY:
        return _BINARY[suffix], 0, Family.BINARY
    if _EXPONENT.fullmatch(suffix) is None or len(suffix) > _MAX_DIGITS:
        raise QuantityError(_WRONG_SUFFIX)
    exponent = int(suffix[1:])
    return 0, max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent)), Family.EXPONENT


def _shifted(number: int, places: int) -> int:
    """A non-negative number times a power of ten, rounded up."""
    power: int = 10 ** abs(places)
    return number * power if places >= 0 else -(-number // power)


def _away_from_zero(number: Fraction) -> int:
    whole = -(-abs(number).numerator // number.denominator)
    return -whole if number < 0 else whole


def _cap(nanos: int) -> int:
    return max(-_LIMIT * 10**9, min(_LIMIT * 10**9, nanos))


def _write(nanos: int, family: Family) -> str:
    """Formats nanos with the largest suffix that leaves no fraction."""
    if not nanos:
        return "0"
    units, rest = divmod(nanos, 10**9)
    if family is Family.BINARY and not rest and not -1024 < units < 1024:
        suffix = ""
        for name, bits in _BINARY.items():
            if units % 2**bits:
                break
            suffix = name
        return f"{units // 2 ** _BINARY.get(suffix, 0)}{suffix}"
    digits = str(nanos)
    zeros = len(digits) - len(digits.rstrip("0"))
    dropped = zeros - zeros % 3 if family is Family.EXPONENT else min(zeros - zeros % 3, 27)
    mantissa, exponent = digits[: len(digits) - dropped], dropped - 9
    if family is Family.EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else mantissa
    return mantissa + _SUFFIXES[exponent]
