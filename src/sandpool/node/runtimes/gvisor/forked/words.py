"""What runsc says when something cannot be done, in the words of a pod's status. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

MOST = 1000
START = ("error finding executable", "no such file or directory", "permission denied", "exec format error",
         "is a directory", "not a directory", "invalid argument: not executable", "failed to load")  # fmt: skip


def last_words(log: str) -> dict[str, object]:
    """Objects follow one another without anything between them; the last one counts."""
    decoder, found, rest = json.JSONDecoder(), {}, log.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError:
            break
        if isinstance(value, dict):
            found = value
        rest = rest[end:].lstrip()
    return found


def refusal(code: int, log: str) -> list[str]:
    """Reason and message of something that has nothing to do with a command."""
    words = last_words(log)
    match words.get("refused"):
        case [str(reason), str(message)]:
            return [reason, message]
    told = words.get("msg")
    return ["Gvisor", str(told)[-MOST:] if told else f"runsc ended with code {code} and said nothing"]


def explain(code: int, log: str, argv: Sequence[str], cwd: str = "") -> list[str]:
    """Reason and message of a command that could not be started."""
    reason, message = refusal(code, log)
    if reason != "Gvisor" or not argv:
        return [reason, message]
    name = argv[0]
    if "error finding executable" in message or "no such file or directory" in message:
        if "error finding executable" not in message and cwd and f'"{cwd}"' in message:
            return ["StartError", f"cannot enter the working directory {cwd!r}: no such file or directory"]
        return ["StartError", f"no such file or directory: {name!r}"]
    if "permission denied" in message:
        return ["StartError", f"permission denied: {name!r} is not executable"]
    if "exec format error" in message:
        return ["StartError", f"exec format error: {name!r} is no program for this machine"]
    if any(words in message for words in START):
        return ["StartError", f"cannot start {name!r}: {message}"]
    return ["CreateContainerError", message]


def not_connected(port: int, code: int, log: str) -> list[str]:
    _, message = refusal(code, log)
    if "refused" in message:
        return ["ConnectionRefused", f"nobody listens on port {port} of the sandbox"]
    return ["ConnectionRefused", f"port {port} of the sandbox cannot be reached: {message}"]
