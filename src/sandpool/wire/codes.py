"""The error codes of boxd: one word for each reason to refuse a request, and its HTTP status."""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    INVALID = ("INVALID_ARGUMENT", 400)
    UNAUTHENTICATED = ("UNAUTHENTICATED", 401)
    DENIED = ("PERMISSION_DENIED", 403)
    NOT_FOUND = ("NOT_FOUND", 404)
    NO_PROGRAM = ("COMMAND_NOT_FOUND", 404)  # the command itself; NOT_FOUND is for its working directory
    METHOD = ("METHOD_NOT_ALLOWED", 405)
    CONFLICT = ("CONFLICT", 409)
    RESTARTED = ("RESTARTED", 412)  # the request names another run of boxd; nothing was done
    TOO_LARGE = ("TOO_LARGE", 413)
    RANGE = ("RANGE_NOT_SATISFIABLE", 416)
    EXHAUSTED = ("RESOURCE_EXHAUSTED", 429)
    INTERNAL = ("INTERNAL", 500)
    UNAVAILABLE = ("UNAVAILABLE", 503)
    NO_SPACE = ("NO_SPACE", 507)

    def __init__(self, word: str, status: int) -> None:
        self.word = word
        self.status = status


class Refused(Exception):  # an expected answer, not a failure
    """An error response: a code and a message."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
