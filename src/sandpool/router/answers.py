"""What the router says itself, as bytes. Pure."""

from __future__ import annotations

import json

from sandpool.router.outgoing import status_line
from sandpool.router.values import Answer


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
