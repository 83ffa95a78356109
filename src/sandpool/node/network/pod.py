"""One pod's part of the network: its address, the listeners of its declared ports, and its way out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.node.network.acceptor import Acceptor
from sandpool.node.network.egress.proxy import EgressProxy
from sandpool.node.network.flow import Idle, InTurn, Pace, freely, prompt, relay, reset
from sandpool.node.network.options import NetworkOptions
from sandpool.node.network.policies import Policies
from sandpool.node.network.policy import ENTRY, Rules
from sandpool.node.network.port import Dial, Wanted
from sandpool.node.network.ports import Listening, unserved
from sandpool.node.network.slots import Slots
from sandpool.telemetry.log import logger

log = logger(__name__)
_NO_WAY_OUT = (
    "No NetworkPolicy with egress rules selects this pod: it reaches nothing outside of itself. "
    "Create one in its namespace to let it out."
)
_PROXIED = (
    "Outside of itself this pod reaches only what its NetworkPolicies allow, and only through the proxy that HTTP_PROXY and "
    "HTTPS_PROXY name inside: a program that ignores these variables has no network."
)


_TOO_MUCH = (
    "NetworkPolicy {} asks for more than the operator of this machine lets sandboxes reach (--allow-egress of sandpool up); "
    "only what both allow is reached."
)


class Labels:
    """A pod's labels, which change while it runs, and the rules that follow from them."""

    def __init__(self, policies: Policies, namespace: str, labels: Mapping[str, str], turn: Pace = freely) -> None:
        self._policies = policies
        self._namespace = namespace
        self._turn = turn
        self.labels = labels  # exchanged as a whole
        self._known: tuple[int, Mapping[str, str]] | None = None
        self._rules = Rules()

    def rules(self) -> Rules:
        """Asked for each connection; found out after each change in its namespace."""
        if self._stale():
            self._known = (self._policies.version(self._namespace), self.labels)
            self._rules = self._policies.rules_of(self._namespace, self.labels)
        return self._rules

    async def rules_in_turn(self) -> Rules:
        """If they must be found out, in the tenant's turn: it may have thousands of policies, and write them all the time."""
        if self._stale():
            await self._turn(ENTRY * self._policies.count(self._namespace))
        return self.rules()

    def _stale(self) -> bool:
        known = self._known
        return known is None or known[0] != self._policies.version(self._namespace) or known[1] is not self.labels


class PodNetwork:
    """Attached (see port.py). `changed` is called with each change of its labels, `released` once, when nothing of it is left."""

    def __init__(
        self,
        wanted: Wanted,
        address: str,
        labels: Labels,
        proxy: EgressProxy,
        egress_slots: Slots,
        changed: Callable[[PodNetwork], None],
        released: Callable[[PodNetwork], None],
    ) -> None:
        self.wanted = wanted
        self._address = address
        self._labels = labels
        self._proxy = proxy
        self._egress_slots = egress_slots
        self._changed = changed
        self._released = released
        self._notes = unserved(wanted.ports)
        self._acceptors: list[Acceptor] = []
        self._closing: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._address

    @property
    def notes(self) -> tuple[str, ...]:
        rules = self._labels.rules()
        exceeding = rules.exceeding()
        beyond = (_TOO_MUCH.format(exceeding),) if exceeding else ()
        return (*self._notes, _PROXIED if rules.policies else _NO_WAY_OUT, *beyond)

    def listen(
        self,
        listening: Sequence[Listening],
        dial: Dial,
        slots: Slots,
        clock: Clock,
        options: NetworkOptions,
        turn: Pace,
    ) -> None:
        for each in listening:
            inbound = Inbound(dial, each.port, clock, options, turn)
            self._acceptors.append(Acceptor(each.listener, slots, inbound.serve, clock))
        self._notes = (*(each.note for each in reversed(listening) if each.note), *self._notes)

    def serve_egress(self, listener: socket.socket) -> None:
        if self._closing is not None:
            listener.close()
            return
        self._proxy.serve(listener, self._egress_slots)

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Other policies may select it now."""
        self._labels.labels = dict(labels)
        self._changed(self)

    async def recheck(self) -> None:
        await self._proxy.recheck()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # whoever waits may be cancelled; it is closed nevertheless

    async def _close(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.close()
        await self._proxy.close()
        self._released(self)


class Inbound:
    """Connections to one declared port, carried to the same port inside."""

    def __init__(self, dial: Dial, port: int, clock: Clock, options: NetworkOptions, turn: Pace) -> None:
        self._dial = dial
        self._port = port
        self._turn = turn
        self._clock = clock
        self._options = options

    async def serve(self, client: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                inside = await self._dial(self._port)
        except (NodeError, OSError) as error:
            log.debug("nobody answers inside", port=self._port, cause=str(error))
            reset(client)
            return
        with contextlib.closing(inside), Idle(self._clock, self._options.idle_timeout) as idle:
            prompt(inside)
            await relay(client, inside, idle.touch, InTurn(self._turn, freely))
