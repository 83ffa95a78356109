"""Header blocks: one context for each direction, and no block that makes us hold much."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.streams.spdy.frames import (
    DICTIONARY,
    MOST_BYTES,
    MOST_HEADERS,
    Damaged,
    HeaderReader,
    HeaderWriter,
)

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20).map(str.lower)
values = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=50)


def test_the_dictionary_is_the_one_of_the_draft() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


@given(st.lists(st.dictionaries(names, values, max_size=6), max_size=6))
def test_blocks_share_a_context(blocks: list[dict[str, str]]) -> None:
    writer, reader = HeaderWriter(), HeaderReader()
    assert [reader.read(writer.write(block)) for block in blocks] == blocks


def test_names_are_read_in_lower_case_and_the_first_value_counts() -> None:
    assert HeaderReader().read(HeaderWriter().write({"streamType": "error\0data"})) == {"streamtype": "error"}


def packed(plain: bytes) -> bytes:
    packer = zlib.compressobj(zdict=DICTIONARY)
    return packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH)


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


DAMAGED = {
    "no zlib": b"hello",
    "another dictionary": zlib.compressobj(zdict=b"another").flush(),
    "more than one": zlib.compress(b"\0\0\0\0") * 2,
    "empty": packed(b""),
    "no count": packed(b"\0\0"),
    "a bomb": packed(b"\0" * (MOST_BYTES * 500)),
    "too many": packed(number(MOST_HEADERS + 1) + number(0) * 2 * (MOST_HEADERS + 1)),
    "cut in a name": packed(number(1) + number(9) + b"abc"),
    "cut before a value": packed(number(1) + number(1) + b"a"),
    "a length beyond everything": packed(number(1) + number(2**32 - 1)),
    "more than it counts": packed(number(0) + b"x"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged(case: str) -> None:
    with pytest.raises(Damaged):
        HeaderReader().read(DAMAGED[case])


@given(st.binary(max_size=300))
def test_noise(noise: bytes) -> None:
    with pytest.raises(Damaged):
        HeaderReader().read(b"\x78\xbb" + noise)
