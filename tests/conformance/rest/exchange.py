"""Puts a case to a server and reduces what comes back to what a client may rely on."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
import yaml
from yarl import URL

from conformance.bodies import sandbox
from conformance.rest.case import Body, Case, Step
from conformance.rest.catalogue import CASES

READ_TIMEOUT = 12.0
WATCH_TIMEOUT = 4.0
_COLLECTION = re.compile(r"^(/api/v1|/apis/[^/]+/[^/]+)(/namespaces/[^/]+)?/[a-z]+")
_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_REVISION = re.compile(
    r"((?:in precondition|in object meta|resource version|current): |resource version: N \(|in (?:the precondition|record) \()\d+"
)
_PATCHED = re.compile(r'(?<=Invalid value: ").*(?=": )', re.DOTALL)
_GENERATED = re.compile(r"\bAbc-[a-z0-9]{5}\b")
_REPEATED = re.compile(r"(\w)\1{40,}")

Answer = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A server under test: where it is and how to be let in."""

    url: str
    token: str
    tls: ssl.SSLContext


class PreparationFailed(Exception):
    """A step that a case presumes was not answered with success: a discrepancy of its own."""


class Exchange:
    """One client session with one server; each case gets a namespace of its own."""

    def __init__(self, target: Target, session: aiohttp.ClientSession) -> None:
        self._target = target
        self._session = session

    async def ask(self, case: Case) -> Answer:
        namespace = f"rest-{secrets.token_hex(4)}"
        words = {"ns": namespace}
        await self._prepare(Step("POST /api/v1/namespaces", {"metadata": {"name": namespace}}), words)
        try:
            return await self._ask_in(case, words)
        finally:
            await self._send(f"DELETE /api/v1/namespaces/{namespace}", b"", "", (), False)

    async def _ask_in(self, case: Case, words: dict[str, str]) -> Answer:
        for step in case.given:
            made = await self._prepare(step, words)
            meta = made.get("metadata") or {}
            words.setdefault("uid", meta.get("uid", ""))
            words.setdefault("rv", meta.get("resourceVersion", ""))
            words["newest"] = meta.get("resourceVersion", "")
        request = _filled(case.request, words)
        before = await self._stored(request)
        body = _encoded(case.body, words)
        status, headers, text = await self._send(request, body, case.content_type, case.headers, case.anonymous)
        answer = reduce(status, headers, text, case.show, words)
        if before is not None:
            answer["stored"] = await self._stored(request) != before
        return answer

    async def _prepare(self, step: Step, words: dict[str, str]) -> dict[str, Any]:
        request = _filled(step.request, words)
        status, _, text = await self._send(request, _encoded(step.body, words), step.content_type, (), False)
        if status >= 300:
            raise PreparationFailed(f"{request} answered {status}: {text.decode(errors='replace')[:500]}")
        made: dict[str, Any] = json.loads(text)
        return made

    async def _stored(self, request: str) -> dict[str, str] | None:
        """Names and revisions of the collection that a write is about; None for reads and unknown paths."""
        method, _, path = request.partition(" ")
        match = _COLLECTION.match(path)
        if method in ("GET", "HEAD", "OPTIONS") or not match or not match.group(2):
            return None
        status, _, text = await self._send(f"GET {match.group(0)}", b"", "", (), False)
        if status != 200:
            return None
        metas = (item["metadata"] for item in json.loads(text)["items"])
        return {meta["name"]: meta["resourceVersion"] for meta in metas}

    async def _send(
        self, request: str, body: bytes, content_type: str, headers: tuple[tuple[str, str], ...], anonymous: bool
    ) -> tuple[int, Any, bytes]:
        method, _, path = request.partition(" ")
        sent = dict(headers)
        if not anonymous:
            sent["Authorization"] = f"Bearer {self._target.token}"
        if content_type and method not in ("GET", "HEAD"):
            sent["Content-Type"] = content_type
        async with self._session.request(
            method,
            URL(self._target.url + path, encoded=True),
            data=BytesIO(body) if body else None,  # as a stream, because some bodies are large
            headers=sent,
            ssl=self._target.tls,
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=60),
        ) as answer:
            text = await _read(answer, WATCH_TIMEOUT if "watch=" in path else READ_TIMEOUT)
            return answer.status, answer.headers, text


async def ask_all(target: Target, names: Sequence[str], *, at_once: int) -> dict[str, Answer | Exception]:
    """The answers by name of case; where there was none, what happened instead."""
    places = asyncio.Semaphore(at_once)
    async with aiohttp.ClientSession() as session:
        exchange = Exchange(target, session)

        async def ask(name: str) -> Answer | Exception:
            async with places:
                try:
                    return await exchange.ask(CASES[name])
                except (PreparationFailed, aiohttp.ClientError, TimeoutError, ValueError) as trouble:
                    return trouble

        return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


async def _read(answer: aiohttp.ClientResponse, limit: float) -> bytes:
    """The body, or as much of it as comes within the limit: a watch may have no end."""
    text = bytearray()
    try:
        async with asyncio.timeout(limit):
            async for part in answer.content.iter_any():
                text += part
    except TimeoutError:
        text += b'{"type": "STILL OPEN"}'
    return bytes(text)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace("{" + word + "}", value)
    return text


def _encoded(body: Body, words: dict[str, str]) -> bytes:
    if body is None:
        return b""
    if body == b"@yaml":
        return yaml.safe_dump(sandbox()).encode()
    if isinstance(body, bytes):
        return body
    return _filled(json.dumps(body), words).encode()


def reduce(status: int, headers: Any, text: bytes, show: tuple[str, ...], words: dict[str, str]) -> Answer:
    """Code, media type, warnings, and of the body what matters: a Status whole, an object where `show` looks."""
    answer: Answer = {"code": status}
    media = headers.get("Content-Type", "")
    if "protobuf" in media:
        return {"code": status, "media": media}
    if media != "application/json":
        answer["media"] = media
    warnings = [w for header in headers.getall("Warning", []) for w in _WARNING.findall(header)]
    if warnings:
        answer["warnings"] = [_neutral(w.replace('\\"', '"'), words) for w in warnings]
    try:
        body = json.loads(text)
    except ValueError:
        return answer | _stream_or_text(text, words)
    if not isinstance(body, dict):
        return answer | {"text": _neutral(text.decode(), words)}
    if body.get("kind") == "Status":
        return answer | _status(body, words, status)
    if "type" in body and "object" in body:
        return answer | _stream_or_text(text, words)
    return answer | {"shown": {path: _at(body, path, words) for path in show}} if show else answer


def _stream_or_text(text: bytes, words: dict[str, str]) -> Answer:
    if not text.startswith(b'{"type"'):
        return {"text": _neutral(text.decode(errors="replace"), words)} if text else {}
    events = []
    for line in text.splitlines():
        event = json.loads(line)
        kind, body = event["type"], event.get("object") or {}
        events.append({"error": _status(body, words, 410)} if kind == "ERROR" else kind)
    return {"events": events}


def _status(body: dict[str, Any], words: dict[str, str], code: int) -> Answer:
    answer: Answer = {name: body[name] for name in ("status", "reason", "message") if name in body}
    if body.get("code", code) != code:
        answer["status_code"] = body["code"]
    details = dict(body.get("details") or {})
    if "causes" in details:
        # A server walks maps in any order and validates some updates several times, so the causes come in any order
        # and number, and so does the message that repeats them.
        causes = {(c.get("field", ""), c.get("message", "")): c for c in details["causes"]}
        details["causes"] = [causes[key] for key in sorted(causes)]
        for cause in details["causes"]:
            if cause.get("field") == "patch":  # repeats the whole object
                cause["message"] = _PATCHED.sub("...", cause["message"])
        answer["message"] = re.sub(r"(?<= is invalid: ).*", "...", answer["message"], flags=re.DOTALL)
    if details:
        answer["details"] = details
    neutral: Answer = json.loads(_neutral(json.dumps(answer), words))
    return neutral


def _neutral(text: str, words: dict[str, str]) -> str:
    """The text without what differs from run to run."""
    text = _UID.sub("UID", text.replace(words["ns"], "NS"))
    for _ in range(2):  # "too old resource version: 1 (212)" holds two
        text = _REVISION.sub(r"\1N", text)
    text = _GENERATED.sub("Abc-RANDOM", text)
    return _REPEATED.sub(lambda run: f"{run[1]}*{len(run[0])}", text)


def _at(body: Any, path: str, words: dict[str, str]) -> Any:
    for part in path.split("."):
        if isinstance(body, list):
            body = body[int(part)] if int(part) < len(body) else None
        else:
            body = body.get(part) if isinstance(body, dict) else None
    return json.loads(_neutral(json.dumps(body), words))
