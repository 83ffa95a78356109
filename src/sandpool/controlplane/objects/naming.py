"""Names that the server makes: a prefix and five characters that cannot spell a word."""

from __future__ import annotations

import random

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH = 5
_LONGEST = 63 - _LENGTH
ATTEMPTS = 8

_random = random.SystemRandom()


def random_suffix() -> str:
    return "".join(_random.choices(_ALPHABET, k=_LENGTH))


def generated(prefix: str, suffix: str) -> str:
    return prefix[:_LONGEST] + suffix
