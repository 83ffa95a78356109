"""A sandbox keeps cookies, but only its own."""

from __future__ import annotations

import pytest

from sandpool.router.outgoing import for_browser, for_sandbox, mark_of

PREFIX = b"/port/TOKEN"
MARK = mark_of(PREFIX)


def test_there_and_back() -> None:
    told = for_browser(b"session=a=b; HttpOnly; Path=/app; Domain=example.com; SameSite=Lax", MARK, PREFIX)
    assert told == MARK + b"session=a=b; HttpOnly; SameSite=Lax; Path=/port/TOKEN/app"
    sent = (
        b"jupyter=secret; "
        + told.partition(b";")[0]
        + b"; "
        + mark_of(b"/port/OTHER")
        + b"session=other;session=forged"
    )
    assert for_sandbox(sent, MARK) == b"session=a=b"


@pytest.mark.parametrize("cookie", [b"jupyter=secret", b"", b";;", b"box-=x", MARK[:-1]])
def test_nothing_of_others(cookie: bytes) -> None:
    assert for_sandbox(cookie, MARK) == b""


@pytest.mark.parametrize("path", [b"", b"; Path=", b"; path=relative", b"; PATH = /"])
def test_a_path_is_always_its_own(path: bytes) -> None:
    assert for_browser(b"a=b" + path, MARK, PREFIX + b"/").endswith(b"; Path=/port/TOKEN/")


def test_the_last_path_counts_as_in_a_browser() -> None:
    assert for_browser(b"a=b; Path=/x; Path=/y", MARK, PREFIX).count(b"Path=") == 1


@pytest.mark.parametrize("cookie", [b"", b"nameless", b"=x", b"; Path=/"])
def test_what_is_no_cookie(cookie: bytes) -> None:
    assert for_browser(cookie, MARK, PREFIX) == b""
