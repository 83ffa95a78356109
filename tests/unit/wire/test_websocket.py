"""The WebSocket codec: against its own encoder with a client's mask, and against what the standard forbids."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.wire.websocket import Decoder, Message, Opcode, Violation, accept, answer_to, frame


def masked(data: bytes, *, opcode: int = 2, final: bool = True, mask: bytes = b"abcd") -> bytes:
    """As a client sends it, written out byte by byte."""
    length = len(data)
    head = bytes([(0x80 if final else 0) | opcode])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 1 << 16:
        head += bytes([0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + length.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


@given(st.lists(st.binary(max_size=400), max_size=6), st.binary(min_size=4, max_size=4), st.integers(1, 30))
def test_messages_survive_any_cut(messages: list[bytes], mask: bytes, cut: int) -> None:
    data = b"".join(masked(one, mask=mask) for one in messages)
    decoder = Decoder()
    found = [one for at in range(0, len(data), cut) for one in decoder.feed(data[at : at + cut])]
    assert found == [Message(Opcode.BINARY, one) for one in messages]


def test_long_messages() -> None:
    data = os.urandom(70_001)
    assert Decoder().feed(masked(data)) == [Message(Opcode.BINARY, data)]


def test_fragments_are_joined_and_a_ping_may_come_between() -> None:
    data = masked(b"one ", opcode=1, final=False) + masked(b"p", opcode=9) + masked(b"two", opcode=0)
    assert Decoder().feed(data) == [Message(Opcode.PING, b"p"), Message(Opcode.TEXT, b"one two")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.BINARY, b"unmasked"), 1002),
        (masked(b"x", opcode=3), 1002),
        (masked(b"x", opcode=0), 1002),
        (masked(b"x", opcode=1, final=False) + masked(b"y", opcode=1), 1002),
        (masked(b"x" * 126, opcode=9), 1002),
        (masked(b"x", opcode=8, final=False), 1002),
        (b"\xc2\x80abcd", 1002),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big"), 1009),
    ],
)
def test_what_the_protocol_forbids_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(Violation) as refused:
        Decoder().feed(data)
    assert refused.value.code == code


def test_fragments_together_may_not_be_longer_than_a_message() -> None:
    decoder = Decoder(longest=10)
    decoder.feed(masked(b"123456", final=False))
    with pytest.raises(Violation):
        decoder.feed(masked(b"123456", opcode=0))


def test_the_example_of_the_standard() -> None:
    assert answer_to("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    "change",
    [{"upgrade": "h2c"}, {"sec-websocket-version": "8"}, {"sec-websocket-key": "short"}, {"sec-websocket-key": "*"}],
)
def test_an_upgrade_that_is_none_says_why(change: dict[str, str]) -> None:
    good = {"upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert isinstance(accept(good), dict)
    assert isinstance(accept(good | change), str)
