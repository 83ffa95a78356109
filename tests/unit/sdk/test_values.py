"""Results, what is kept of output, commands as they are sent, paths as they are asked for."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.sdk.command import shown, spec_of
from sandpool.sdk.errors import CommandError, CommandFailed, CommandNotFound, CommandTimeout
from sandpool.sdk.outcome import Capture, checked, last_lines
from sandpool.sdk.remote_files import file_url, joined, octal
from sandpool.sdk.values import Captured, Result


@given(st.lists(st.binary(max_size=30)), st.integers(2, 40))
def test_the_beginning_and_the_end_are_kept(pieces: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for piece in pieces:
        capture.add(piece)
    whole, kept = b"".join(pieces), capture.done()
    assert len(kept.data) + kept.left_out == len(whole)
    if len(whole) <= limit:
        assert (kept.data, kept.left_out) == (whole, 0)
    else:
        assert len(kept.data) == limit
        assert whole.startswith(kept.head)
        assert whole.endswith(kept.tail)


def test_memory_is_bounded_by_the_limit() -> None:
    capture = Capture(1000)
    for _ in range(10_000):
        capture.add(b"x" * 100)
    assert sum(map(len, capture.head)) + sum(map(len, capture.tail)) < 1200


def test_text_is_never_an_error() -> None:
    assert Captured(b"\xff\xed\xa0\x80").text.encode()
    assert Captured(b"ab\xc3", b"\xa9cd", 5).text == "ab\ufffd\n[5 bytes left out]\n\ufffdcd"


def test_success_is_an_exit_code_of_zero_in_time() -> None:
    assert Result("x", 0).ok
    assert not Result("x", 1).ok
    assert not Result("x", 0, timed_out=True).ok


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (Result("make all", 2, err=Captured(b"bad\n")), CommandFailed, "'make all' ended with exit code 2; it said last:\nbad"),
        (Result(("a", "b"), 1, out=Captured(b"only out")), CommandFailed, "'a b' ended with exit code 1; it said last:\nonly out"),
        (Result("x", 137, signal=9), CommandFailed, "'x' ended by signal 9; it said nothing"),
        (Result("nosuch", 127, err=Captured(b"not found")), CommandNotFound, "'nosuch' ended with exit code 127; it said last:\nnot found"),
        (Result(("sh", "x"), 127), CommandFailed, "'sh x' ended with exit code 127; it said nothing"),
        (Result("x", 137, signal=9, timed_out=True), CommandTimeout, "'x' was ended because its time was up; it said nothing"),
    ],
)  # fmt: skip
def test_failures_explain_themselves(result: Result, error: Any, words: str) -> None:
    with pytest.raises(error) as raised:
        checked(result, "sandbox default/a")
    assert type(raised.value) is error
    assert str(raised.value) == f"sandbox default/a: {words}"


@pytest.mark.parametrize("timed_out", [False, True])
def test_an_error_has_the_same_output_as_the_result(timed_out: bool) -> None:
    result = Result("x", 9, Captured(b"out\xff", b"end", 5), Captured(b"err\n"), timed_out=timed_out)
    with pytest.raises(CommandError) as raised:
        checked(result, "sandbox default/a")
    error: Any = raised.value
    for name in ("stdout", "stderr", "stdout_bytes", "stderr_bytes"):
        assert getattr(error, name) == getattr(result, name), name
    nothing = CommandTimeout("it goes on")
    assert (nothing.stdout, nothing.stderr, nothing.stdout_bytes, nothing.stderr_bytes) == ("", "", b"", b"")


def test_only_the_last_lines_are_told() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    assert last_lines(text).splitlines() == [f"line {number}" for number in range(90, 100)]
    assert len(last_lines("x" * 100_000)) == 2000


def test_commands_as_they_are_sent() -> None:
    assert spec_of("a | b", cwd=PurePosixPath("x"), env={"A": "1"}, timeout=2) == {
        "shell": "a | b", "cwd": "x", "env": {"A": "1"}, "timeout": 2,
    }  # fmt: skip
    assert spec_of(("ls", PurePosixPath("/x"))) == {"argv": ["ls", "/x"]}  # type: ignore[arg-type]
    assert shown("a\n  b") == "a b"
    assert len(shown("x" * 500)) == 80


@pytest.mark.parametrize(
    ("path", "flags", "values", "url"),
    [
        ("a b/ü?.txt", (), {}, "/box/v1/files/a%20b/%C3%BC%3F.txt?relative"),
        ("/etc/x", ("stat",), {}, "/box/v1/files/etc/x?stat"),
        ("x", ("tar",), {"mode": ""}, "/box/v1/files/x?tar&relative"),
        ("x", (), {"move": "a&b"}, "/box/v1/files/x?relative&move=a%26b"),
        ("\udcff", (), {}, "/box/v1/files/%FF?relative"),
    ],
)
def test_paths_as_they_are_asked_for(path: str, flags: Any, values: Any, url: str) -> None:
    assert file_url(path, *flags, **values) == url


def test_names_and_modes() -> None:
    assert (joined(".", "a"), joined("x/", "a"), joined("/", "a")) == ("a", "x/a", "/a")
    assert (octal(None), octal(0o644)) == ("", "0644")
    with pytest.raises(ValueError, match="0o644"):
        octal(0o1777)
