from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.kube.api import Event, EventType
from sandpool.kube.errors import ApiError, Forbidden, Gone, InternalError, Unreadable
from sandpool.kube.watch import WatchParser
from sandpool.model.codec import decode
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Revision
from sandpool.model.pod import Pod


def a_pod(name: str, revision: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": "u", "resourceVersion": str(revision)},
        "spec": {"containers": [{"name": "c", "image": "i\n\u2028é"}]},
    }


def a_frame(kind: str, object: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": object}, ensure_ascii=False).encode() + b"\n"


def a_bookmark(revision: int, **annotations: str) -> bytes:
    metadata = (
        {"resourceVersion": str(revision), "annotations": annotations}
        if annotations
        else {"resourceVersion": str(revision)}
    )
    return a_frame("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


def a_parser(longest: int = 1 << 20, since: int = 0) -> WatchParser[Pod]:
    return WatchParser(lambda raw: decode(PODS, raw), Revision(since), longest)


def an_error(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": reason, "code": code}
    return a_frame("ERROR", status)


def shape(events: list[Event[Pod]]) -> list[tuple[str, str, int, bool]]:
    return [(e.type.value, e.object.metadata.name if e.object else "", e.revision, e.initial_done) for e in events]


def test_each_kind_of_event() -> None:
    parser = a_parser()
    events = parser.feed(
        a_frame("ADDED", a_pod("a", 5))
        + a_frame("MODIFIED", a_pod("a", 6))
        + a_bookmark(8)
        + a_frame("DELETED", a_pod("a", 9))
    )
    assert shape(events) == [
        ("ADDED", "a", 5, False),
        ("MODIFIED", "a", 6, False),
        ("BOOKMARK", "", 8, False),
        ("DELETED", "a", 9, False),
    ]
    assert parser.revision == 9
    assert parser.failure is None


def test_the_bookmark_that_ends_the_initial_events() -> None:
    mark = {"k8s.io/initial-events-end": "true"}
    events = a_parser().feed(a_bookmark(7, **mark) + a_bookmark(8, **{"k8s.io/initial-events-end": "false"}))
    assert [(e.type, e.initial_done) for e in events] == [(EventType.BOOKMARK, True), (EventType.BOOKMARK, False)]


def test_it_resumes_where_it_was_told_to_begin_until_it_has_seen_more() -> None:
    parser = a_parser(since=41)
    assert parser.revision == 41
    parser.feed(a_bookmark(44))
    assert parser.revision == 44


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [(410, "Expired", Gone), (410, "Gone", Gone), (403, "Forbidden", Forbidden), (500, "InternalError", InternalError)],
)
def test_an_error_event_ends_it_after_what_came_before(code: int, reason: str, kind: type[ApiError]) -> None:
    parser = a_parser()
    events = parser.feed(a_frame("ADDED", a_pod("a", 5)) + an_error(code, reason) + a_frame("ADDED", a_pod("b", 6)))
    assert shape(events) == [("ADDED", "a", 5, False)]
    assert type(parser.failure) is kind
    assert parser.revision == 5
    assert parser.feed(a_frame("ADDED", a_pod("c", 7))) == []


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"{}\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"x"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"labels":[]}}}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{}}}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":""}}}\n',
        b'{"type":"RESYNC","object":{}}\n',
        b'{"type":"ADDED","object":{}} {}\n',
        b"\xff\xfe\n",
    ],
)
def test_what_cannot_be_read_is_said(line: bytes) -> None:
    parser = a_parser()
    assert shape(parser.feed(a_frame("ADDED", a_pod("a", 5)) + line)) == [("ADDED", "a", 5, False)]
    assert isinstance(parser.failure, Unreadable)
    assert "after revision 5" in str(parser.failure)


def test_a_line_that_never_ends_is_not_kept() -> None:
    parser = a_parser(longest=1000)
    for _ in range(11):
        parser.feed(b"x" * 100)
    assert isinstance(parser.failure, Unreadable)
    assert "1000 bytes" in str(parser.failure)


def test_a_whole_line_may_be_too_long_as_well() -> None:
    parser = a_parser(longest=100)
    assert parser.feed(b" " * 101 + b"\n") == []
    assert isinstance(parser.failure, Unreadable)


def test_an_end_inside_a_line_is_a_failure() -> None:
    parser = a_parser()
    parser.feed(a_frame("ADDED", a_pod("a", 5))[:-10])
    parser.end()
    assert isinstance(parser.failure, Unreadable)


def test_an_end_between_lines_is_none() -> None:
    parser = a_parser()
    parser.feed(a_frame("ADDED", a_pod("a", 5)) + b"\n  \r\n ")
    parser.end()
    assert parser.failure is None


FRAMES = st.one_of(
    st.builds(
        a_frame,
        st.sampled_from(["ADDED", "MODIFIED", "DELETED"]),
        st.builds(a_pod, st.text("ab", min_size=1), st.integers(1)),
    ),
    st.builds(a_bookmark, st.integers(1)),
    st.just(b"\n"),
    st.just(b" \r\n"),
    st.just(b'{"type":"RESYNC","object":{}}\n'),
    st.just(b"x" * 1500 + b"\n"),
    st.just(an_error(410, "Expired")),
)


@given(frames=st.lists(FRAMES, max_size=8), tail=st.sampled_from([b"", b"{", b" "]), data=st.data())
def test_every_way_to_cut_a_stream_gives_the_same(frames: list[bytes], tail: bytes, data: st.DataObject) -> None:
    stream = b"".join(frames) + tail
    whole = a_parser(longest=1400)
    wanted = whole.feed(stream)
    whole.end()

    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    cut = a_parser(longest=1400)
    got: list[Event[Pod]] = []
    for start, stop in zip([0, *places], [*places, len(stream)], strict=True):
        got += cut.feed(stream[start:stop])
    cut.end()

    assert got == wanted
    assert cut.revision == whole.revision
    assert repr(cut.failure) == repr(whole.failure)
