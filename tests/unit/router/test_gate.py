"""What the gate decides about a request: who, which sandbox, may they, where to."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from sandpool.kube.errors import Unavailable
from sandpool.model.metadata import Key
from sandpool.router.gate import GateOptions
from sandpool.router.guard import Allowed
from sandpool.router.ports import Caller, NoAnswer
from sandpool.router.tokens import Scope
from sandpool.router.values import Admitted, Answer, Outcome, Peer
from support.clocks.manual_clock import START, ManualClock
from support.network.gate_parts import POOL, GateParts, a_request, a_sandbox, admitted, refused

NOW = int(START.timestamp())
FOREVER = NOW + 10_000
ROUTED = {b"x-sandbox-id", b"x-sandbox-namespace", b"x-sandbox-port", b"x-sandbox-timeout", b"x-sandbox-pod-ip"}


def scoped(parts: GateParts, **fields: object) -> str:
    values = {"namespace": "default", "name": "box", "expires": FOREVER, **fields}
    return parts.signer.sign(Scope(**values))  # type: ignore[arg-type]


# Who


async def test_a_token_of_the_api_server_opens_the_namespaces_of_its_owner() -> None:
    parts = GateParts(a_sandbox(), a_sandbox(namespace="team"), a_sandbox(namespace="foreign"))
    decided = admitted(await parts.ask())
    assert (decided.caller, decided.target.namespace, decided.target.uid) == ("admin", "default", "u-1")
    assert admitted(await parts.ask(headers={"X-Sandbox-Namespace": "team"})).target.namespace == "team"
    answer = refused(await parts.ask(headers={"X-Sandbox-Namespace": "foreign"}))
    assert (answer.status, answer.body["code"], answer.caller) == (403, "PERMISSION_DENIED", "admin")
    assert "sandboxes/connect" in str(answer.body["message"])


@pytest.mark.parametrize("shown", [None, "", "wrong", "admin-token x", "a\x01b", "v1.x.y", "x" * 20_000])
async def test_without_a_good_token_nobody_is_let_in(shown: str | None) -> None:
    parts = GateParts()
    answer = refused(await parts.ask(token=shown))
    assert (answer.status, answer.body["code"], answer.caller) == (401, "UNAUTHENTICATED", "")
    assert (b"www-authenticate", b"Bearer") in answer.headers
    assert shown is None or len(shown) < 3 or shown not in json.dumps(dict(answer.body))


async def test_only_bearer_tokens_count_and_cookies_never_do() -> None:
    parts = GateParts()
    for header in ({"authorization": "Basic admin-token"}, {"cookie": "token=admin-token"}):
        answer = refused(await parts.ask(headers=header, token=None))
        assert answer.status == 401
    assert parts.register.asked == []
    assert admitted(await parts.ask(headers={"authorization": "bEARER  admin-token "}, token=None))


async def test_answers_of_the_api_server_are_remembered_for_a_moment() -> None:
    clock = ManualClock()
    parts = GateParts(clock=clock)
    for _ in range(3):
        admitted(await parts.ask())
    assert parts.register.asked == ["who admin-token", "may admin default"]
    clock.advance(10)
    del parts.register.tokens["admin-token"]
    assert refused(await parts.ask()).status == 401
    parts.register.tokens["admin-token"] = "admin"
    clock.advance(3)
    admitted(await parts.ask())


async def test_when_the_api_server_cannot_be_asked_nobody_is_let_in_and_nothing_is_remembered() -> None:
    parts = GateParts()
    parts.register.trouble = Unavailable("etcd at 10.1.1.1 is down")
    answer = refused(await parts.ask())
    assert (answer.status, answer.body["code"]) == (503, "UNAVAILABLE")
    assert (b"retry-after", b"1") in answer.headers
    assert "10.1.1.1" not in str(answer.body)
    parts.register.trouble = None
    admitted(await parts.ask())


async def test_a_connection_can_prove_who_it_is_but_not_for_a_page_in_a_browser() -> None:
    parts = GateParts()
    proved = Peer("pod", proved=Caller("near"))
    assert admitted(await parts.ask(token=None, peer=proved)).caller == "near"
    for header in ("sec-fetch-site", "referer"):
        answer = refused(await parts.ask(token=None, peer=proved, headers={header: "same-origin"}))
        assert answer.status == 401
    own = {"origin": "http://127.0.0.1:7000"}
    assert refused(await parts.ask(token=None, peer=proved, headers=own)).status == 401
    assert refused(await parts.ask(token="wrong", peer=proved)).status == 401  # what is shown counts


async def test_a_near_connection_counts_only_where_somebody_said_so() -> None:
    assert refused(await GateParts().ask(token=None, peer=Peer("127.0.0.1"))).status == 401
    parts = GateParts(options=GateOptions(near=Caller("near")))
    assert admitted(await parts.ask(token=None, peer=Peer("127.0.0.1"))).caller == "near"
    assert refused(await parts.ask(token=None, peer=Peer("10.0.0.9"))).status == 401
    # It is reached through a port of somebody's machine, so pages could reach it by a name of their own.
    rebound = {"host": "evil.example"}
    assert refused(await parts.ask(token=None, peer=Peer("127.0.0.1"), headers=rebound)).status == 403
    assert admitted(await parts.ask(peer=Peer("10.0.0.9"), headers=rebound))


async def test_on_loopback_foreign_hosts_are_refused_before_anything_else() -> None:
    options = GateOptions(loopback=True, allowed=Allowed(hosts=frozenset({"box.example"})))
    parts = GateParts(options=options)
    for path, sandbox in (("/healthz", None), ("/execute", "box"), ("/router/v1/tokens", None)):
        answer = refused(await parts.ask(path, {"host": "evil.example"}, sandbox=sandbox))
        assert (answer.status, answer.body["code"]) == (403, "FOREIGN_HOST")
    answer = refused(await parts.ask(headers={"origin": "http://evil.example"}))
    assert answer.status == 403
    assert parts.register.asked == []
    assert admitted(await parts.ask(headers={"host": "box.example"}))


# Tokens of one sandbox


async def test_a_scoped_token_opens_its_sandbox_and_no_other() -> None:
    parts = GateParts(a_sandbox(), a_sandbox("other", uid="u-2"), a_sandbox(namespace="team", uid="u-3"))
    decided = admitted(await parts.ask(token=scoped(parts)))
    assert decided.caller == "token:default/box"
    for headers, sandbox in (({}, "other"), ({"X-Sandbox-Namespace": "team"}, "box")):
        answer = refused(await parts.ask(token=scoped(parts), headers=headers, sandbox=sandbox))
        assert (answer.status, answer.body["code"]) == (403, "PERMISSION_DENIED")
    assert parts.register.asked == []


async def test_a_scoped_token_ends() -> None:
    clock = ManualClock()
    parts = GateParts(clock=clock)
    token = scoped(parts, expires=NOW + 60)
    admitted(await parts.ask(token=token))
    clock.advance(60)
    assert refused(await parts.ask(token=token)).status == 401


async def test_a_scoped_token_is_for_this_very_object() -> None:
    parts = GateParts()
    admitted(await parts.ask(token=scoped(parts, uid="u-1")))
    assert refused(await parts.ask(token=scoped(parts, uid="u-0"))).status == 410
    mixed = {"X-Sandbox-UID": "u-1"}
    assert refused(await parts.ask(token=scoped(parts, uid="u-0"), headers=mixed)).status == 403


async def test_a_token_of_a_port_opens_that_port_strictly() -> None:
    parts = GateParts()
    parts.doors.listening = {8000}
    token = scoped(parts, port=8000)
    decided = admitted(await parts.ask(token=token, headers={"X-Sandbox-Port": "8000"}))
    (await decided.connect()).close()
    assert (decided.port, parts.doors.opened) == (8000, ["8000"])
    assert admitted(await parts.ask(token=token)).port == 8000
    assert refused(await parts.ask(token=token, headers={"X-Sandbox-Port": "8001"})).status == 403


@pytest.mark.parametrize("port", [8888, 8080, 8000])
async def test_a_token_of_a_port_never_leads_to_boxd(port: int) -> None:
    parts = GateParts()
    token = scoped(parts, port=port)
    by_header = {"X-Sandbox-Port": str(port)}
    for decided in (
        await parts.ask("/box/v1/processes", by_header, token=token),
        await parts.ask(f"/port/{token}/box/v1/processes", token=None, sandbox=None),
        await parts.ask(f"/port/{token}/execute", token=None, sandbox=None),
    ):
        assert admitted(decided).port == port
        with pytest.raises(NoAnswer):
            await admitted(decided).connect()
    assert parts.doors.opened == []
    for_boxd = admitted(await parts.ask("/execute", by_header))
    assert for_boxd.pool != admitted(decided).pool  # a connection that may lead to boxd is not used again for it


# Which sandbox


@pytest.mark.parametrize(
    ("headers", "sandbox", "detail"),
    [
        ({}, None, "X-Sandbox-ID header is required."),
        ({}, "", "X-Sandbox-ID header is required."),
        ({}, "Box", "Invalid sandbox ID format."),
        ({}, "a.b", "Invalid sandbox ID format."),
        ({}, "-a", "Invalid sandbox ID format."),
        ({}, "a" * 64, "Invalid sandbox ID format."),
        ({}, "a/../b", "Invalid sandbox ID format."),
        ({"X-Sandbox-Namespace": "A"}, "box", "Invalid namespace format."),
        ({"X-Sandbox-Port": "0"}, "box", "Invalid port format."),
        ({"X-Sandbox-Port": "65536"}, "box", "Invalid port format."),
        ({"X-Sandbox-Port": "+80"}, "box", "Invalid port format."),
        ({"X-Sandbox-Port": "8e1"}, "box", "Invalid port format."),
        ({"X-Sandbox-Port": "\xb2"}, "box", "Invalid port format."),
        ({"X-Sandbox-Pod-IP": "box.default.svc"}, "box", "Invalid target IP address."),
        ({"X-Sandbox-Pod-IP": "010.0.0.7"}, "box", "Invalid target IP address."),
        ({"X-Sandbox-Pod-IP": "127.0.0.1"}, "box", "Invalid target IP address."),
        ({"X-Sandbox-Pod-IP": "169.254.169.254"}, "box", "Invalid target IP address."),
        ({"X-Sandbox-Pod-IP": "0.0.0.0"}, "box", "Invalid target IP address."),
        ({"X-Sandbox-Pod-IP": "ff02::1"}, "box", "Invalid target IP address."),
        ({"X-Sandbox-UID": "u" * 129}, "box", "Invalid sandbox UID format."),
    ],
)
async def test_headers_are_checked_in_the_words_of_the_contract(
    headers: dict[str, str], sandbox: str | None, detail: str
) -> None:
    answer = refused(await GateParts().ask(headers=headers, sandbox=sandbox))
    assert (answer.status, answer.body["detail"], answer.body["code"]) == (400, detail, "INVALID_ARGUMENT")
    assert answer.body["message"]


async def test_an_address_that_a_caller_names_is_never_believed() -> None:
    parts = GateParts(a_sandbox(ips=("10.0.0.7", "fd00::7")))
    for known in ("10.0.0.7", "FD00:0::7"):
        decided = admitted(await parts.ask(headers={"X-Sandbox-Pod-IP": known}))
        assert decided.target.address == "10.0.0.7"
    answer = refused(await parts.ask(headers={"X-Sandbox-Pod-IP": "10.0.0.8"}))
    assert (answer.status, answer.body["code"]) == (403, "PERMISSION_DENIED")
    assert "X-Sandbox-Pod-IP 10.0.0.8" in str(answer.body["detail"])
    near = GateParts(a_sandbox(ips=("127.0.0.3",)))  # where pods have no network of their own
    assert admitted(await near.ask(headers={"X-Sandbox-Pod-IP": "127.0.0.3"}))


async def test_a_uid_must_be_that_of_the_sandbox() -> None:
    parts = GateParts()
    assert admitted(await parts.ask(headers={"X-Sandbox-UID": "u-1"}))
    assert refused(await parts.ask(headers={"X-Sandbox-UID": "u-2"})).status == 410


async def test_who_may_not_use_a_namespace_is_not_told_what_is_in_it() -> None:
    parts = GateParts(a_sandbox(namespace="foreign"))
    foreign = {"X-Sandbox-Namespace": "foreign"}
    there, absent = [refused(await parts.ask(headers=foreign, sandbox=name)) for name in ("box", "absent")]
    assert there.status == absent.status == 403
    assert there.body == absent.body


async def test_a_member_of_a_pool_lets_nobody_in() -> None:
    parts = GateParts(a_sandbox(owner=POOL))
    for path in ("/execute", "/box/v1/processes"):
        answer = refused(await parts.ask(path))
        assert (answer.status, answer.body["code"]) == (404, "NOT_CLAIMED")
    assert refused(await parts.ask(token=scoped(parts))).status == 404
    wish = b'{"sandbox": "box"}'
    assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None)).status == 404


async def test_a_cache_that_is_not_filled_knows_nothing() -> None:
    parts = GateParts()
    parts.cache.synced.clear()
    assert refused(await parts.ask()).status == 503


# Where to


async def test_paths_of_boxd_go_to_boxd_and_others_to_a_port() -> None:
    parts = GateParts()
    parts.doors.listening = {3000, 8888}
    for path, headers, port in (
        ("/box/v1", {}, None),
        ("/box/v1/processes", {}, None),
        ("/box/v1/files/a%2Fb?stat", {"X-Sandbox-Port": "3000"}, None),
        ("/box/v1?x", {}, None),
        ("/box/v10", {}, 8888),
        ("/box", {}, 8888),
        ("/a/box/v1/processes", {"X-Sandbox-Port": "3000"}, 3000),
        ("/", {}, 8888),
    ):
        decided = admitted(await parts.ask(path, headers))
        (await decided.connect()).close()
        assert (decided.port, decided.path.decode()) == (port, path)
        assert parts.doors.opened.pop() == (str(port) if port else "boxd")


@pytest.mark.parametrize(("port", "opened"), [(8888, ["boxd"]), (8080, ["boxd"]), (3000, [])])
async def test_where_nobody_listens_boxd_answers_for_the_ports_of_the_contract(port: int, opened: list[str]) -> None:
    parts = GateParts()
    decided = admitted(await parts.ask("/execute", {"X-Sandbox-Port": str(port)}))
    if opened:
        (await decided.connect()).close()
    else:
        with pytest.raises(NoAnswer, match="Could not connect to the backend sandbox: box"):
            await decided.connect()
    assert parts.doors.opened == opened


async def test_connections_are_shared_only_where_they_lead_to_the_same_place() -> None:
    parts = GateParts(a_sandbox(), a_sandbox("other", uid="u-2", ips=("10.0.0.8",)))
    first = admitted(await parts.ask("/box/v1/health"))
    assert admitted(await parts.ask("/box/v1/processes")).pool == first.pool
    others = [
        await parts.ask("/x"),
        await parts.ask("/x", {"X-Sandbox-Port": "3000"}),
        await parts.ask("/box/v1/health", sandbox="other"),
    ]
    parts.becomes(a_sandbox(ips=("10.0.0.9",), revision=2))  # suspended and resumed: another pod
    others.append(await parts.ask("/box/v1/health"))
    assert len({first.pool, *(admitted(one).pool for one in others)}) == 5


async def test_the_headers_of_the_router_do_not_reach_the_sandbox() -> None:
    assert ROUTED | {b"x-sandbox-uid"} <= admitted(await GateParts().ask()).drop


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("2.5", 2.5), ("100000", 3600.0), ("0", None), ("-1", None), ("nan", None), ("inf", None), ("soon", None)],
)
async def test_a_time_limit_is_honoured_and_capped(said: str, seconds: float | None) -> None:
    assert admitted(await GateParts().ask(headers={"X-Sandbox-Timeout": said})).timeout == seconds


# The router's own


async def test_health_needs_nobody() -> None:
    parts = GateParts()
    answer = refused(await parts.ask("/healthz", method="GET", token=None, sandbox=None))
    assert (answer.status, answer.body) == (200, {"status": "ok"})
    assert admitted(await parts.ask("/healthz", method="GET")).path == b"/healthz"  # the sandbox's own


async def test_a_token_is_made_for_one_sandbox() -> None:
    parts = GateParts()
    answer = refused(await parts.ask("/router/v1/tokens", body=b'{"sandbox": "box"}', sandbox=None))
    assert answer.status == 201
    assert (b"cache-control", b"no-store") in answer.headers
    assert (answer.about, answer.caller) == (Key("default", "box"), "admin")
    assert set(answer.body) == {"token", "expires"}
    assert answer.body["expires"] == "2026-01-01T01:00:00Z"
    token = str(answer.body["token"])
    assert parts.signer.read(token, NOW) == Scope("default", "box", NOW + 3600, "u-1")
    assert admitted(await parts.ask("/box/v1/processes", token=token)).port is None


@pytest.mark.parametrize(
    ("options", "peer", "host", "base"),
    [
        (GateOptions(), Peer("127.0.0.1"), "127.0.0.1:7000", "http://127.0.0.1:7000"),
        (GateOptions(), Peer("10.0.0.1", secure=True), "box.example", "https://box.example"),
        (GateOptions(url="https://boxes.example/r/"), Peer("10.0.0.1"), "x", "https://boxes.example/r"),
    ],
)
async def test_a_port_gets_an_address(options: GateOptions, peer: Peer, host: str, base: str) -> None:
    parts = GateParts(options=options)
    body = b'{"sandbox": "box", "namespace": "default", "port": 8000, "seconds": 60}'
    answer = refused(await parts.ask("/router/v1/tokens", {"host": host}, body=body, peer=peer, sandbox=None))
    token = str(answer.body["token"])
    assert answer.body["url"] == f"{base}/port/{token}/"
    assert parts.signer.read(token, NOW) == Scope("default", "box", NOW + 60, "u-1", 8000)
    decided = admitted(await parts.ask(f"/port/{token}/a%2Fb?c=/d", token=None, sandbox=None))
    assert (decided.path, decided.prefix, decided.port) == (b"/a%2Fb?c=/d", f"/port/{token}".encode(), 8000)
    assert decided.add == ((b"x-forwarded-prefix", f"/port/{token}".encode()),)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"sandbox": 1}', 400),
        (b'{"sandbox": "Box"}', 400),
        (b'{"sandbox": "box", "namespace": "a/b"}', 400),
        (b'{"sandbox": "box", "port": 0}', 400),
        (b'{"sandbox": "box", "port": 65536}', 400),
        (b'{"sandbox": "box", "seconds": 0}', 400),
        (b'{"sandbox": "box", "seconds": 86401}', 400),
        (b'{"sandbox": "box", "ports": 80}', 400),
        (b" " * 5000, 413),
        (b"[" * 4000, 400),
        (b'{"sandbox": "absent"}', 404),
        (b'{"sandbox": "box", "namespace": "foreign"}', 403),
    ],
)
async def test_a_wish_that_cannot_be_granted_says_why(body: bytes, status: int) -> None:
    answer = refused(await GateParts().ask("/router/v1/tokens", body=body, sandbox=None))
    assert answer.status == status
    assert answer.body["detail"]
    assert "token" not in answer.body


async def test_tokens_are_made_for_those_who_proved_who_they_are_by_post() -> None:
    parts = GateParts()
    wish = b'{"sandbox": "box"}'
    assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None, token=None)).status == 401
    assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None, token="other-token")).status == 403
    answer = refused(await parts.ask("/router/v1/tokens", method="GET", sandbox=None))
    assert (answer.status, answer.headers) == (405, ((b"allow", b"POST"),))


async def test_without_a_key_no_tokens_are_made() -> None:
    parts = GateParts(keys=())
    answer = refused(await parts.ask("/router/v1/tokens", body=b'{"sandbox": "box"}', sandbox=None))
    assert (answer.status, answer.body["code"]) == (501, "UNIMPLEMENTED")
    assert admitted(await parts.ask())


async def test_a_scoped_token_can_only_be_narrowed() -> None:
    parts = GateParts(a_sandbox(), a_sandbox("other", uid="u-2"))
    token = scoped(parts, expires=NOW + 100, uid="u-1")
    body = b'{"sandbox": "box", "port": 8000, "seconds": 3600}'
    answer = refused(await parts.ask("/router/v1/tokens", body=body, sandbox=None, token=token))
    made = parts.signer.read(str(answer.body["token"]), NOW)
    assert made == Scope("default", "box", NOW + 100, "u-1", 8000)
    other = b'{"sandbox": "other"}'
    assert refused(await parts.ask("/router/v1/tokens", body=other, sandbox=None, token=token)).status == 403
    narrow = scoped(parts, port=8000)
    for wish in (body, b'{"sandbox": "box"}'):
        assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None, token=narrow)).status == 403


async def test_a_token_is_made_for_the_very_object_that_was_meant() -> None:
    parts = GateParts()
    for uid, status in (("u-1", 201), ("u-0", 410), ("", 201)):
        wish = json.dumps({"sandbox": "box", "port": 8000, "uid": uid}).encode()
        assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None)).status == status
    token = scoped(parts, uid="u-1")
    wish = b'{"sandbox": "box", "uid": "u-0"}'
    assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None, token=token)).status == 403


async def test_no_address_leads_to_boxd_where_it_listens_in_the_sandbox() -> None:
    parts = GateParts(options=GateOptions(daemon_port=8888))
    wish = b'{"sandbox": "box", "port": 8888}'
    assert refused(await parts.ask("/router/v1/tokens", body=wish, sandbox=None)).status == 403
    token = scoped(parts, port=8888)
    assert refused(await parts.ask(f"/port/{token}/", token=None, sandbox=None)).status == 403
    assert admitted(await parts.ask("/execute"))


async def test_an_address_needs_a_token_with_a_port() -> None:
    parts = GateParts()
    for token, status in ((scoped(parts), 403), ("v1.a.b", 401), ("admin-token", 401), ("", 401)):
        assert refused(await parts.ask(f"/port/{token}/", token="admin-token", sandbox=None)).status == status


async def test_an_address_without_its_slash_leads_to_the_one_with_it() -> None:
    parts = GateParts()
    token = scoped(parts, port=8000)
    for asked, location in ((f"/port/{token}", f"/port/{token}/"), (f"/port/{token}?a/b", f"/port/{token}/?a/b")):
        answer = refused(await parts.ask(asked, token=None, sandbox=None))
        assert (answer.status, answer.headers) == (308, ((b"location", location.encode()),))


async def test_a_page_of_another_sandbox_does_not_tell_its_address() -> None:
    parts = GateParts()
    path = f"/port/{scoped(parts, port=8000)}/"
    other = {"referer": "http://127.0.0.1:7000/port/v1.other.token/page"}
    assert b"referer" in admitted(await parts.ask(path, other, token=None, sandbox=None)).drop
    harmless = {"referer": "https://docs.example/page"}
    assert b"referer" not in admitted(await parts.ask(path, harmless, token=None, sandbox=None)).drop


async def test_an_app_does_not_see_the_origin_of_the_router() -> None:
    """It would compare it with its own Host and refuse the WebSockets of its own page."""
    parts = GateParts()
    asked = await parts.ask(f"/port/{scoped(parts, port=8000)}/", token=None, sandbox=None)
    assert b"origin" in admitted(asked).drop


# What is told


async def test_every_request_is_noted_without_its_secrets() -> None:
    clock = ManualClock()
    parts = GateParts(clock=clock)
    token = scoped(parts, port=8000)
    asked = [
        ("/execute?password=1", {"x-sandbox-id": "box", "authorization": "Bearer admin-token"}),
        (f"/port/{token}/page?x=1", {}),
        ("/execute", {"x-sandbox-id": "box"}),
        ("/healthz", {}),
    ]
    for path, headers in asked:
        request = a_request(path, {"host": "127.0.0.1", **headers})
        decided = await parts.gate.admit(request, Peer("10.0.0.3"), _nothing)
        status = decided.status if isinstance(decided, Answer) else 200
        parts.gate.finished(request, Peer("10.0.0.3"), decided, Outcome(status, 3, 4, 0.0125, ""))
    first, second, third = parts.audit.entries
    assert (first.who, first.from_, first.method, first.path) == ("admin", "10.0.0.3", "GET", "/execute")
    assert (first.namespace, first.sandbox, first.port, first.status) == ("default", "box", 8888, 200)
    assert (first.received, first.sent, first.milliseconds, first.id) == (3, 4, 12.5, "r-1")
    assert (second.path, second.who, second.port) == ("/port/*/page", "token:default/box", 8000)
    assert (third.who, third.status) == ("", 401)
    assert not any(secret in repr(parts.audit.entries) for secret in ("admin-token", token, "password"))


async def test_requests_under_way_are_counted_however_they_end() -> None:
    parts = GateParts()
    under_way = lambda: parts.registry.get_sample_value("sandbox_router_inflight_requests")  # noqa: E731
    request = a_request("/", {"authorization": "Bearer admin-token", "x-sandbox-id": "box"})
    decided = await parts.gate.admit(request, Peer("10.0.0.3"), _nothing)
    assert under_way() == 1  # type: ignore[no-untyped-call]
    parts.gate.finished(request, Peer("10.0.0.3"), decided, Outcome(200, 0, 0, 0.1))
    assert under_way() == 0  # type: ignore[no-untyped-call]
    never_asked = a_request("/", {})
    parts.gate.finished(never_asked, Peer("10.0.0.3"), Answer(499, {}), Outcome(499, 0, 0, 0.1, "client"))
    assert under_way() == 0  # type: ignore[no-untyped-call]


async def test_metrics_name_only_what_exists() -> None:
    parts = GateParts()
    parts.register.rights["admin"].add("made-up")
    for namespace, method, status in (("default", "GET", 200), ("made-up", "BREW", 777), ("default", "GET", 502)):
        request = a_request("/", {"authorization": "Bearer admin-token", "x-sandbox-id": "box", "x-sandbox-namespace": namespace}, method)  # fmt: skip
        decided = await parts.gate.admit(request, Peer("10.0.0.3"), _nothing)
        error = "refused" if status == 502 else ""
        assert isinstance(decided, Admitted) == (namespace == "default")
        parts.gate.finished(request, Peer("10.0.0.3"), decided, Outcome(status, 0, 0, 0.1, error))
    value = parts.registry.get_sample_value
    labels = {"method": "GET", "code": "200", "sandbox_namespace": "default"}
    assert value("sandbox_router_requests_total", labels) == 1
    assert value("sandbox_router_request_duration_seconds_count", labels) == 1
    assert value("sandbox_router_requests_total", {"method": "OTHER", "code": "7xx", "sandbox_namespace": "-"}) == 1
    assert value("sandbox_router_upstream_errors_total", {"sandbox_namespace": "default", "reason": "dial"}) == 1
    assert value("sandbox_router_authz_decisions_total", {"sandbox_namespace": "default", "decision": "allow"}) == 2
    assert value("sandbox_router_authz_decisions_total", {"sandbox_namespace": "-", "decision": "deny"}) == 0
    assert value("sandbox_router_inflight_requests") == 0


async def test_a_moment_of_expiry_is_judged_by_the_clock() -> None:
    clock = ManualClock()
    end = (START + timedelta(seconds=5)).isoformat().replace("+00:00", "Z")
    parts = GateParts(a_sandbox(shutdownTime=end), clock=clock)
    admitted(await parts.ask())
    clock.advance(5)
    assert refused(await parts.ask()).status == 410


async def _nothing(most: int) -> bytes:
    return b""
