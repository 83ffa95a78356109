"""Who gets in and how far: certificates, the admin, service-account tokens, nobody."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandpool.controlplane.apiserver.server import ServerOptions
from support.api.local_server import LocalServer, local_server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1"


class Clock:
    """A wall clock that tests move."""

    def __init__(self) -> None:
        self.moment = datetime.now(UTC)

    def now(self) -> datetime:
        return self.moment


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server(tmp_path: Path, clock: Clock) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, options=ServerOptions(now=clock.now)) as server:
        yield server


async def token_of(server: LocalServer, account: str = "default", **spec: Any) -> str:
    answer = await server.request("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
    assert answer.status == 201, answer.body
    token: str = answer.json["status"]["token"]
    return token


async def test_nobody(server: LocalServer) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic eDp5"},
        {"Authorization": "Bearer"},
    ):
        for path in ("/api", MAPS, "/metrics", "/openapi/v3", "/nosuch"):
            answer = await server.request("GET", path, token=None, headers=headers)
            assert answer.status == 401
            assert answer.json == {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
            }  # fmt: skip
    assert (await server.request("GET", "/readyz", token="wrong")).status == 401


async def test_the_certificate_is_that_of_our_authority(server: LocalServer) -> None:
    for host in ("127.0.0.1", "localhost"):
        async with server.session.get(f"https://{host}:{server.server.port}/readyz") as response:
            assert response.status == 200
    async with aiohttp.ClientSession() as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.get(server.url + "/readyz")


async def test_old_tls_is_refused(server: LocalServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(server.ca)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(server.url + "/readyz", ssl=context)


async def test_a_service_account_has_one_namespace(server: LocalServer) -> None:
    await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    token = await token_of(server)
    assert (await server.request("POST", MAPS, {"metadata": {"name": "a"}}, token=token)).status == 201
    assert (await server.request("GET", f"{CLAIMS}/namespaces/default/sandboxclaims", token=token)).status == 200
    assert (await server.request("GET", "/api/v1/namespaces/default", token=token)).status == 200
    assert (await server.request("GET", "/apis", token=token)).status == 200
    refused = await server.request("GET", "/api/v1/namespaces/other/pods", token=token)
    assert refused.status == 403
    assert refused.json["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:default" cannot list resource "pods" in API group "" '
        'in the namespace "other"'
    )
    for method, path in (("GET", "/api/v1/pods"), ("DELETE", "/api/v1/namespaces/default"), ("GET", "/metrics")):
        assert (await server.request(method, path, token=token)).json["reason"] == "Forbidden", path
    watch = await server.request("GET", f"{CLAIMS}/sandboxclaims?watch=1", token=token)
    assert watch.status == 403


async def test_a_token_ends_with_its_time(server: LocalServer, clock: Clock) -> None:
    token = await token_of(server, expirationSeconds=600)
    assert (await server.request("GET", MAPS, token=token)).status == 200
    clock.moment += timedelta(seconds=599)
    assert (await server.request("GET", MAPS, token=token)).status == 200
    clock.moment += timedelta(seconds=1)
    assert (await server.request("GET", MAPS, token=token)).status == 401
    clock.moment -= timedelta(seconds=700)  # before it was issued
    assert (await server.request("GET", MAPS, token=token)).status == 401


async def test_a_token_ends_with_its_account(server: LocalServer) -> None:
    await server.request("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    token = await token_of(server, "robot")
    assert (await server.request("GET", MAPS, token=token)).status == 200
    await server.request("DELETE", f"{ACCOUNTS}/robot")
    assert (await server.request("GET", MAPS, token=token)).status == 401
    await server.request("POST", ACCOUNTS, {"metadata": {"name": "robot"}})  # the same name is another account
    assert (await server.request("GET", MAPS, token=token)).status == 401


async def test_a_token_for_somebody_else_is_not_for_us(server: LocalServer) -> None:
    token = await token_of(server, audiences=["vault"])
    assert (await server.request("GET", MAPS, token=token)).status == 401


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({"expirationSeconds": 3}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**33}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"expirationSeconds": "1h"}, 400, "must be a whole number"),
        ({"audiences": "x"}, 400, "must be a list of text"),
        ({"boundObjectRef": {"kind": "Pod", "name": "p"}}, 422, "not supported"),
    ],
)
async def test_bad_token_requests(server: LocalServer, spec: dict[str, Any], status: int, words: str) -> None:
    answer = await server.request("POST", f"{ACCOUNTS}/default/token", {"spec": spec})
    assert (answer.status, words in answer.json["message"]) == (status, True)
    assert (await server.request("POST", f"{ACCOUNTS}/nosuch/token", {"spec": spec})).status == 404


async def test_questions_about_oneself(server: LocalServer) -> None:
    token = await token_of(server)
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    who = await server.request(
        "POST", reviews, {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}, token=token
    )
    info = who.json["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:default"
    assert info["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]

    async def may(user: str, **attributes: str) -> bool:
        body = {"spec": {"resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await server.request("POST", path, body, token=user)
        assert answer.status == 201
        allowed: bool = answer.json["status"]["allowed"]
        return allowed

    assert await may(token, verb="create", resource="pods", namespace="default")
    assert not await may(token, verb="create", resource="pods", namespace="other")
    assert not await may(token, verb="list", resource="nodes")
    assert not await may(token, verb="*", resource="*")
    assert await may(server.token, verb="*", resource="*")
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    listed = await server.request("POST", rules, {"spec": {"namespace": "other"}}, token=token)
    assert [rule["verbs"] for rule in listed.json["status"]["resourceRules"]] == [["create"], ["create"]]
    assert (await server.request("POST", rules, {"spec": {}}, token=token)).json["message"] == "no namespace on request"
    odd = await server.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}})
    assert odd.status == 422
    assert (await server.request("GET", reviews)).status == 405


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    async with local_server(tmp_path, memory=False) as server:
        token, admin = await token_of(server), server.token
    async with local_server(tmp_path, memory=False) as server:
        assert (await server.request("GET", MAPS, token=token)).status == 200
        assert (await server.request("GET", MAPS, token=admin)).status == 200


async def test_no_token_in_any_log(server: LocalServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = await token_of(server)
    await server.request("GET", MAPS, token=token)
    await server.request("GET", "/nosuch?x=" + "y" * 10, token=token + "broken")
    assert token not in caplog.text
    assert server.token not in caplog.text


async def test_what_the_admin_may_tell_the_server(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def act(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        return {"done": True}

    async with local_server(tmp_path, options=ServerOptions(actions={"/sandpool/act": act})) as server:
        token = await token_of(server)
        assert (await server.request("POST", "/sandpool/act", {"x": 1}, token=token)).status == 403
        assert (await server.request("POST", "/sandpool/act", {"x": 1}, token=None)).status == 401
        assert asked == []
        answer = await server.request("POST", "/sandpool/act", {"x": 1})
        assert (answer.status, answer.json, asked) == (200, {"done": True}, [{"x": 1}])
        assert (await server.request("GET", "/sandpool/act")).status == 404
