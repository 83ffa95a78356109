"""HTTP responses: sent whole, or streamed in pieces."""

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
"""Bytes. Longer responses are sent in pieces of about this size, so that other requests get a turn in between."""
WORTH_GZIP: Final = 128 * 1024
MOST_WARNINGS: Final = 64  # Python's HTTP client accepts a hundred headers
MOST_WARNING: Final = 4096  # characters of all warnings of one response; if there are more, each is cut to:
LONG_WARNING: Final = 256
MOST_ENCODINGS: Final = 32  # entries of an Accept-Encoding header that are read

_JSON: Final = (b"content-type", b"application/json")
_NO_CACHE: Final = (b"cache-control", b"no-cache, private")
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")
JSON_LINES: Final = lines_of([_JSON, _NO_CACHE])


class Response(Protocol):
    """What a handler returns. `deliver` sends it."""

    @property
    def status(self) -> int: ...

    async def deliver(self, exchange: Exchange) -> None: ...


class JsonResponse(msgspec.Struct, frozen=True, gc=False):
    """A whole JSON response. `headers` are additional to Content-Type, Cache-Control and Content-Length."""

    body: bytes
    status: int = 200
    headers: Headers = []

    async def deliver(self, exchange: Exchange) -> None:
        lines = JSON_LINES + lines_of(self.headers) if self.headers else JSON_LINES
        await exchange.whole(self.status, lines, self.body)


class RawResponse(msgspec.Struct, frozen=True, gc=False):
    """A whole response with exactly the headers given."""

    body: bytes
    status: int
    headers: Headers

    async def deliver(self, exchange: Exchange) -> None:
        await exchange.whole(self.status, lines_of(self.headers), self.body)


class StreamedResponse(msgspec.Struct, frozen=True):
    """A long response, sent piece by piece. A slow client delays only itself."""

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


def text(body: str, status: int = 200, extra: Headers | None = None) -> RawResponse:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), _NO_CACHE, _NO_SNIFF, *(extra or ())]
    return RawResponse(body.encode(), status, headers)


def page_not_found() -> RawResponse:
    """Kubernetes' response to paths that are not served."""
    return text("404 page not found\n", HTTPStatus.NOT_FOUND)


def error_response(error: ApiError) -> JsonResponse:
    headers: Headers = warnings(error.warnings) if isinstance(error, Refusal) else []
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    return JsonResponse(msgspec.json.encode(error.body()), error.code, headers)


def json_response(content: Any, status: int = 200) -> JsonResponse:
    return JsonResponse(msgspec.json.encode(content), status)


def warnings(messages: tuple[str, ...]) -> Headers:
    """Warning headers: code 299, no agent, quoted text without control characters. Their total length is limited as in
    Kubernetes, because clients refuse responses with long headers."""
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
    entries = (entry.partition(b";") for entry in header.lower().split(b",", MOST_ENCODINGS)[:MOST_ENCODINGS])
    return any(name.strip() == b"gzip" and weight.strip() not in {b"q=0", b"q=0.0"} for name, _, weight in entries)
