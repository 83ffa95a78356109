"""JSON as the daemon in the sandbox says it: names of files may be any bytes, which survive as surrogates. Pure.

The daemon is the sandbox's: it may say anything. Whatever it says, what comes of it is a value or an error of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandpool.kube.errors import Unreadable
from sandpool.sdk.errors import RouterError, TooLarge

MOST_VALUES = 4_000_000
"""Values in one answer: each takes much more room than the two bytes that name it. A folder of 100,000 entries has a million."""


def check_values(body: bytes, whose: str, most: int = MOST_VALUES) -> None:
    """TooLarge, if what a JSON text says takes many times the room of the text."""
    if len(body) > most and sum(map(body.count, (b",", b"[", b"{"))) > most:
        raise TooLarge(f"{whose} has more than {most} values", most)


def read_object(body: bytes) -> dict[str, Any]:
    check_values(body, "an answer of the sandbox's daemon")
    try:
        value = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise Unreadable("an answer of the sandbox's daemon is not JSON") from None
    if not isinstance(value, dict):
        raise Unreadable("an answer of the sandbox's daemon is no object")
    return value


@contextmanager
def understood() -> Iterator[None]:
    """Fields that are missing, or are something else than they should be."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        kind = type(error).__name__
        raise RouterError(
            f"the sandbox's daemon speaks another version: a field is missing or wrong ({kind})"
        ) from None
