"""Channels: the first byte of a message names the stream, in any pieces."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.streams.upgrade import Channels
from sandpool.controlplane.apiserver.streams.websocket_channels import ChannelDecoder, Finished, Part, message
from sandpool.wire.websocket import Piece, Violation

PLAIN, TEXT = Channels(5), Channels(4, base64=True)


def pieces(data: bytes, cuts: list[int]) -> list[Piece]:
    marks = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    parts = [data[a:b] for a, b in pairwise(marks)]
    return [Piece(part, True, n == 0, n == len(parts) - 1) for n, part in enumerate(parts)]


@given(
    protocol=st.sampled_from([PLAIN, TEXT]),
    channel=st.integers(0, 4),
    data=st.binary(max_size=400),
    cuts=st.lists(st.integers(0, 600), max_size=6),
)
def test_round_trip_in_any_pieces(protocol: Channels, channel: int, data: bytes, cuts: list[int]) -> None:
    decoder = ChannelDecoder(protocol)
    for _ in range(2):  # nothing of one message is left for the next
        parts = [p for piece in pieces(message(protocol, channel, data), cuts) if (p := decoder.feed(piece))]
        assert all(isinstance(part, Part) and part.channel == channel for part in parts)
        assert b"".join(part.data for part in parts if isinstance(part, Part)) == data


def test_close_names_a_stream_only_from_version_5_on() -> None:
    sent = Piece(b"\xff\x00", True, True, True)
    assert ChannelDecoder(PLAIN).feed(sent) == Finished(0)
    assert ChannelDecoder(Channels(4)).feed(sent) == Part(255, b"\0")


def test_what_says_nothing() -> None:
    assert ChannelDecoder(PLAIN).feed(Piece(b"", True, True, True)) is None
    assert ChannelDecoder(PLAIN).feed(Piece(b"\0", True, True, True)) is None


@pytest.mark.parametrize("text", [b"0a", b"0####", b"0ab=c"])
def test_what_is_no_base64(text: bytes) -> None:
    with pytest.raises(Violation):
        ChannelDecoder(TEXT).feed(Piece(text, False, True, True))


def test_base64_as_it_is_sent() -> None:
    assert message(TEXT, 3, b"\0\1\2") == b"3" + base64.b64encode(b"\0\1\2")
