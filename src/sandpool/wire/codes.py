"""Why a request to boxd was refused: one word, and the HTTP status that goes with it."""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    INVALID = ("INVALID_ARGUMENT", 400)
    UNAUTHENTICATED = ("UNAUTHENTICATED", 401)
    DENIED = ("PERMISSION_DENIED", 403)
    NOT_FOUND = ("NOT_FOUND", 404)
    NO_PROGRAM = ("COMMAND_NOT_FOUND", 404)  # of a command: another 404 is about its folder
    METHOD = ("METHOD_NOT_ALLOWED", 405)
    CONFLICT = ("CONFLICT", 409)
    RESTARTED = ("RESTARTED", 412)  # another run of boxd was meant; nothing was done
    TOO_LARGE = ("TOO_LARGE", 413)
    RANGE = ("RANGE_NOT_SATISFIABLE", 416)
    EXHAUSTED = ("RESOURCE_EXHAUSTED", 429)
    INTERNAL = ("INTERNAL", 500)
    UNAVAILABLE = ("UNAVAILABLE", 503)
    NO_SPACE = ("NO_SPACE", 507)

    def __init__(self, word: str, status: int) -> None:
        self.word = word
        self.status = status


class Refused(Exception):  # it is an answer, not an accident
    """An answer that says no, and why."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
