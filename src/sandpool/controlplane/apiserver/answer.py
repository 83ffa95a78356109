"""Answers: whole ones, and those that are sent piece by piece."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from sandpool.controlplane.admission.causes import Refusal
from sandpool.controlplane.apiserver.exchange import Exchange, Headers, lines_of
from sandpool.kube.errors import ApiError

PIECE: Final = 256 * 1024
"""Answers beyond this go out in pieces of about this size, so that others get their turn in between."""
WORTH_GZIP: Final = 128 * 1024
MOST_WARNINGS: Final = 64  # Python's HTTP client takes a hundred headers
MOST_WARNING: Final = 4096  # characters of all warnings of one answer; beyond it each is cut to:
LONG_WARNING: Final = 256

_JSON: Final = (b"content-type", b"application/json")
_NO_CACHE: Final = (b"cache-control", b"no-cache, private")
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")
JSON_LINES: Final = lines_of([_JSON, _NO_CACHE])


class Reply(Protocol):
    """What a handler returns: it sends itself."""

    @property
    def status(self) -> int: ...

    async def deliver(self, exchange: Exchange) -> None: ...


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole answer. `headers` are those beyond JSON, no caching and the length."""

    body: bytes
    status: int = 200
    headers: Headers = []

    async def deliver(self, exchange: Exchange) -> None:
        lines = JSON_LINES + lines_of(self.headers) if self.headers else JSON_LINES
        await exchange.whole(self.status, lines, self.body)


class Document(msgspec.Struct, frozen=True, gc=False):
    """A whole answer with nothing but the headers it says."""

    body: bytes
    status: int
    headers: Headers

    async def deliver(self, exchange: Exchange) -> None:
        await exchange.whole(self.status, lines_of(self.headers), self.body)


class Streamed(msgspec.Struct, frozen=True):
    """A long answer, sent as its pieces come. A slow client holds up only itself."""

    pieces: AsyncIterator[bytes]
    gzip: bool = False
    status: int = 200

    async def deliver(self, exchange: Exchange) -> None:
        packed = [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")] if self.gzip else []
        await exchange.start(self.status, JSON_LINES + lines_of(packed))
        packer = zlib.compressobj(1, zlib.DEFLATED, 31) if self.gzip else None
        async for piece in self.pieces:
            out = piece if packer is None else packer.compress(piece)
            await exchange.piece(out)
        await exchange.end(packer.flush() if packer is not None else b"")


def text(body: str, status: int = 200, extra: Headers | None = None) -> Document:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), _NO_CACHE, _NO_SNIFF, *(extra or ())]
    return Document(body.encode(), status, headers)


def page_not_found() -> Document:
    """What Kubernetes says on paths where nothing at all is served."""
    return text("404 page not found\n", HTTPStatus.NOT_FOUND)


def of_error(error: ApiError) -> Answer:
    headers: Headers = warnings(error.warnings) if isinstance(error, Refusal) else []
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    return Answer(msgspec.json.encode(error.body()), error.code, headers)


def encoded(content: Any, status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(content), status)


def warnings(messages: tuple[str, ...]) -> Headers:
    """Warning headers: code 299, no agent, quoted text. Control characters never reach a header, and all of them together
    stay as short as Kubernetes keeps them: clients refuse answers with long headers."""
    if len(messages) > MOST_WARNINGS or sum(map(len, messages)) > MOST_WARNING:
        messages = tuple(_fitting(messages))
    return [(b"warning", b'299 - "%s"' % _quoted(message)) for message in messages]


def _fitting(messages: tuple[str, ...]) -> Iterator[str]:
    left = MOST_WARNING
    for message in messages[:MOST_WARNINGS]:
        cut = message[:LONG_WARNING]
        left -= len(cut)
        if left < 0:
            return
        yield cut


def _quoted(message: str) -> bytes:
    clean = "".join(c if c.isprintable() else " " for c in message[:MOST_WARNING])
    return clean.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8", "replace")


def accepts_gzip(header: bytes | None) -> bool:
    if not header:
        return False
    entries = (entry.partition(b";") for entry in header.lower().split(b","))
    return any(name.strip() == b"gzip" and weight.strip() not in {b"q=0", b"q=0.0"} for name, _, weight in entries)
