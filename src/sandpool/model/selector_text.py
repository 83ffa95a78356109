"""The words of a label selector's text."""

from __future__ import annotations

import re

import msgspec

_WORD = re.compile(r"(?P<name>[^=!(),>< \t\r\n]+)|[=!]=|[=!(),><]")


class SelectorError(ValueError):
    """A selector that cannot be understood, in Kubernetes' words (400)."""


class Words:
    """A selector as a row of words: names, and marks such as `=` or `(`. The empty word is the end."""

    def __init__(self, text: str) -> None:
        self._words = list(_split(text.partition("\0")[0]))
        self._at = 0

    def peek(self) -> str:
        return self._words[self._at][0]

    def is_name(self) -> bool:
        return self._words[self._at][1]

    def take(self) -> str:
        word = self._words[self._at][0]
        self._at = min(self._at + 1, len(self._words) - 1)
        return word


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _split(text: str) -> list[tuple[str, bool]]:
    words = [(found[0], found.lastgroup == "name") for found in _WORD.finditer(text)]
    words.append(("", False))
    return words
