"""The server side of one SPDY/3.1 session: which streams are open, and what may be sent. Pure.

`receive` turns bytes into events; `take` returns the frames to send. Kubernetes clients ignore our windows and never widen theirs, so we respect
windows only once a client has sent SETTINGS or WINDOW_UPDATE. Our own windows are widened as data is consumed. If a client sends more than they
allow, the caller bounds it by not reading the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sandpool.controlplane.apiserver.streams.spdy.frames import (
    STREAM,
    Broken,
    Control,
    Damaged,
    DataPiece,
    Decoder,
    Flag,
    GoAway,
    HeaderReader,
    HeaderWriter,
    Kind,
    Reset,
    at,
    control,
    data_frame,
    number,
)

WINDOW: Final = 64 * 1024
"""Bytes that either side may send on a stream, and on all streams together, before the window is widened."""
_INITIAL_WINDOW: Final = 7  # id of the setting
_CONNECTION: Final = 0  # the stream number that means the whole connection, in WINDOW_UPDATE


@dataclass(frozen=True, slots=True)
class Opened:
    """The client opened a stream."""

    stream: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Data arrived on a stream."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The client sends no more on this stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """The client has reset this stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Pinged:
    """The client sent a PING. Answer it with `pong`, unless the client does not read."""

    id: int


@dataclass(frozen=True, slots=True)
class Widened:
    """The client widened a window: more may be sent."""


@dataclass(frozen=True, slots=True)
class Left:
    """The client will open no more streams (GOAWAY)."""


Event = Opened | Arrived | Ended | Dropped | Pinged | Widened | Left


@dataclass(slots=True)
class _Stream:
    window: int = 0  # bytes that may still be sent, relative to the client's initial window
    unread: int = 0  # bytes consumed since our window was last widened
    ended: bool = False  # by the client
    finished: bool = False  # by us


class Session:
    """The state of one session; see the module."""

    def __init__(self, most_streams: int) -> None:
        self._most = most_streams
        self._decoder = Decoder()
        self._reader = HeaderReader()
        self._writer = HeaderWriter()
        self.streams: dict[int, _Stream] = {}
        self._last = 0  # the newest stream that the client opened
        self._windowed = False  # whether the client uses flow control
        self._initial = WINDOW
        self._all = _Stream(WINDOW)  # the window of the connection: SETTINGS do not change it
        self._out = bytearray()
        self._pings = 0
        self.frames = 0  # number of frames in the last `receive`

    # Receiving.

    def receive(self, data: bytes) -> list[Event]:
        """The events in these bytes. Raises Broken if the client breaks the protocol: end the session then."""
        events: list[Event] = []
        frames = self._decoder.feed(data)
        self.frames = len(frames)
        for frame in frames:
            if isinstance(frame, DataPiece):
                self._data(frame, events)
            else:
                self._control(frame, events)
        return events

    def _data(self, frame: DataPiece, events: list[Event]) -> None:
        stream = self.streams.get(frame.stream)
        if stream is None or stream.ended:
            self._stray(frame, stream is not None, events)
            self._consumed(_CONNECTION, self._all, len(frame.data))
            return
        if frame.data:
            events.append(Arrived(frame.stream, frame.data))
        if frame.fin:
            self._end(frame.stream, events)

    def _stray(self, frame: DataPiece, ended: bool, events: list[Event]) -> None:
        """Handles data for a stream that is not open. It is an error after the client's end of the stream, or if the stream never existed.
        After our end it is only late, and ignored."""
        if ended:
            self.reset(frame.stream, Reset.PROTOCOL_ERROR)
            events.append(Dropped(frame.stream))
        elif frame.first and (not frame.stream & 1 or frame.stream > self._last):
            self.reset(frame.stream, Reset.INVALID_STREAM)

    def _control(self, frame: Control, events: list[Event]) -> None:
        payload = frame.payload
        if frame.kind == Kind.SYN_STREAM:
            self._open(_whole(payload, 10, exact=False), frame.flags, events)
        elif frame.kind in (Kind.SYN_REPLY, Kind.HEADERS):
            self._read(_whole(payload, 4, exact=False)[4:])  # only to update the zlib context for later blocks
            if frame.flags & Flag.FIN:
                self._end(at(payload, 0), events)
        elif frame.kind == Kind.RST_STREAM:
            if self.streams.pop(at(_whole(payload, 8), 0), None) is not None:
                events.append(Dropped(at(payload, 0)))
        elif frame.kind == Kind.SETTINGS:
            self._settings(_whole(payload, 4, exact=False), events)
        elif frame.kind == Kind.PING:
            if _whole(payload, 4)[3] & 1:  # odd ids are pings of the client; even ones answer ours
                events.append(Pinged(int.from_bytes(payload, "big")))
        elif frame.kind == Kind.GOAWAY:
            events.append(Left())
        elif frame.kind == Kind.WINDOW_UPDATE:
            self._widen(_whole(payload, 8), events)

    def _open(self, payload: bytes, flags: int, events: list[Event]) -> None:
        headers, stream = self._read(payload[10:]), at(payload, 0)
        if not stream & 1 or stream <= self._last:
            raise Broken(f"the client may not open a stream {stream} after {self._last}")
        self._last = stream
        if len(self.streams) >= self._most:
            self.reset(stream, Reset.REFUSED_STREAM)
            return
        self.streams[stream] = _Stream(finished=bool(flags & Flag.UNIDIRECTIONAL))
        events.append(Opened(stream, headers))
        if flags & Flag.FIN:
            self._end(stream, events)

    def _read(self, block: bytes) -> dict[str, str]:
        try:
            return self._reader.read(block)
        except Damaged as error:
            raise Broken(str(error)) from None

    def _end(self, number: int, events: list[Event]) -> None:
        stream = self.streams.get(number)
        if stream is not None and not stream.ended:
            stream.ended = True
            events.append(Ended(number))
            self._forget(number, stream)

    def _settings(self, payload: bytes, events: list[Event]) -> None:
        """Applies SETTINGS: the last value of a repeated setting counts. The cost does not depend on the number of streams."""
        widened = False
        for place in range(4, len(payload) - 7, 8):
            if int.from_bytes(payload[place + 1 : place + 4], "big") == _INITIAL_WINDOW:
                self._initial, widened = at(payload, place + 4), True
        if widened:
            self._windowed = True
            events.append(Widened())

    def _widen(self, payload: bytes, events: list[Event]) -> None:
        which, more = at(payload, 0), at(payload, 4)
        stream = self._all if which == _CONNECTION else self.streams.get(which)
        self._windowed = True
        if stream is None:
            return
        stream.window += more
        if stream.window + (0 if which == _CONNECTION else self._initial) <= STREAM:
            events.append(Widened())
        elif which == _CONNECTION:
            raise Broken("the client widened the window of the session too far")
        elif which in self.streams:
            self.reset(which, Reset.FLOW_CONTROL_ERROR)
            events.append(Dropped(which))

    # Sending.

    def take(self) -> bytes:
        """Takes the frames that `receive` and the methods below have queued, in order."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def accept(self, stream: int) -> None:
        if stream in self.streams:
            self._out += control(Kind.SYN_REPLY, number(stream) + self._writer.write({}))

    def room(self, stream: int) -> int:
        """How many bytes of data may be sent on a stream now."""
        mine = self.streams.get(stream)
        if mine is None or mine.finished:
            return 0
        return max(0, min(self._initial + mine.window, self._all.window)) if self._windowed else WINDOW

    def open(self, stream: int) -> bool:
        """Whether anything may still be sent on it."""
        mine = self.streams.get(stream)
        return mine is not None and not mine.finished

    def over(self, stream: int) -> bool:
        """Whether both sides have ended the stream, or one has reset it."""
        return stream not in self.streams

    def data(self, stream: int, data: bytes) -> bytes:
        """A data frame; there must be `room` for it. It is returned, not queued for `take`: data may wait for the client, replies should not."""
        self.streams[stream].window -= len(data)
        self._all.window -= len(data)
        return data_frame(stream, data)

    def finish(self, stream: int) -> None:
        """Ends our side of a stream."""
        mine = self.streams.get(stream)
        if mine is not None and not mine.finished:
            mine.finished = True
            self._out += data_frame(stream, b"", fin=True)
            self._forget(stream, mine)

    def reset(self, stream: int, why: Reset) -> None:
        self.streams.pop(stream, None)
        self._out += control(Kind.RST_STREAM, number(stream) + number(why))

    def consumed(self, stream: int, size: int) -> None:
        """Widens our window after data was consumed."""
        self._consumed(_CONNECTION, self._all, size)
        mine = self.streams.get(stream)
        if mine is not None and not mine.ended:
            self._consumed(stream, mine, size)

    def _consumed(self, which: int, stream: _Stream, size: int) -> None:
        stream.unread += size
        if stream.unread >= WINDOW // 2:
            self._out += control(Kind.WINDOW_UPDATE, number(which) + number(stream.unread))
            stream.unread = 0

    def pong(self, id: int) -> None:
        self._out += control(Kind.PING, number(id))

    def ping(self) -> None:
        self._pings = (self._pings + 2) & STREAM
        self._out += control(Kind.PING, number(self._pings))

    def go_away(self, why: GoAway) -> None:
        self._out += control(Kind.GOAWAY, number(self._last) + number(why))

    def _forget(self, number: int, stream: _Stream) -> None:
        if stream.ended and stream.finished:
            self.streams.pop(number, None)


def _whole(payload: bytes, size: int, *, exact: bool = True) -> bytes:
    if len(payload) < size or (exact and len(payload) != size):
        raise Broken("a control frame has the wrong length")
    return payload
