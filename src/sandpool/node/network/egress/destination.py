"""Resolves and checks where a proxied request may connect to.

A name is looked up once, every address is checked, and the proxy connects only to checked addresses. So it does not matter if the name
resolves to something else a moment later (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

from sandpool.node.network.egress.http1 import Refusal
from sandpool.node.network.egress.messages import Request
from sandpool.node.network.egress.outside import Lookups
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
"""Asks the kernel for the route to an address. OSError if that fails."""


def judged(rules: Rules, address: Address, port: int, route: AskRoute) -> Verdict:
    """The verdict of the policies. Addresses of this machine, broadcast and multicast are always refused."""
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
    """The addresses to try, at least one. Refusal if none may be connected to."""
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
