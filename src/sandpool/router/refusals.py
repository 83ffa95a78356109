"""What the router says instead of forwarding: one word for programs, one sentence for people, and what to do next.

`detail` is where clients of the contract look; it is the message, unless the contract words it itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sandpool.model.metadata import Key
from sandpool.router.values import Answer, Headers


class Word(StrEnum):
    INVALID = "INVALID_ARGUMENT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    DENIED = "PERMISSION_DENIED"
    FOREIGN = "FOREIGN_HOST"
    NOT_FOUND = "NOT_FOUND"
    NOT_CLAIMED = "NOT_CLAIMED"
    METHOD = "METHOD_NOT_ALLOWED"
    SUSPENDED = "SUSPENDED"
    GONE = "GONE"
    TOO_LARGE = "TOO_LARGE"
    EXHAUSTED = "RESOURCE_EXHAUSTED"
    NOT_READY = "NOT_READY"
    UNAVAILABLE = "UNAVAILABLE"
    UNABLE = "UNIMPLEMENTED"


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    word: Word
    message: str
    detail: str = ""
    retry_after: int | None = None  # seconds
    passing: bool = False  # a cache that lags behind its server may make it so

    def answer(self, caller: str = "", about: Key | None = None) -> Answer:
        headers: Headers = ()
        if self.status == 401:
            headers = ((b"www-authenticate", b"Bearer"),)
        if self.retry_after is not None:
            headers += ((b"retry-after", str(self.retry_after).encode()),)
        body = {"detail": self.detail or self.message, "code": self.word.value, "message": self.message}
        return Answer(self.status, body, headers, caller, about)


def invalid(detail: str, message: str) -> Refusal:
    """`detail` as the contract words it, `message` with what to write instead."""
    return Refusal(400, Word.INVALID, message, detail)


def unauthenticated(message: str) -> Refusal:
    return Refusal(401, Word.UNAUTHENTICATED, message)


def denied(message: str) -> Refusal:
    return Refusal(403, Word.DENIED, message)


def unavailable(message: str) -> Refusal:
    return Refusal(503, Word.UNAVAILABLE, message, retry_after=1)
