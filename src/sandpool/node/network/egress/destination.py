"""From what a client asked for to the addresses that may be connected to. A name is looked up once, every address is judged,
and only what was judged is ever connected to: what the name means a moment later makes no difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

from sandpool.node.network.egress.lookups import Lookups
from sandpool.node.network.egress.refusal import Refusal
from sandpool.node.network.egress.request import Request
from sandpool.node.network.forbidden import Address, faces
from sandpool.node.network.policy import ALLOWED, Rules, Verdict, port_verdict, verdict
from sandpool.node.network.route import Route

_MAX_ADDRESSES = 8
_OWN = Verdict(
    False, "Forbidden", "it is this machine itself; no NetworkPolicy can allow that: choose a destination outside of it"
)
_UNKNOWN = Verdict(
    False, "Forbidden", "this machine cannot tell whether it is one of its own addresses; choose another destination"
)

AskRoute = Callable[[Address], Route]
"""What the kernel would do with a packet to the address. OSError if it cannot be asked."""


def judged(rules: Rules, address: Address, port: int, route: AskRoute) -> Verdict:
    """The policy's verdict, unless it is an address of this machine, or one that is no single host."""
    found = verdict(rules, address, port)
    if not found.allowed:
        return found
    try:
        ways = [route(face) for face in faces(address)]
    except OSError:
        return _UNKNOWN
    if all(way in (Route.UNICAST, Route.NONE) for way in ways):
        return ALLOWED
    return _OWN


async def destinations(request: Request, rules: Rules, lookups: Lookups, route: AskRoute) -> Sequence[Address]:
    """At least one. Refusal if there is none that may be connected to."""
    opened = port_verdict(rules, request.port)
    if not opened.allowed:
        raise refused(request, opened)
    if request.address is not None:
        addresses: Sequence[Address] = [request.address]
    else:
        addresses = await _looked_up(request, lookups)
    verdicts = [(address, judged(rules, address, request.port, route)) for address in addresses[:_MAX_ADDRESSES]]
    allowed = [address for address, found in verdicts if found.allowed]
    if not allowed:
        raise refused(request, verdicts[0][1])
    return allowed


def refused(request: Request, found: Verdict) -> Refusal:
    return Refusal(
        HTTPStatus.FORBIDDEN, found.reason, f"{request.host} port {request.port} is refused: {found.message}"
    )


async def _looked_up(request: Request, lookups: Lookups) -> Sequence[Address]:
    try:
        found = await lookups.ask(request.host)
    except TimeoutError:
        raise Refusal(
            HTTPStatus.GATEWAY_TIMEOUT, "Lookup", f"{request.host} could not be looked up in time; try again"
        ) from None
    except OSError:
        found = ()
    if not found:
        raise Refusal(
            HTTPStatus.BAD_GATEWAY, "Lookup", f"{request.host} has no address that this machine knows; check the name"
        )
    return found
