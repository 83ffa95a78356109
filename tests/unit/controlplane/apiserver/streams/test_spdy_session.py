"""A SPDY session: what a client may do, what it gets, and what stays bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.streams.spdy import session as spdy
from sandpool.controlplane.apiserver.streams.spdy.frames import (
    MOST_CONTROL,
    Broken,
    Control,
    DataPiece,
    Decoder,
    Flag,
    Frame,
    GoAway,
    HeaderReader,
    Kind,
    Reset,
    at,
    control,
    data_frame,
    number,
)
from sandpool.controlplane.apiserver.streams.spdy.session import WINDOW, Session
from support.network.spdy_client import Words


def sent(session: Session) -> list[Frame]:
    return Decoder().feed(session.take())


def resets(session: Session) -> list[tuple[int, int]]:
    frames = sent(session)
    return [
        (at(f.payload, 0), at(f.payload, 4)) for f in frames if isinstance(f, Control) and f.kind == Kind.RST_STREAM
    ]


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def session() -> Session:
    return Session(4)


def test_a_stream_opens_carries_data_and_ends(session: Session, words: Words) -> None:
    assert session.receive(words.open(1, {"streamType": "data"})) == [spdy.Opened(1, {"streamtype": "data"})]
    session.accept(1)
    (reply,) = sent(session)
    assert isinstance(reply, Control)
    assert (reply.kind, at(reply.payload, 0), HeaderReader().read(reply.payload[4:])) == (Kind.SYN_REPLY, 1, {})
    assert session.receive(data_frame(1, b"hello", fin=True)) == [spdy.Arrived(1, b"hello"), spdy.Ended(1)]
    assert sent_by(session, 1, b"back") == [DataPiece(1, b"back", False)]
    session.finish(1)
    session.finish(1)
    assert sent(session) == [DataPiece(1, b"", True)]
    assert not session.open(1)


def sent_by(session: Session, stream: int, data: bytes) -> list[Frame]:
    return Decoder().feed(session.data(stream, data))


steps = st.lists(
    st.tuples(st.sampled_from(["open", "data", "fin", "reset", "ping"]), st.integers(0, 3), st.binary(max_size=40)),
    max_size=25,
)


@given(steps, st.lists(st.integers(0, 3000), max_size=20))
def test_slices_make_no_difference(steps: list[tuple[str, int, bytes]], cuts: list[int]) -> None:
    words, raw, opened = Words(), b"", 0
    for what, which, data in steps:
        stream = 2 * which + 1
        if what == "open":
            raw += words.open(2 * opened + 1, {"n": str(opened)})
            opened += 1
        elif what in ("data", "fin"):
            raw += data_frame(stream, data, fin=what == "fin")
        elif what == "reset":
            raw += control(Kind.RST_STREAM, number(stream) + number(Reset.CANCEL))
        else:
            raw += control(Kind.PING, number(stream))
    whole, sliced = Session(3), Session(3)
    events, start = [], 0
    for cut in [*sorted(c % (len(raw) + 1) for c in cuts), len(raw)]:
        events += sliced.receive(raw[start:cut])
        start = cut
    assert joined(events) == joined(whole.receive(raw))
    assert sliced.take() == whole.take()


def joined(events: list[Any]) -> list[Any]:
    """Data that came in pieces, as if it had come at once."""
    found: list[Any] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, spdy.Arrived) and isinstance(last, spdy.Arrived) and last.stream == event.stream:
            found[-1] = spdy.Arrived(event.stream, last.data + event.data)
        else:
            found.append(event)
    return found


def test_more_streams_than_allowed_are_refused_and_the_context_survives(session: Session, words: Words) -> None:
    for n in range(5):
        session.receive(words.open(2 * n + 1, {"long": "value" * 20}))
    assert resets(session) == [(9, Reset.REFUSED_STREAM)]
    session.reset(1, Reset.CANCEL)
    assert session.receive(words.open(11, {"a": "b"})) == [spdy.Opened(11, {"a": "b"})]


@pytest.mark.parametrize("ids", [(2,), (3, 1), (1, 1), (0,)])
def test_ids_must_be_odd_and_grow(ids: tuple[int, ...], session: Session, words: Words) -> None:
    with pytest.raises(Broken):
        session.receive(b"".join(words.open(stream, {}) for stream in ids))


def test_late_data_is_ignored_but_not_data_for_nothing(session: Session, words: Words) -> None:
    session.receive(words.open(1, {}))
    session.reset(1, Reset.CANCEL)
    session.take()
    assert session.receive(data_frame(1, b"late")) == []
    assert session.take() == b""
    assert session.receive(data_frame(5, b"what")) == []
    assert resets(session) == [(5, Reset.INVALID_STREAM)]
    session.receive(words.open(3, {}) + data_frame(3, b"", fin=True))
    assert session.receive(data_frame(3, b"more")) == [spdy.Dropped(3)]
    assert resets(session) == [(3, Reset.PROTOCOL_ERROR)]


def test_headers_of_frames_that_mean_nothing_are_read(session: Session, words: Words) -> None:
    """They are part of the context of those that do."""
    session.receive(words.open(1, {"x": "y"}))
    session.receive(control(Kind.HEADERS, number(1) + words.pack({"some": "thing"})))
    session.receive(control(Kind.SYN_REPLY, number(2) + words.pack({"some": "thing"})))
    assert session.receive(words.open(3, {"some": "thing"})) == [spdy.Opened(3, {"some": "thing"})]
    assert session.receive(control(Kind.HEADERS, number(3) + words.pack({}), Flag.FIN)) == [spdy.Ended(3)]


def test_pings_of_the_client_are_events_and_answers_to_ours_are_not(session: Session) -> None:
    assert session.receive(control(Kind.PING, number(7))) == [spdy.Pinged(7)]
    session.ping()
    assert sent(session) == [Control(Kind.PING, 0, number(2))]
    assert session.receive(control(Kind.PING, number(2))) == []
    session.pong(7)
    assert sent(session) == [Control(Kind.PING, 0, number(7))]


def settings(window: int) -> bytes:
    return control(Kind.SETTINGS, number(1) + b"\0" + (7).to_bytes(3, "big") + number(window))


def test_windows_bind_only_for_clients_that_keep_them(session: Session, words: Words) -> None:
    session.receive(words.open(1, {}))
    for _ in range(10):
        session.data(1, b"x" * session.room(1))
    assert session.room(1) == WINDOW  # this client has not said that it counts


def test_windows_of_a_client_that_counts(session: Session, words: Words) -> None:
    session.receive(words.open(1, {}))
    assert session.receive(settings(1000)) == [spdy.Widened()]
    assert session.room(1) == 1000
    session.data(1, b"x" * 1000)
    assert session.room(1) == 0
    session.receive(settings(500))  # may go below nothing
    assert session.room(1) == 0
    assert session.receive(control(Kind.WINDOW_UPDATE, number(1) + number(700))) == [spdy.Widened()]
    assert session.room(1) == 200
    session.receive(control(Kind.WINDOW_UPDATE, number(1) + number(10 * WINDOW)))
    assert session.room(1) == WINDOW - 1000  # of all streams together
    session.receive(control(Kind.WINDOW_UPDATE, number(0) + number(1000)))
    assert session.room(1) == WINDOW


def test_a_setting_that_is_said_thousands_of_times_counts_once(words: Words) -> None:
    """Each time was done for each stream: a frame of 32 KiB kept everybody waiting for a quarter of a second."""
    session = Session(1000)
    for stream in range(1, 2000, 2):
        session.receive(words.open(stream, {}))
    session.data(1, b"x" * 100)
    entries = [bytes((0, 0, 0, 7)) + number(size) for size in range(1000, 5000)]
    assert session.receive(control(Kind.SETTINGS, number(len(entries)) + b"".join(entries))) == [spdy.Widened()]
    assert (session.room(1), session.room(3)) == (4899, 4999)


def test_windows_that_grow_too_far(session: Session, words: Words) -> None:
    session.receive(words.open(1, {}))
    widest = number(2**31 - 1)
    assert session.receive(control(Kind.WINDOW_UPDATE, number(1) + widest)) == [spdy.Dropped(1)]
    assert resets(session) == [(1, Reset.FLOW_CONTROL_ERROR)]
    with pytest.raises(Broken):
        session.receive(control(Kind.WINDOW_UPDATE, number(0) + widest))


def test_our_windows_are_widened_as_data_is_consumed(session: Session, words: Words) -> None:
    session.receive(words.open(1, {}) + data_frame(1, b"x" * 40_000))
    session.consumed(1, 20_000)
    assert session.take() == b""
    session.consumed(1, 20_000)
    updates = [(at(f.payload, 0), at(f.payload, 4)) for f in sent(session) if isinstance(f, Control)]
    assert updates == [(0, 40_000), (1, 40_000)]


BROKEN = {
    "version": b"\x80\x02\x00\x01\x00\x00\x00\x00",
    "too long": b"\x80\x03\x00\x01\x00" + (MOST_CONTROL + 1).to_bytes(3, "big"),
    "short open": control(Kind.SYN_STREAM, b"\0" * 9),
    "open without headers": control(Kind.SYN_STREAM, number(1) + b"\0" * 6),
    "long ping": control(Kind.PING, b"\0" * 5),
    "short reset": control(Kind.RST_STREAM, b"\0" * 4),
    "short window": control(Kind.WINDOW_UPDATE, b"\0" * 7),
    "empty settings": control(Kind.SETTINGS, b""),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken(case: str, session: Session) -> None:
    with pytest.raises(Broken):
        session.receive(BROKEN[case])


@given(st.binary(max_size=400))
def test_noise_is_bounded(noise: bytes) -> None:
    session = Session(2)
    try:
        session.receive(noise)
    except Broken:
        pass
    assert len(session.streams) <= 2
    assert len(session.take()) <= 4 * len(noise) + 16  # an answer is never much more than the question


def test_leaving(session: Session, words: Words) -> None:
    session.receive(words.open(5, {}))
    session.go_away(GoAway.OK)
    assert sent(session) == [Control(Kind.GOAWAY, 0, number(5) + number(0))]
    assert session.receive(control(Kind.GOAWAY, number(0) * 2)) == [spdy.Left()]
    assert (
        session.receive(control(Kind.SETTINGS, number(0)) + b"\x80\x03\x00\x63\x00\x00\x00\x00") == []
    )  # unknown kind
