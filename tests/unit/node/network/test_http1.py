"""Where a chunked body ends, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.network.egress.http1 import Chunks, Refusal


def encoded(parts: list[bytes], trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n" + trailers + b"\r\n"


def fed(data: bytes, cuts: list[int]) -> tuple[int, bool]:
    """How many bytes belong to the body, when they come in pieces."""
    chunks, taken, at = Chunks(), 0, 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        taken += chunks.feed(data[at:cut])
        at = cut
    return taken, chunks.ended


def in_steps(data: bytes, step: int) -> None:
    chunks = Chunks()
    for at in range(0, len(data), step):
        chunks.feed(data[at : at + step])


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 500), max_size=10), st.binary(max_size=20))
def test_the_body_ends_where_it_ends(parts: list[bytes], cuts: list[int], behind: bytes) -> None:
    body = encoded(parts, b"X: 1\r\nY: 2\r\n")
    assert fed(body + behind, cuts) == (len(body), True)
    assert fed(body[:-1], cuts) == (len(body) - 1, False)


@pytest.mark.parametrize(
    "data",
    [
        *(b"x\r\n", b"-1\r\n", b"+1\r\n", b"0x1\r\n", b"\r\n", b" 1\r\n", b"1 \r\n\x00\r\n", b"1\n", b"1\r\r\n", b"f" * 16 + b"\r\n"),
        *(b"1\r\nab\r\n", b"1\r\na\n", b"1\r\na\r\r", b"2\r\nab\n\r", b"1;\x00\r\n", b"1;" + b"a" * 5000),
        b"0\r\n" + b"X: " + b"a" * 3000 + b"\r\n" + (b"Y: " + b"b" * 3000 + b"\r\n") * 12,
    ],
)  # fmt: skip
def test_what_is_no_chunk_is_refused_in_any_pieces(data: bytes) -> None:
    for step in (1, 3, len(data)):
        with pytest.raises(Refusal):
            in_steps(data, step)


def test_extensions_are_passed_over() -> None:
    assert fed(b'3;a=b;c="d"\r\nabc\r\n0;x\r\n\r\n', [])[1]


@given(st.binary(max_size=200))
def test_garbage_never_breaks_it(data: bytes) -> None:
    chunks = Chunks()
    try:
        assert 0 <= chunks.feed(data) <= len(data)
    except Refusal:
        pass
