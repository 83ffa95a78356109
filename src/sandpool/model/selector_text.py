"""The words of a label selector's text."""

from __future__ import annotations

import msgspec

_SPECIAL = "=!(),><"
_BLANK = " \t\r\n"
_SYMBOLS = frozenset({")", ",", "!", "==", "=", ">", "<", "!=", "("})


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
    words: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        start = at
        if text[at] in _BLANK:
            at += 1
        elif text[at] in _SPECIAL:
            two = text[at : at + 2]
            word = two if two in _SYMBOLS else text[at]
            words.append((word, False))
            at += len(word)
        else:
            while at < len(text) and text[at] not in _SPECIAL and text[at] not in _BLANK:
                at += 1
            words.append((text[start:at], True))
    words.append(("", False))
    return words
