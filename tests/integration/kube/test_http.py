"""The HTTP adapter against a real socket whose other end plays a script."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from sandpool.base.secret import Secret
from sandpool.kube.api import Preconditions
from sandpool.kube.config import User
from sandpool.kube.errors import (
    ApiError,
    Conflict,
    InternalError,
    NotFound,
    Refused,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
    Unreachable,
    Unreadable,
)
from sandpool.kube.http import HttpApi
from sandpool.kube.priority import Priority, with_priority
from sandpool.kube.retry import RetryPolicy
from sandpool.kube.transport import Limits
from sandpool.loop.lease import Terms
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Uid
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource
from support.clocks.step_clock import StepClock
from support.network.scripted_peer import answer, cut, drop, forever, hang, scripted_peer, stream

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "7"},
    "spec": {"containers": []},
}
LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [POD]}
PATCH = merge_patch({"metadata": {"labels": {"x": "y"}}})

VERBS: dict[str, Callable[[HttpApi], Awaitable[Any]]] = {
    "get": lambda api: api.get(PODS, "a", "team"),
    "list": lambda api: api.list(PODS, "team"),
    "create": lambda api: api.create(PODS, POD, "team"),
    "patch": lambda api: api.patch(PODS, "a", PATCH, "team"),
    "patch_status": lambda api: api.patch_status(PODS, "a", PATCH, "team"),
    "delete": lambda api: api.delete(PODS, "a", "team"),
}
WRITES = ("create", "patch", "patch_status", "delete")


def refused(code: int, reason: str, **more: Any) -> dict[str, Any]:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "no",
        "reason": reason,
        "code": code,
    }
    return status | more


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_what_is_sent(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(POD), answer(LIST), answer(POD, 201), answer(POD), answer(POD)) as peer:
        api = to(peer.url + "/prefix", User(token=Secret("t"), headers=(("Impersonate-Group", "g"),)))
        assert (await api.get(PODS, "a", "team")).metadata.revision == 7
        page = await api.list(PODS, labels="a=b")
        assert ([item.metadata.name for item in page.items], page.revision) == (["a"], 9)
        await api.create(PODS, POD, "team")
        await api.patch_status(PODS, "a", PATCH, "team")
        assert await api.delete(PODS, "a", "team", preconditions=Preconditions(uid=Uid("u"))) is None
    assert [(seen.method, seen.path) for seen in peer.seen] == [
        ("GET", "/prefix/api/v1/namespaces/team/pods/a"),
        ("GET", "/prefix/api/v1/pods"),
        ("POST", "/prefix/api/v1/namespaces/team/pods"),
        ("PATCH", "/prefix/api/v1/namespaces/team/pods/a/status"),
        ("DELETE", "/prefix/api/v1/namespaces/team/pods/a"),
    ]
    assert peer.seen[1].query == {"labelSelector": "a=b"}
    assert peer.seen[2].json == POD
    assert peer.seen[3].headers["Content-Type"] == "application/merge-patch+json"
    assert peer.seen[4].json["preconditions"] == {"uid": "u"}
    for seen in peer.seen:
        assert seen.headers["Authorization"] == "Bearer t"
        assert seen.headers["Impersonate-Group"] == "g"
        assert seen.headers["Accept"] == "application/json"
        assert seen.headers["User-Agent"].startswith("sandpool/")
    assert len({seen.connection for seen in peer.seen}) == 1, "one connection is kept"


async def test_a_large_body_arrives(to: Callable[..., HttpApi]) -> None:
    big = POD | {"spec": {"containers": [{"name": "x" * (3 << 20)}]}}
    async with scripted_peer(answer(POD, 201)) as peer:
        await to(peer.url).create(PODS, big, "team")
    assert peer.seen[0].json == big


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("code", "reason", "kind"), [(404, "NotFound", NotFound), (409, "Conflict", Conflict)])
async def test_a_refusal_is_raised(
    verb: str, code: int, reason: str, kind: type[ApiError], to: Callable[..., HttpApi]
) -> None:
    async with scripted_peer(answer(refused(code, reason), code)) as peer:
        with pytest.raises(kind, match="no"):
            await VERBS[verb](to(peer.url))
    assert len(peer.seen) == 1


@pytest.mark.parametrize("verb", VERBS)
async def test_a_busy_server_is_asked_again_when_it_says(
    verb: str, to: Callable[..., HttpApi], clock: StepClock
) -> None:
    by_header = answer(refused(429, "TooManyRequests"), 429, {"Retry-After": "3"})
    in_body = answer(refused(429, "TooManyRequests", details={"retryAfterSeconds": 2}), 429)
    async with scripted_peer(by_header, in_body, answer(LIST if verb == "list" else POD)) as peer:
        await VERBS[verb](to(peer.url))
    assert len(peer.seen) == 3
    assert len({seen.body for seen in peer.seen}) == 1, "the same request each time"
    assert [int(slept) for slept in clock.sleeps] == [3, 2]


async def test_a_server_that_stays_busy_is_left_alone(to: Callable[..., HttpApi], clock: StepClock) -> None:
    busy = answer(refused(429, "TooManyRequests"), 429, {"Retry-After": "1"})
    async with scripted_peer(forever(busy)) as peer:
        with pytest.raises(TooManyRequests) as caught:
            await VERBS["patch"](to(peer.url, policy=RetryPolicy(attempts=3)))
    assert caught.value.retry_after == 1
    assert len(peer.seen) == 3


async def test_a_date_in_retry_after_is_no_reason_to_fail(to: Callable[..., HttpApi], clock: StepClock) -> None:
    busy = answer(refused(429, "TooManyRequests"), 429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    async with scripted_peer(busy, answer(POD)) as peer:
        await VERBS["get"](to(peer.url))
    assert len(clock.sleeps) == 1


@pytest.mark.parametrize("verb", VERBS)
async def test_nobody_listens(verb: str, to: Callable[..., HttpApi], clock: StepClock) -> None:
    api = to(f"http://127.0.0.1:{free_port()}", policy=RetryPolicy(attempts=4))
    with pytest.raises(Refused, match=r"cannot connect to 127\.0\.0\.1:\d+ .*is the server running"):
        await VERBS[verb](api)
    assert len(clock.sleeps) == 3
    assert clock.sleeps == sorted(clock.sleeps)


async def test_a_server_that_comes_back_in_time(to: Callable[..., HttpApi], clock: StepClock) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        api = to(f"http://127.0.0.1:{port}")

        async def start() -> None:
            clock.during = None
            await stack.enter_async_context(scripted_peer(answer(POD), port=port))

        clock.during = start
        assert (await api.patch(PODS, "a", PATCH, "team")).metadata.name == "a"
        await api.close()


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("kept", [False, True], ids=["fresh connection", "kept connection"])
async def test_a_write_whose_answer_is_lost_is_never_sent_again(
    verb: str, kept: bool, to: Callable[..., HttpApi], clock: StepClock
) -> None:
    """Left to itself, the HTTP library sends a DELETE a second time."""
    warm = [answer(POD)] if kept else []
    async with scripted_peer(*warm, drop(), forever(answer(POD))) as peer:
        api = to(peer.url)
        if kept:
            await api.get(PODS, "a", "team")
        with pytest.raises(Unreachable, match="look whether it happened") as caught:
            await VERBS[verb](api)
    assert type(caught.value) is Unreachable
    assert len(peer.seen) == 1 + len(warm)
    assert clock.sleeps == []


@pytest.mark.parametrize("verb", VERBS)
async def test_an_answer_that_is_cut_is_a_lost_answer(verb: str, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(cut(b'{"metadata":', promised=100), forever(answer(POD))) as peer:
        with pytest.raises(Unreachable):
            await VERBS[verb](to(peer.url))
    assert len(peer.seen) == 1


@pytest.mark.parametrize("verb", VERBS)
async def test_a_timeout_is_a_lost_answer(verb: str, to: Callable[..., HttpApi], clock: StepClock) -> None:
    done = asyncio.Event()
    async with scripted_peer(hang(done), forever(answer(POD))) as peer:
        with pytest.raises(Unreachable, match="no answer within the time") as caught:
            await VERBS[verb](to(peer.url, limits=Limits(request=0.4)))
        done.set()
    assert not isinstance(caught.value, Refused)
    assert len(peer.seen) == 1
    assert clock.sleeps == []


async def test_a_body_that_trickles_is_a_lost_answer_too(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    async with scripted_peer(stream(b'{"meta', hold=done)) as peer:
        with pytest.raises(Unreachable):
            await to(peer.url, limits=Limits(request=0.4)).patch(PODS, "a", PATCH, "team")
        done.set()


@pytest.mark.parametrize(
    ("code", "kind"), [(500, InternalError), (503, Unavailable), (504, ServerTimeout), (502, ApiError), (302, ApiError)]
)
async def test_servers_in_trouble_are_not_asked_again(
    code: int, kind: type[ApiError], to: Callable[..., HttpApi]
) -> None:
    sorry = answer(b"<html>sorry</html>", code, {"Retry-After": "1", "Location": "/elsewhere"})
    async with scripted_peer(sorry, forever(answer(POD))) as peer:
        with pytest.raises(kind, match=str(code)) as caught:
            await to(peer.url).get(PODS, "a", "team")
    assert caught.value.code == code
    assert len(peer.seen) == 1


@pytest.mark.parametrize("whole", [True, False], ids=["with a length", "in chunks"])
async def test_an_answer_may_be_too_large(whole: bool, to: Callable[..., HttpApi]) -> None:
    big = b'{"metadata":{"resourceVersion":"1"},"items":[]' + b" " * 5000 + b"}"
    async with scripted_peer(answer(big) if whole else stream(big[:3000], big[3000:]), answer(LIST)) as peer:
        api = to(peer.url, limits=Limits(body=4000))
        with pytest.raises(Unreadable, match="larger than 4000 bytes; list in pages"):
            await api.list(PODS)
        assert (await api.list(PODS)).revision == 9, "the client is still usable"


async def test_an_answer_that_was_packed_unasked_is_measured_unpacked(to: Callable[..., HttpApi]) -> None:
    packed = gzip.compress(b'{"metadata":{"resourceVersion":"1"},"items":[]' + b" " * 5000 + b"}")
    assert len(packed) < 4000
    async with scripted_peer(answer(packed, headers={"Content-Encoding": "gzip"})) as peer:
        with pytest.raises(Unreadable, match="larger than 4000 bytes"):
            await to(peer.url, limits=Limits(body=4000)).list(PODS)


def test_no_write_outlives_the_lease() -> None:
    assert Limits().write <= Terms().renew


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
async def test_a_write_has_less_time_than_a_read(verb: str, to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    async with scripted_peer(hang(done)) as peer:
        with pytest.raises(Unreachable, match="no answer within the time"):
            await VERBS[verb](to(peer.url, limits=Limits(request=3600, write=0.4)))
        done.set()


async def test_a_refusal_may_not_be_endless_either(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(b"x" * 5000, 500)) as peer:
        with pytest.raises(Unreadable):
            await to(peer.url, limits=Limits(refusal=4000)).get(PODS, "a", "team")


async def test_an_answer_that_is_not_the_object_is_unreadable(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(b"OK")) as peer:
        with pytest.raises(Unreadable, match="pods"):
            await to(peer.url).get(PODS, "a", "team")


async def test_a_cancelled_write_gives_its_place_back(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    async with scripted_peer(hang(done), answer(POD)) as peer:
        api = to(peer.url, width=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await api.patch(PODS, "a", PATCH, "team")
        assert (await api.patch(PODS, "a", PATCH, "team")).metadata.name == "a"
        done.set()


async def test_priorities_share_connections_and_the_bound(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    async with scripted_peer(hang(done, POD), answer(POD), answer(POD)) as peer, asyncio.TaskGroup() as group:
        first = to(peer.url, width=1)
        other = first.with_priority(Priority.STATUS)
        group.create_task(first.patch(PODS, "a", PATCH, "team"))
        await peer.asked(1)
        group.create_task(other.patch_status(PODS, "a", PATCH, "team"))
        await other.get(PODS, "a", "team")
        assert [seen.method for seen in peer.seen] == ["PATCH", "GET"], "a read needs no place, a write does"
        assert (first.gate.in_lane(Priority.URGENT), first.gate.in_lane(Priority.STATUS)) == ((1, 0), (0, 1))
        done.set()
    assert [seen.path.rpartition("/")[2] for seen in peer.seen] == ["a", "a", "status"]


async def test_a_call_has_the_priority_of_its_context_as_it_is_sorted(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    asked: list[tuple[Priority, str, str]] = []

    def sort(lane: Priority, verb: str, resource: Resource[Any]) -> Priority:
        asked.append((lane, verb, resource.plural))
        return Priority.CLEANUP if verb == "delete" else lane

    async with scripted_peer(hang(done, POD), hang(done, POD)) as peer, asyncio.TaskGroup() as group:
        api = to(peer.url, width=4, sort=sort)
        with with_priority(Priority.BACKGROUND):
            group.create_task(api.patch(PODS, "a", PATCH, "team"))
            group.create_task(api.delete(PODS, "a", "team"))
        await peer.asked(2)
        assert [api.gate.in_lane(lane)[0] for lane in Priority] == [0, 1, 1, 0]
        done.set()
    assert asked == [(Priority.BACKGROUND, "patch", "pods"), (Priority.BACKGROUND, "delete", "pods")]


async def test_every_call_is_told_with_its_end(to: Callable[..., HttpApi]) -> None:
    told: list[tuple[str, str, str]] = []
    async with scripted_peer(answer(POD), answer({}, 409)) as peer:
        api = to(peer.url, called=lambda verb, resource, outcome, seconds: told.append((verb, resource, outcome)))
        await api.get(PODS, "a", "team")
        with pytest.raises(Conflict):
            await api.patch_status(PODS, "a", PATCH, "team")
    assert told == [("get", "pods", "ok"), ("patch_status", "pods", "Conflict")]


async def test_a_closed_client_says_so(to: Callable[..., HttpApi], clock: StepClock) -> None:
    async with scripted_peer(forever(answer(POD))) as peer:
        api = to(peer.url)
        await api.get(PODS, "a", "team")
        await api.close()
        with pytest.raises(Unreachable, match="closed"):
            await api.get(PODS, "a", "team")
    assert len(peer.seen) == 1
