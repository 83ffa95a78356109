"""What refusals mean, and that nothing hostile in them reaches a terminal."""

from __future__ import annotations

import json

import pytest

from sandpool.router.answers import Word
from sandpool.sdk.answers import printable, refusal
from sandpool.sdk.errors import Denied, NotReady, RouterError, SandboxGone, SandboxNotFound, Suspended

BOX = "sandbox default/python-x"


def said(code: str, message: str = "because", router: bool = True) -> bytes:
    return json.dumps({"code": code, "message": message, **({"detail": message} if router else {})}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, said(Word.UNAUTHENTICATED), Denied),
        (403, said(Word.DENIED), Denied),
        (403, said(Word.FOREIGN), Denied),
        (404, said(Word.NOT_FOUND), SandboxGone),
        (404, said(Word.NOT_CLAIMED), SandboxNotFound),
        (409, said(Word.SUSPENDED), Suspended),
        (410, said(Word.GONE), SandboxGone),
        (503, said(Word.NOT_READY), NotReady),
        (503, said(Word.UNAVAILABLE), RouterError),
        (404, said("NOT_FOUND", router=False), RouterError),
        (401, b"", Denied),
        (500, b"<html>", RouterError),
        (302, b"", RouterError),
    ],
)
def test_classes(status: int, body: bytes, kind: type[Exception]) -> None:
    error = refusal(status, body, BOX)
    assert type(error) is kind
    assert "python-x" in str(error)


def test_what_the_daemon_says_is_kept_for_whoever_asked() -> None:
    error = refusal(404, said("NOT_FOUND", "no such file", router=False), BOX)
    assert isinstance(error, RouterError)
    assert (error.status, error.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize("body", [said("X", "\x1b[2Jgone\r\nfaked", router=False), b"\x1b]0;title\x07"])
def test_no_control_character_gets_through(body: bytes) -> None:
    assert str(refusal(400, body, BOX)).isprintable()


def test_long_text_is_cut() -> None:
    assert len(printable("x" * 10_000)) == 2003
