"""The kinds of responses, and how their heads are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from sandpool.wire.codes import Refused
from sandpool.wire.frames import encode

REASONS = {
    101: "Switching Protocols", 200: "OK", 201: "Created", 204: "No Content", 206: "Partial Content", 304: "Not Modified",
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    409: "Conflict", 412: "Precondition Failed", 413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content",
    429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable", 507: "Insufficient Storage",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Last(bytes):
    """The last piece: it is sent in one write with the final chunk."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A chunked response. `source` is closed when the client goes. `prompt`: its first piece is available at once and is sent in
    one write with the head."""

    source: AsyncGenerator[bytes, None]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    prompt: bool = False


@dataclass(frozen=True, slots=True)
class FromFile:
    """A part of an open file, sent by the kernel. The file is closed afterwards."""

    file: BinaryIO
    start: int
    length: int
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Switched:
    """The connection is upgraded: `run` takes it over."""

    run: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    headers: Mapping[str, str]


Answer = Reply | Streamed | FromFile | Switched


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(status, encode(value), {"content-type": "application/json"})


def refusal(error: Refused) -> Reply:
    return json_reply({"code": error.code.word, "message": error.message}, error.code.status)


def head_of(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {_one_line(value)}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def _one_line(value: str) -> str:
    """Replaces line breaks: a file name may contain them, a header may not."""
    return "".join(character if character >= " " and character != "\x7f" else "?" for character in value)
