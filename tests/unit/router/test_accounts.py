"""On whose account requests through the router are, and how many one may have."""

from __future__ import annotations

import pytest

from sandpool.base.shares import OPERATOR
from sandpool.router.authentication import Identity
from sandpool.router.gate import GateOptions
from sandpool.router.ports import Caller
from sandpool.router.tokens import Scope
from sandpool.router.values import Answer, Outcome, Peer, Request
from support.clocks.manual_clock import START
from support.network.gate_parts import GateParts, a_request, a_sandbox, admitted, refused

PEER = Peer("127.0.0.1")
ENDED = Outcome(200, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("proof", "tenant"),
    [
        (Identity(Caller("kubernetes-admin", groups=("system:masters",))), OPERATOR),
        (Identity(Caller("system:serviceaccount:team:user")), "team"),
        (Identity(Caller("alice@example.com")), "alice@example.com"),
        (Identity(scope=Scope("team", "box", 0)), "team"),
    ],
)
def test_who_is_charged(proof: Identity, tenant: str) -> None:
    assert proof.tenant == tenant


def parts() -> GateParts:
    made = GateParts(a_sandbox(), a_sandbox(namespace="team"), options=GateOptions(requests=9))
    made.register.tokens |= {"greedy": "system:serviceaccount:default:a", "modest": "system:serviceaccount:team:b"}
    made.register.rights |= {"system:serviceaccount:default:a": {"default"}, "system:serviceaccount:team:b": {"team"}}
    return made


def asked(token: str, namespace: str) -> Request:
    return a_request("/", {"x-sandbox-id": "box", "x-sandbox-namespace": namespace, "authorization": f"Bearer {token}"})


async def nothing(most: int) -> bytes:
    return b""


async def test_one_namespace_does_not_take_all() -> None:
    made = parts()
    requests = [asked("greedy", "default") for _ in range(8)]
    for request in requests:
        admitted(await made.gate.admit(request, PEER, nothing))
    answer = refused(await made.gate.admit(asked("greedy", "default"), PEER, nothing))
    assert (answer.status, answer.body["code"]) == (429, "RESOURCE_EXHAUSTED")
    assert (b"retry-after", b"1") in answer.headers
    admitted(await made.gate.admit(asked("modest", "team"), PEER, nothing))
    made.gate.finished(requests[0], PEER, answer, ENDED)
    made.gate.finished(requests[0], PEER, answer, ENDED)  # once is enough
    assert made.gate.shares.holds("default") == 7


async def test_an_address_counts_for_the_namespace_of_its_sandbox() -> None:
    made = parts()
    token = made.signer.sign(Scope("default", "box", int(START.timestamp()) + 100, port=80))
    for _ in range(8):
        admitted(await made.gate.admit(a_request(f"/port/{token}/", {}), PEER, nothing))
    assert made.gate.shares.held == {"default": 8}
    assert refused(await made.gate.admit(asked("greedy", "default"), PEER, nothing)).status == 429


async def test_who_asks_for_tokens_counts_while_the_body_comes() -> None:
    made = parts()
    seen: list[int] = []

    async def slowly(most: int) -> bytes:
        seen.append(made.gate.shares.holds("default"))
        return b"{}"

    request = a_request("/router/v1/tokens", {"authorization": "Bearer greedy"}, "POST")
    answer = await made.gate.admit(request, PEER, slowly)
    assert isinstance(answer, Answer)
    made.gate.finished(request, PEER, answer, ENDED)
    assert (seen, made.gate.shares.held) == ([1], {})


async def test_whom_nobody_knows_costs_nothing() -> None:
    made = parts()
    assert refused(await made.gate.admit(asked("wrong", "default"), PEER, nothing)).status == 401
    assert made.gate.shares.held == {}
