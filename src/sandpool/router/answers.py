"""Responses of the router itself: a code for programs, and a message that says what to do next. Pure.

Clients of the contract read `detail`: it is the message, unless the contract prescribes the text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from sandpool.model.metadata import Key
from sandpool.router.outgoing import status_line
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
    passing: bool = False  # the cache may lag behind the API server

    def answer(self, caller: str = "", about: Key | None = None) -> Answer:
        headers: Headers = ()
        if self.status == 401:
            headers = ((b"www-authenticate", b"Bearer"),)
        if self.retry_after is not None:
            headers += ((b"retry-after", str(self.retry_after).encode()),)
        body = {"detail": self.detail or self.message, "code": self.word.value, "message": self.message}
        return Answer(self.status, body, headers, caller, about)


def invalid(detail: str, message: str) -> Refusal:
    """`detail` as the contract prescribes it, `message` with the correct syntax."""
    return Refusal(400, Word.INVALID, message, detail)


def unauthenticated(message: str) -> Refusal:
    return Refusal(401, Word.UNAUTHENTICATED, message)


def denied(message: str) -> Refusal:
    return Refusal(403, Word.DENIED, message)


def unavailable(message: str) -> Refusal:
    return Refusal(503, Word.UNAVAILABLE, message, retry_after=1)


def problem(status: int, message: str, code: str = "") -> Answer:
    """For clients of the contract (`detail`) and for our own (`code`, `message`)."""
    return Answer(status, {"detail": message, "code": code or _CODES.get(status, "INTERNAL"), "message": message})


_CODES = {
    400: "INVALID_ARGUMENT", 408: "DEADLINE_EXCEEDED", 413: "TOO_LARGE", 417: "INVALID_ARGUMENT", 431: "TOO_LARGE",
    502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


def encoded(answer: Answer, *, bare: bool = False, close: bool = False, id: str = "") -> bytes:
    """`bare`: the answer to a HEAD."""
    body = json.dumps(answer.body).encode()
    lines = [status_line(answer.status)]
    lines += [b"%s: %s" % field for field in answer.headers]
    if answer.status not in (204, 304):
        lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
    if id:
        lines.append(b"x-request-id: " + id.encode())
    if close:
        lines.append(b"connection: close")
    lines.append(b"\r\n")
    return b"\r\n".join(lines) + (b"" if bare or answer.status in (204, 304) else body)
