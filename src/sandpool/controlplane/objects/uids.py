"""New uids: random like those of `uuid.uuid4`, without a system call for each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

_SIZE: Final = 16
_STOCK: Final = 256  # uids per read of random bytes from the kernel


def uid_of(random: bytes) -> str:
    """Sixteen random bytes as a uid of version 4."""
    text = random.hex()
    variant = "89ab"[random[8] >> 6]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


class NewUids:
    """Generates uids. After a fork, create another one: both processes would return the same uids."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._stock = b""
        self._at = 0

    def __call__(self) -> str:
        at = self._at
        if at >= len(self._stock):
            self._stock, at = self._random(_SIZE * _STOCK), 0
        self._at = at + _SIZE
        return uid_of(self._stock[at : at + _SIZE])
