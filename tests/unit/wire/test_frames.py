"""Frames: whatever was packed comes out again, however it is cut; what is no frame is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.wire.frames import LONGEST, BadFrame, Frame, Frames, Kind, message, pack, pack_value, read_message

FRAMES = st.lists(st.builds(Frame, st.sampled_from(Kind), st.binary(max_size=300)), max_size=20)


@given(FRAMES, st.lists(st.integers(1, 50), min_size=1))
def test_frames_survive_any_cut(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(pack(frame.kind, frame.data) for frame in frames)
    decoder, found, at, turn = Frames(), [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        found += decoder.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert found == frames
    assert decoder.whole


@given(st.sampled_from(Kind), st.binary(max_size=300))
def test_messages_come_back(kind: Kind, data: bytes) -> None:
    assert read_message(message(kind, data)) == Frame(kind, data)


@pytest.mark.parametrize("data", [b"\xff\0\0\0\0", b"\x02" + (LONGEST + 1).to_bytes(4, "big")])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        Frames().feed(data)


@pytest.mark.parametrize("data", [b"", b"\x63"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        read_message(data)


def test_a_cut_frame_is_not_whole() -> None:
    decoder = Frames()
    assert decoder.feed(pack(Kind.STDOUT, b"abc")[:-1]) == []
    assert not decoder.whole


def test_values_are_objects() -> None:
    (frame,) = Frames().feed(pack_value(Kind.EXIT, {"code": 3}))
    assert frame.value == {"code": 3}
    with pytest.raises(ValueError, match="not an object"):
        _ = Frame(Kind.EXIT, b"[1]").value
