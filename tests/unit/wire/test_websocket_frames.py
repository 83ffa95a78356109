"""Frames of RFC 6455: whatever a client sends, in whatever slices it arrives, means the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.wire.websocket import (
    NO_STATUS,
    CloseCode,
    Closed,
    Decoder,
    Event,
    Opcode,
    Piece,
    Ping,
    Pong,
    Violation,
    close_frame,
    frame,
    unmask,
)

MASK = b"\x01\x02\x03\x04"
PING = frame(Opcode.PING, b"are you there")


def masked(unmasked: bytes, mask: bytes = MASK) -> bytes:
    """A server's frame as a client would have sent it."""
    size = {126: 4, 127: 10}.get(unmasked[1], 2)
    return unmasked[:1] + bytes((unmasked[1] | 128,)) + unmasked[2:size] + mask + unmask(unmasked[size:], mask, 0)


def fed(data: bytes, cuts: list[int] | None = None) -> list[Event]:
    decoder, events, start = Decoder(), [], 0
    for cut in [*sorted({c % (len(data) + 1) for c in cuts or ()}), len(data)]:
        events += decoder.feed(data[start:cut])
        start = cut
    return events


def told(events: list[Event]) -> list[object]:
    """Messages put together again; other events where they were."""
    found: list[object] = []
    parts: list[bytes] = []
    for event in events:
        if not isinstance(event, Piece):
            found.append(event)
            continue
        assert event.first == (not parts) or parts == [b""] * len(parts)
        parts.append(event.data)
        if event.final:
            found.append((event.binary, b"".join(parts)))
            parts = []
    return found


fragments = st.lists(st.binary(max_size=300), min_size=1, max_size=4)


@given(
    messages=st.lists(fragments, max_size=5),
    mask=st.binary(min_size=4, max_size=4),
    pinged=st.booleans(),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_messages_survive_fragments_pings_and_slices(
    messages: list[list[bytes]], mask: bytes, pinged: bool, cuts: list[int]
) -> None:
    sent, expected = b"", []
    for parts in messages:
        for index, part in enumerate(parts):
            opcode = Opcode.BINARY if index == 0 else Opcode.CONTINUATION
            sent += masked(frame(opcode, part, fin=index == len(parts) - 1), mask)
            if pinged:
                sent += masked(PING, mask)
                expected.append(Ping(b"are you there"))
        at = len(expected) - 1 if pinged else len(expected)  # the message is whole before the ping after its last part
        expected.insert(at, (True, b"".join(parts)))  # type: ignore[arg-type]
    assert told(fed(sent, cuts)) == expected


@given(st.text(max_size=400), st.lists(st.integers(0, 2000), max_size=10))
def test_text_may_be_cut_within_a_character(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    half = len(raw) // 2
    sent = masked(frame(Opcode.TEXT, raw[:half], fin=False)) + masked(frame(Opcode.CONTINUATION, raw[half:]))
    assert told(fed(sent, cuts)) == [(False, raw)]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_lengths(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    assert told(fed(masked(frame(Opcode.BINARY, payload[:size])))) == [(True, payload[:size])]


def test_a_long_frame_is_handed_on_as_it_comes() -> None:
    decoder = Decoder()
    head = bytes((0x82, 0xFF)) + (2**40).to_bytes(8, "big") + MASK
    assert decoder.feed(head) == []
    for _ in range(10):
        (piece,) = decoder.feed(b"x" * 50_000)
        assert isinstance(piece, Piece)
        assert (len(piece.data), piece.final) == (50_000, False)
    assert len(decoder.buffer) == 0


BROKEN = {
    "reserved bits": (bytes((0xC2, 0x80)) + MASK, CloseCode.PROTOCOL_ERROR),
    "not masked": (bytes((0x82, 0x01)) + b"x", CloseCode.PROTOCOL_ERROR),
    "unknown data": (masked(bytes((0x83, 0x00))), CloseCode.PROTOCOL_ERROR),
    "unknown control": (masked(bytes((0x8B, 0x00))), CloseCode.PROTOCOL_ERROR),
    "long control": (bytes((0x89, 0xFE, 0x00, 0x7E)) + MASK + b"x" * 126, CloseCode.PROTOCOL_ERROR),
    "fragmented control": (masked(frame(Opcode.PING, b"", fin=False)), CloseCode.PROTOCOL_ERROR),
    "nothing to continue": (masked(frame(Opcode.CONTINUATION, b"x")), CloseCode.PROTOCOL_ERROR),
    "within another": (
        masked(frame(Opcode.BINARY, b"x", fin=False)) + masked(frame(Opcode.BINARY, b"y")),
        CloseCode.PROTOCOL_ERROR,
    ),
    "highest bit": (bytes((0x82, 0xFF)) + b"\xff" * 8 + MASK, CloseCode.PROTOCOL_ERROR),
    "text": (masked(frame(Opcode.TEXT, b"\xff\xfe")), CloseCode.INVALID_DATA),
    "text that ends early": (masked(frame(Opcode.TEXT, "é".encode()[:1])), CloseCode.INVALID_DATA),
    "close of one byte": (masked(frame(Opcode.CLOSE, b"\x03")), CloseCode.PROTOCOL_ERROR),
    "close with a reserved code": (masked(frame(Opcode.CLOSE, (1005).to_bytes(2, "big"))), CloseCode.PROTOCOL_ERROR),
    "close without text": (masked(frame(Opcode.CLOSE, b"\x03\xe8\xff")), CloseCode.INVALID_DATA),
}


@pytest.mark.parametrize("case", BROKEN)
def test_violations(case: str) -> None:
    sent, code = BROKEN[case]
    with pytest.raises(Violation) as raised:
        fed(sent)
    assert raised.value.code == code


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_noise_is_read_or_refused_the_same_in_any_slices(noise: bytes, cuts: list[int]) -> None:
    def outcome(cuts: list[int] | None) -> object:
        try:
            return told(fed(noise, cuts))
        except Violation as violation:
            return violation.code

    whole, sliced = outcome(None), outcome(cuts)
    assert isinstance(whole, CloseCode) == isinstance(sliced, CloseCode)
    assert whole == sliced


def test_close_ends_everything() -> None:
    sent = masked(close_frame(1001, "bye")) + masked(frame(Opcode.BINARY, b"late"))
    assert fed(sent) == [Closed(1001, "bye")]
    assert fed(masked(close_frame(NO_STATUS))) == [Closed(NO_STATUS, "")]
    assert fed(masked(frame(Opcode.PONG, b"x"))) == [Pong(b"x")]


def test_a_long_reason_is_cut_between_characters() -> None:
    (closed,) = fed(masked(close_frame(1008, "é" * 200)))
    assert closed == Closed(1008, "é" * 61)


def test_unmask_is_its_own_inverse() -> None:
    assert unmask(b"", MASK, 3) == b""
    assert unmask(unmask(b"hello world", MASK, 2), MASK, 2) == b"hello world"
    assert unmask(b"\0" * 6, MASK, 3) == b"\x04\x01\x02\x03\x04\x01"
