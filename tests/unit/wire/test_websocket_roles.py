"""What one role writes the other one reads, and only the other one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.wire.websocket import Closed, Decoder, Opcode, Piece, Ping, Role, Violation, close_frame, frame, unmask

MASK = b"\x11\x22\x33\x44"
roles = st.sampled_from(Role)


def mask_of(role: Role) -> bytes:
    return MASK if role is Role.CLIENT else b""


@given(role=roles, payload=st.binary(max_size=70_000), cut=st.integers(0, 70_100))
def test_a_message_survives_any_slices(role: Role, payload: bytes, cut: int) -> None:
    other = Role.CLIENT if role is Role.SERVER else Role.SERVER
    data = frame(Opcode.BINARY, payload, mask=mask_of(role))
    decoder = Decoder(other)
    events = decoder.feed(data[:cut]) + decoder.feed(data[cut:])
    assert b"".join(event.data for event in events if isinstance(event, Piece)) == payload
    last = events[-1]
    assert isinstance(last, Piece)
    assert last.final


@pytest.mark.parametrize("role", Role)
def test_a_frame_of_ones_own_role_is_a_violation(role: Role) -> None:
    with pytest.raises(Violation, match="masked"):
        Decoder(role).feed(frame(Opcode.BINARY, b"x", mask=mask_of(role)))


@pytest.mark.parametrize("role", Role)
def test_control_frames(role: Role) -> None:
    other = Role.CLIENT if role is Role.SERVER else Role.SERVER
    data = frame(Opcode.PING, b"hi", mask=mask_of(role)) + close_frame(1000, "bye", mask=mask_of(role))
    assert Decoder(other).feed(data) == [Ping(b"hi"), Closed(1000, "bye")]


def test_a_masked_frame_does_not_show_its_payload() -> None:
    data = frame(Opcode.BINARY, b"abcd", mask=MASK)
    assert b"abcd" not in data
    assert data[:2] == bytes((0x82, 0x84))
    assert unmask(data[6:], MASK, 0) == b"abcd"
