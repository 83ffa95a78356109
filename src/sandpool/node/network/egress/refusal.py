"""Answers of the proxy itself, all of one form: a status, one sentence of text, and the end of the connection."""

from __future__ import annotations

from http import HTTPStatus


class Refusal(Exception):
    """A request that goes no further. `reason` is one word for counts, the message is what the client reads."""

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


def malformed(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "Malformed", message)


def answer(refusal: Refusal) -> bytes:
    body = f"sandpool: {refusal.message}\n".encode()
    return (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body
