"""Decodes answers of the router and of the daemon in the sandbox into values, or into errors of the SDK. Pure.

The daemon is under the sandbox's control and may answer anything. File names may be any bytes, which survive as surrogates.

A refusal of the router has `detail`, `code` and `message`; one of the daemon has `code` and `message`. Only the router's codes are
interpreted here: the meaning of the daemon's depends on the request, so they become a RouterError whose `code` the caller checks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sandpool.kube.errors import Unreadable
from sandpool.sdk.errors import (
    Denied,
    NotReady,
    RouterError,
    SandboxError,
    SandboxGone,
    SandboxNotFound,
    Suspended,
    TooLarge,
)

MOST_VALUES = 4_000_000
"""Values in one answer: each takes much more memory than the two bytes that encode it. A directory of 100,000 entries has a million."""


def check_values(body: bytes, whose: str, most: int = MOST_VALUES) -> None:
    """TooLarge if the decoded JSON would take many times the memory of its text."""
    if len(body) > most and sum(map(body.count, (b",", b"[", b"{"))) > most:
        raise TooLarge(f"{whose} has more than {most} values", most)


def read_object(body: bytes) -> dict[str, Any]:
    check_values(body, "an answer of the sandbox's daemon")
    try:
        value = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise Unreadable("an answer of the sandbox's daemon is not JSON") from None
    if not isinstance(value, dict):
        raise Unreadable("an answer of the sandbox's daemon is not a JSON object")
    return value


@contextmanager
def understood() -> Iterator[None]:
    """Turns a missing or wrong field into a RouterError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        kind = type(error).__name__
        raise RouterError(
            f"the sandbox's daemon speaks another version: a field is missing or wrong ({kind})"
        ) from None


LONGEST = 1 << 16  # bytes of a refusal that are decoded

_ABSENT = "NOT_FOUND"
"""The router knows no sandbox of this name. The name came from a claim, so the sandbox existed and has ended."""
_BY_CODE: dict[str, type[SandboxError]] = {
    "UNAUTHENTICATED": Denied,
    "PERMISSION_DENIED": Denied,
    "FOREIGN_HOST": Denied,
    "NOT_CLAIMED": SandboxNotFound,
    "SUSPENDED": Suspended,
    "GONE": SandboxGone,
    "NOT_READY": NotReady,
}


def refusal(status: int, body: bytes, sandbox: str) -> SandboxError:
    """`sandbox` is its name for messages: `sandbox default/python-x7k2`."""
    words = _object(body) if len(body) <= LONGEST else {}
    code, message = _text(words, "code")[:100], printable(_text(words, "message") or _text(words, "detail"))
    if "detail" in words:
        if code == _ABSENT:
            return SandboxGone(
                f"{sandbox} has ended: it expired, it was released, or somebody deleted it; claim another one"
            )
        kind = _BY_CODE.get(code)
        if kind is not None:
            return kind(_named(sandbox, message))
    if status == 401:
        return Denied(f"{sandbox}: {message or 'the router does not know this token'}; check SANDPOOL_TOKEN")
    if not message:
        text = printable(body[:200].decode("utf-8", "replace"))
        message = f"was refused with {status}{f': {text}' if text else ''}"
    return RouterError(_named(sandbox, message), status, code)


def printable(text: str, longest: int = 2000) -> str:
    """On one line and without control characters, because text of a sandbox may be printed on a terminal."""
    cut = text[:longest] + ("..." if len(text) > longest else "")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in cut).split())


def _named(sandbox: str, message: str) -> str:
    name = sandbox.rpartition(" ")[2]
    return message if name and name in message else f"{sandbox}: {message}"


def _text(words: Mapping[str, Any], field: str) -> str:
    value = words.get(field)
    return value if isinstance(value, str) else ""


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
