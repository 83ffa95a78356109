"""A console that prints nothing and keeps everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandpool.cli.console import Update


class Silent:
    color = False

    def __init__(self) -> None:
        self.data = ""
        self.talk: list[str] = []

    def write(self, text: str) -> None:
        self.data += text

    def say(self, text: str) -> None:
        self.talk.append(text)

    @contextmanager
    def progress(self, text: str) -> Iterator[Update]:
        yield lambda text: None
