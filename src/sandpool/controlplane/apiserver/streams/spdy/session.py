"""One SPDY/3.1 session as a server holds it: which streams there are and what may be sent. Pure.

`receive` turns bytes into events and leaves answers in `take`. Clients of Kubernetes neither keep to windows nor widen ours, so
windows bind us only once a client has spoken of them (SETTINGS or WINDOW_UPDATE); ours are widened as data is consumed. What a
client sends beyond them is bounded by not reading the connection, which is the caller's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sandpool.controlplane.apiserver.streams.spdy.frames import (
    STREAM,
    Broken,
    Control,
    DataPiece,
    Decoder,
    Flag,
    GoAway,
    Kind,
    Reset,
    at,
    control,
    data_frame,
    number,
)
from sandpool.controlplane.apiserver.streams.spdy.headers import Damaged, HeaderReader, HeaderWriter

WINDOW: Final = 64 * 1024
"""What either side may send on a stream, and on all together, before it is told that more is welcome."""
_INITIAL_WINDOW: Final = 7  # the setting
_CONNECTION: Final = 0  # stands for all streams together, in windows


@dataclass(frozen=True, slots=True)
class Opened:
    stream: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Arrived:
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The client sends no more on this stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """The client wants nothing more of this stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Pinged:
    """To be answered by `pong`, unless the client does not read."""

    id: int


@dataclass(frozen=True, slots=True)
class Widened:
    """More may be sent than before."""


@dataclass(frozen=True, slots=True)
class Left:
    """The client opens no more streams."""


Event = Opened | Arrived | Ended | Dropped | Pinged | Widened | Left


@dataclass(slots=True)
class _Stream:
    window: int = 0  # what may still be sent, beyond what the client grants every stream at first
    unread: int = 0  # bytes that were consumed since our window was last widened
    ended: bool = False  # by the client
    finished: bool = False  # by us


class Session:
    def __init__(self, most_streams: int) -> None:
        self._most = most_streams
        self._decoder = Decoder()
        self._reader = HeaderReader()
        self._writer = HeaderWriter()
        self._streams: dict[int, _Stream] = {}
        self._last = 0  # the newest stream that the client opened
        self._windowed = False  # the client keeps windows
        self._initial = WINDOW
        self._all = _Stream(WINDOW)  # settings are about streams only
        self._out = bytearray()
        self._pings = 0
        self.frames = 0  # in what was received last

    # What the client sends.

    def receive(self, data: bytes) -> list[Event]:
        """Broken ends the session."""
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
        stream = self._streams.get(frame.stream)
        if stream is None or stream.ended:
            self._stray(frame, stream is not None, events)
            self._consumed(_CONNECTION, self._all, len(frame.data))
            return
        if frame.data:
            events.append(Arrived(frame.stream, frame.data))
        if frame.fin:
            self._end(frame.stream, events)

    def _stray(self, frame: DataPiece, ended: bool, events: list[Event]) -> None:
        """Data after the client's own end is an error, as is data for what never was; after our end it is only late."""
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
            self._read(_whole(payload, 4, exact=False)[4:])  # not needed, but part of the context of later blocks
            if frame.flags & Flag.FIN:
                self._end(at(payload, 0), events)
        elif frame.kind == Kind.RST_STREAM:
            if self._streams.pop(at(_whole(payload, 8), 0), None) is not None:
                events.append(Dropped(at(payload, 0)))
        elif frame.kind == Kind.SETTINGS:
            self._settings(_whole(payload, 4, exact=False), events)
        elif frame.kind == Kind.PING:
            if _whole(payload, 4)[3] & 1:  # the others are answers to ours
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
        if len(self._streams) >= self._most:
            self.reset(stream, Reset.REFUSED_STREAM)
            return
        self._streams[stream] = _Stream(finished=bool(flags & Flag.UNIDIRECTIONAL))
        events.append(Opened(stream, headers))
        if flags & Flag.FIN:
            self._end(stream, events)

    def _read(self, block: bytes) -> dict[str, str]:
        try:
            return self._reader.read(block)
        except Damaged as error:
            raise Broken(str(error)) from None

    def _end(self, number: int, events: list[Event]) -> None:
        stream = self._streams.get(number)
        if stream is not None and not stream.ended:
            stream.ended = True
            events.append(Ended(number))
            self._forget(number, stream)

    def _settings(self, payload: bytes, events: list[Event]) -> None:
        """Of a setting that is repeated the last counts; none takes longer the more streams there are."""
        widened = False
        for place in range(4, len(payload) - 7, 8):
            if int.from_bytes(payload[place + 1 : place + 4], "big") == _INITIAL_WINDOW:
                self._initial, widened = at(payload, place + 4), True
        if widened:
            self._windowed = True
            events.append(Widened())

    def _widen(self, payload: bytes, events: list[Event]) -> None:
        which, more = at(payload, 0), at(payload, 4)
        stream = self._all if which == _CONNECTION else self._streams.get(which)
        self._windowed = True
        if stream is None:
            return
        stream.window += more
        if stream.window + (0 if which == _CONNECTION else self._initial) <= STREAM:
            events.append(Widened())
        elif which == _CONNECTION:
            raise Broken("the client widened the window of the session too far")
        elif which in self._streams:
            self.reset(which, Reset.FLOW_CONTROL_ERROR)
            events.append(Dropped(which))

    # What we send.

    def take(self) -> bytes:
        """Frames that `receive` and the methods below left to be sent, in order."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def accept(self, stream: int) -> None:
        if stream in self._streams:
            self._out += control(Kind.SYN_REPLY, number(stream) + self._writer.write({}))

    def room(self, stream: int) -> int:
        """How many bytes of data may be sent on a stream now."""
        mine = self._streams.get(stream)
        if mine is None or mine.finished:
            return 0
        return max(0, min(self._initial + mine.window, self._all.window)) if self._windowed else WINDOW

    def open(self, stream: int) -> bool:
        """Whether anything may still be sent on it."""
        mine = self._streams.get(stream)
        return mine is not None and not mine.finished

    def over(self, stream: int) -> bool:
        """Whether both sides have ended it, or one has given it up."""
        return stream not in self._streams

    def data(self, stream: int, data: bytes) -> bytes:
        """The frame, for which there must be `room`: it may wait for the client, which answers should not."""
        self._streams[stream].window -= len(data)
        self._all.window -= len(data)
        return data_frame(stream, data)

    def finish(self, stream: int) -> None:
        """Nothing more is sent on it."""
        mine = self._streams.get(stream)
        if mine is not None and not mine.finished:
            mine.finished = True
            self._out += data_frame(stream, b"", fin=True)
            self._forget(stream, mine)

    def reset(self, stream: int, why: Reset) -> None:
        self._streams.pop(stream, None)
        self._out += control(Kind.RST_STREAM, number(stream) + number(why))

    def consumed(self, stream: int, size: int) -> None:
        """Data was taken on by whom it was for."""
        self._consumed(_CONNECTION, self._all, size)
        mine = self._streams.get(stream)
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
            self._streams.pop(number, None)


def _whole(payload: bytes, size: int, *, exact: bool = True) -> bytes:
    if len(payload) < size or (exact and len(payload) != size):
        raise Broken("a control frame has the wrong length")
    return payload
