"""What a refusal of the router, or of the daemon in the sandbox, means. Pure.

The router says `detail`, `code` and `message`; the daemon says `code` and `message`. Only the router's words are judged here: what
the daemon's mean depends on what was asked, so those become a RouterError whose `code` the asker looks at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sandpool.sdk.errors import Denied, NotReady, RouterError, SandboxError, SandboxGone, SandboxNotFound, Suspended

LONGEST = 1 << 16  # bytes of a refusal that are worth reading

_ABSENT = "NOT_FOUND"
"""The router knows no sandbox of this name. Whoever asks has had it from a claim: it was there, and is no more."""
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
    """`sandbox` is what was asked for, for messages: `sandbox default/python-x7k2`."""
    words = _object(body) if len(body) <= LONGEST else {}
    code, message = str(words.get("code", ""))[:100], printable(str(words.get("message") or words.get("detail") or ""))
    if "detail" in words:
        if code == _ABSENT:
            return SandboxGone(
                f"{sandbox} has ended: its time was up, it was released, or somebody deleted it; claim another one"
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
    """On one line and without control characters: what a sandbox says may end on somebody's terminal."""
    cut = text[:longest] + ("..." if len(text) > longest else "")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in cut).split())


def _named(sandbox: str, message: str) -> str:
    name = sandbox.rpartition(" ")[2]
    return message if name and name in message else f"{sandbox}: {message}"


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
