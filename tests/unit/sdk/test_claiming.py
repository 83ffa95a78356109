"""A claim whose creation got no answer, or whose watch broke: found again, or given back, and never somebody else's."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from sandpool import AsyncConnection, AsyncSandbox, ClaimDeleted, ClaimTimeout, Connection, Sandbox, Unreachable
from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.config import User
from sandpool.sdk._async.http import Http as AsyncHttp
from sandpool.sdk._sync.http import Http
from sandpool.sdk.config import Resolved
from support.network.scripted_peer import Act, Peer, answer, drop, forever, scripted_peer, stream


def resolved(peer: Peer) -> Resolved:
    return Resolved(ApiServer(server=peer.url), User(), "default", "", True, "", "", "the test")


def stored(peer: Peer, ready: bool = False, **metadata: Any) -> dict[str, Any]:
    """The claim of the first request as a server keeps it."""
    claim: dict[str, Any] = peer.seen[0].json
    claim["metadata"] |= {"namespace": "default", "uid": "u-1", "resourceVersion": "5", **metadata}
    if ready:
        claim["status"] = {"sandbox": {"name": "python-x"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return claim


class Script:
    """Acts that need to know what was asked before."""

    def __init__(self) -> None:
        self.peer: Peer | None = None

    def kept(self, **more: Any) -> Act:
        async def act(request: web.Request) -> web.StreamResponse:
            assert self.peer is not None
            return await answer(stored(self.peer, **more))(request)

        return act

    def event(self, kind: str = "MODIFIED", **more: Any) -> Act:
        async def act(request: web.Request) -> web.StreamResponse:
            assert self.peer is not None
            line = json.dumps({"type": kind, "object": stored(self.peer, **more)}).encode() + b"\n"
            return await stream(line)(request)

        return act


@pytest.fixture
def script() -> Script:
    return Script()


async def claimed(peer: Peer, blocking: bool, timeout: float = 60) -> str:
    """The name of the sandbox; it is given back."""
    if not blocking:
        connection = AsyncConnection(resolved=resolved(peer))
        async with connection, AsyncSandbox.claim("python", connection=connection, timeout=timeout) as box:
            return box.sandbox

    def work() -> str:
        with (
            Connection(resolved=resolved(peer)) as connection,
            Sandbox.claim("python", connection=connection, timeout=timeout) as box,
        ):
            return box.sandbox

    return await asyncio.to_thread(work)


both = pytest.mark.parametrize("blocking", [False, True], ids=["waiting", "blocking"])


def verbs(peer: Peer) -> list[str]:
    return ["WATCH" if "watch" in one.query else one.method for one in peer.seen]


@both
async def test_an_answer_that_was_lost_does_not_lose_the_claim(script: Script, blocking: bool) -> None:
    async with scripted_peer(drop(), script.kept(), script.event(ready=True), answer({})) as peer:
        script.peer = peer
        assert await claimed(peer, blocking) == "python-x"
    assert verbs(peer) == ["POST", "GET", "WATCH", "DELETE"]
    assert peer.seen[3].json["preconditions"] == {"uid": "u-1"}


@both
async def test_a_claim_that_was_never_made(script: Script, blocking: bool) -> None:
    async with scripted_peer(drop(), forever(answer({"reason": "NotFound"}, 404))) as peer:
        with pytest.raises(Unreachable):
            await claimed(peer, blocking)
    assert verbs(peer) == ["POST", "GET", "GET", "GET"]


@both
async def test_a_claim_that_the_server_was_still_making_is_not_lost(script: Script, blocking: bool) -> None:
    absent = answer({"reason": "NotFound"}, 404)
    async with scripted_peer(drop(), absent, script.kept(), script.event(ready=True), answer({})) as peer:
        script.peer = peer
        assert await claimed(peer, blocking) == "python-x"
    assert verbs(peer) == ["POST", "GET", "GET", "WATCH", "DELETE"]


@both
async def test_a_claim_of_somebody_else_is_left_alone(script: Script, blocking: bool) -> None:
    async with scripted_peer(drop(), script.kept(annotations={"sandpool.dev/request": "theirs"})) as peer:
        script.peer = peer
        with pytest.raises(Unreachable):
            await claimed(peer, blocking)
    assert verbs(peer) == ["POST", "GET"]


@both
async def test_a_watch_whose_past_is_forgotten_is_begun_anew(script: Script, blocking: bool) -> None:
    gone = answer({"reason": "Expired", "message": "too old"}, 410)
    async with scripted_peer(
        script.kept(), gone, script.kept(resourceVersion="9"), script.event(ready=True), answer({})
    ) as peer:
        script.peer = peer
        assert await claimed(peer, blocking) == "python-x"
    assert verbs(peer) == ["POST", "WATCH", "GET", "WATCH", "DELETE"]
    assert "resourceVersion" not in peer.seen[3].query  # the server tells first what there is: nothing falls between


@both
async def test_another_claim_of_the_same_name_is_not_taken_for_ours(script: Script, blocking: bool) -> None:
    other = script.event(ready=True, uid="u-2"), script.kept(uid="u-2"), answer({"reason": "Conflict"}, 409)
    async with scripted_peer(script.kept(), *other) as peer:
        script.peer = peer
        with pytest.raises(ClaimDeleted):
            await claimed(peer, blocking)
    assert verbs(peer) == ["POST", "WATCH", "GET", "DELETE"]


@both
async def test_news_of_an_older_claim_of_the_same_name_does_not_end_ours(script: Script, blocking: bool) -> None:
    older = script.event("DELETED", uid="u-0")
    async with scripted_peer(script.kept(), older, script.kept(), script.event(ready=True), answer({})) as peer:
        script.peer = peer
        assert await claimed(peer, blocking) == "python-x"
    assert verbs(peer) == ["POST", "WATCH", "GET", "WATCH", "DELETE"]


async def test_cancelled_while_the_claim_is_being_made(script: Script) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return await script.kept()(request)

    async with scripted_peer(slow, script.kept(), answer({})) as peer:
        script.peer = peer
        waiting = asyncio.ensure_future(claimed(peer, blocking=False))
        await asked.wait()
        waiting.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert verbs(peer) == ["POST", "GET", "DELETE"]


async def test_what_could_not_be_given_back_is_told(script: Script) -> None:
    failed = stored_failure
    async with scripted_peer(
        script.kept(), failed(script), answer({"reason": "Forbidden", "message": "no"}, 403)
    ) as peer:
        script.peer = peer
        with pytest.raises(Exception, match="gone wrong") as caught:
            await claimed(peer, blocking=False)
    assert any("could not be deleted" in note and "sandpool release" in note for note in caught.value.__notes__)


def stored_failure(script: Script) -> Act:
    async def act(request: web.Request) -> web.StreamResponse:
        assert script.peer is not None
        claim = stored(script.peer)
        failure = {"type": "Ready", "status": "False", "reason": "PodFailed", "message": "it has gone wrong"}
        claim["status"] = {"conditions": [failure]}
        line = json.dumps({"type": "MODIFIED", "object": claim}).encode() + b"\n"
        return await stream(line)(request)

    return act


async def test_an_address_is_for_the_very_sandbox_that_was_attached_to() -> None:
    claim = {
        "metadata": {"name": "mine", "namespace": "default", "uid": "c-1", "resourceVersion": "5"},
        "spec": {"warmPoolRef": {"name": "python"}},
        "status": {"sandbox": {"name": "mine"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    async with scripted_peer() as peer:
        peer.acts += [answer(claim), answer({"metadata": {"uid": "s-1"}}), answer({"url": "http://x"}, 201)]
        known = replace(resolved(peer), router=peer.url)
        async with (
            AsyncConnection(resolved=known) as connection,
            AsyncSandbox.attach("mine", connection=connection) as box,
        ):
            await box.url(8000)
        assert peer.seen[2].json == {"namespace": "default", "sandbox": "mine", "port": 8000, "uid": "s-1"}


BUSY = {
    "kind": "Status",
    "code": 429,
    "reason": "TooManyRequests",
    "message": "3 claims wait",
    "details": {"retryAfterSeconds": 1},
}


@both
async def test_a_server_that_is_too_busy_is_asked_again_when_it_says_so(script: Script, blocking: bool) -> None:
    acts = [answer(BUSY, status=429)] * 2
    async with scripted_peer(*acts, script.kept(), script.event(ready=True), answer({})) as peer:
        script.peer = peer
        assert await claimed(peer, blocking) == "python-x"
    assert verbs(peer) == ["POST", "POST", "POST", "WATCH", "DELETE"]


@both
async def test_a_server_that_stays_too_busy_is_told_in_time(script: Script, blocking: bool) -> None:
    """Before the time is over, if the server says that it will be."""
    later = {**BUSY, "details": {"retryAfterSeconds": 30}}
    async with scripted_peer(answer(later, status=429)) as peer:
        with pytest.raises(ClaimTimeout, match=r"3 claims wait, and its timeout of 20 s is over before that"):
            await claimed(peer, blocking, timeout=20)
    assert verbs(peer) == ["POST"]


@both
async def test_all_tries_together_take_no_longer_than_was_allowed(
    script: Script, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try is given what the one before has left, not the whole time anew."""
    allowed: list[float] = []
    for http in (AsyncHttp, Http):
        monkeypatch.setattr(http, "request", noted(http.request, allowed))
    acts = [answer(BUSY, status=429)] * 2
    async with scripted_peer(*acts, script.kept(), script.event(ready=True), answer({})) as peer:
        script.peer = peer
        await claimed(peer, blocking, timeout=60)
    first, second, third = allowed[:3]
    assert first <= 60
    assert second <= 60 - 1, "the server asked to wait for a second"
    assert third <= 60 - 2


def noted(request: Any, allowed: list[float]) -> Any:
    def instead(self: Any, method: str, path: str, headers: Any, body: bytes, timeout: float, *more: Any) -> Any:
        if method == "POST":
            allowed.append(timeout)
        return request(self, method, path, headers, body, timeout, *more)

    return instead


@both
@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (answer({"spec": {"replicas": 3}, "status": {"readyReplicas": 0}}), "of pool 'python', which has 0 of 3 ready;"),
        (answer({"spec": {"replicas": 3}}), "no controller has observed its pool 'python' yet"),
        (answer({"reason": "Forbidden"}, 403), "it waits for a sandbox of pool 'python'; there is no status yet;"),
    ],
)  # fmt: skip
async def test_a_claim_that_says_nothing_in_time_is_told_of_by_its_pool(
    script: Script, blocking: bool, pool: Act, words: str
) -> None:
    silence = asyncio.Event()
    async with scripted_peer(script.kept(), stream(hold=silence), pool, answer({})) as peer:
        script.peer = peer
        with pytest.raises(ClaimTimeout, match=words):
            await claimed(peer, blocking, timeout=0.5)
        silence.set()
    assert verbs(peer) == ["POST", "WATCH", "GET", "DELETE"]


async def test_a_wait_for_a_busy_server_can_be_cancelled(script: Script) -> None:
    later = {**BUSY, "details": {"retryAfterSeconds": 30}}
    async with scripted_peer(answer(later, status=429)) as peer:
        task = asyncio.create_task(claimed(peer, blocking=False))
        await peer.asked(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert verbs(peer).count("POST") == 1
