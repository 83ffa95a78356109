"""Bodies end where they say, however they are cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.wire.http_body import BadBody, Chunked, Exact, Reader, UntilClose, in_chunks, plain


def read(reader: Reader, data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """Feeds it in pieces; what comes after the body is the rest of all."""
    body, edges = b"", sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        if reader.ended:
            return body, data[start:]
        piece, rest = reader.take(data[start:end])
        body += piece
        if rest:
            return body, rest + data[end:]
    return body, b""


@given(st.lists(st.binary(max_size=50)), st.binary(max_size=10), st.lists(st.integers(0, 10**6), max_size=20))
def test_chunks_in_any_pieces(pieces: list[bytes], behind: bytes, cuts: list[int]) -> None:
    sent = [piece for piece in pieces if piece]
    data = b"".join(b"".join(in_chunks(piece, False)) for piece in sent) + b"".join(in_chunks(b"", True)) + behind
    reader = Chunked()
    assert read(reader, data, cuts) == (b"".join(sent), behind)
    assert reader.ended


@given(st.binary(max_size=50), st.binary(max_size=10), st.lists(st.integers(0, 10**6), max_size=20))
def test_exact_bytes_in_any_pieces(body: bytes, behind: bytes, cuts: list[int]) -> None:
    reader = Exact(len(body))
    found, rest = read(reader, body + behind, cuts)
    assert found == body
    assert rest == behind
    assert reader.ended


def test_the_last_piece_ends_with_it() -> None:
    assert b"".join(in_chunks(b"abc", True)) == b"3\r\nabc\r\n0\r\n\r\n"
    assert b"".join(plain(b"abc", True)) == b"abc"
    assert not plain(b"", True)
    assert not in_chunks(b"", False)


def test_extensions_and_trailers_are_dropped() -> None:
    reader = Chunked()
    assert reader.take(b'3;a="b";c\r\nabc\r\n0 ;x\r\nX-Sum: 1\r\n\r\nnext') == (b"abc", b"next")


@pytest.mark.parametrize(
    "data",
    [
        b"3\nabc\r\n", b"3\r\nabcd", b"3\r\nabc\n", b"3\r\nabc\r\r", b"\r\nabc", b"0x3\r\nabc\r\n", b"+3\r\n", b"-3\r\n", b" 3\r\n", b"3 \r\n", b"g\r\n",
        b"3_0\r\n", b"1000000000000000\r\n", b"0\r\n\n", b"0\r\nno trailer\r\n\r\n", b"0\r\n folded: x\r\n\r\n", b"3;\x00\r\n", b"3;a\rb\r\n", b"\n",
        b"0\r\nX: \x01\r\n\r\n", b"9" * 5000, b"0\r\n" + b"X: y\r\n" * 40, b"3\x0b\r\n", b"\xef\xbc\x93\r\n",
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("one_by_one", [True, False])
def test_bad_chunks_are_refused(data: bytes, one_by_one: bool) -> None:
    with pytest.raises(BadBody):
        read(Chunked(), data, list(range(len(data))) if one_by_one else [])


def test_what_is_cut_short_is_not_whole() -> None:
    for reader, data in ((Exact(5), b"abcd"), (Chunked(), b"3\r\nabc\r\n0\r\n"), (Chunked(), b"3\r\nab")):
        reader.take(data)
        with pytest.raises(BadBody):
            reader.cut()
    last = UntilClose()
    assert last.take(b"abc") == (b"abc", b"")
    last.cut()
    assert last.ended


@given(
    st.lists(
        st.sampled_from([b"3", b"0", b"a", b"\r\n", b"\r", b"\n", b";", b"x: y", b"abc", b"f" * 8])
        | st.binary(max_size=3),
        max_size=30,
    )
)
def test_any_bytes_are_read_or_refused_the_same_way_in_any_pieces(pieces: list[bytes]) -> None:
    def told(parts: list[bytes]) -> tuple[bytes, bytes] | None:
        reader, body, after = Chunked(), b"", b""
        try:
            for part in parts:
                if reader.ended:
                    after += part
                    continue
                piece, rest = reader.take(part)
                body, after = body + piece, after + rest
        except BadBody:
            return None
        return body, after

    data = b"".join(pieces)
    assert told([data]) == told(pieces) == told([data[at : at + 1] for at in range(len(data))])
