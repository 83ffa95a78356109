"""The network of one pod: its address, the listeners of its declared ports, and its egress proxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.turns import BYTES
from sandpool.node.network.acceptor import Acceptor
from sandpool.node.network.addresses import Listening, unserved
from sandpool.node.network.contract import Dial, NetworkOptions, NetworkRequest
from sandpool.node.network.egress.proxy import EgressProxy
from sandpool.node.network.policy import ENTRY, PORTION, Policies, Rules
from sandpool.node.network.relay import Idle, InTurn, Pace, freely, prompt, relay, reset
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
    """The labels of a pod, which may change while it runs, and the egress rules that follow from them."""

    def __init__(self, policies: Policies, namespace: str, labels: Mapping[str, str], turn: Pace = freely) -> None:
        self._policies = policies
        self._namespace = namespace
        self._turn = turn
        self.labels = labels  # replaced as a whole
        self._known: tuple[int, Mapping[str, str]] | None = None
        self._rules = Rules()

    def rules(self) -> Rules:
        """The current rules, computed once after each change in the namespace."""
        if self._stale():
            self._known = (self._policies.version(self._namespace), self.labels)
            self._rules = self._policies.rules_of(self._namespace, self.labels)
        return self._rules

    async def rules_in_turn(self) -> Rules:
        """The current rules. Waits for turns of the tenant if they must be computed: a tenant may have thousands of policies, and change them
        all the time."""
        while self._stale():
            if self._light():
                await self._turn(ENTRY * self._policies.terms(self._namespace))
                return self.rules()
            known = (self._policies.version(self._namespace), self.labels)
            selection = self._policies.selection(self._namespace, self.labels)
            for policies in self._policies.portions(self._namespace):
                await self._turn(BYTES)
                selection.add(policies)
            if known[0] == self._policies.version(self._namespace) and known[1] is self.labels:
                self._known, self._rules = known, selection.rules()
        return self._rules

    def last_rules(self) -> Rules:
        """The rules without waiting for a turn; possibly outdated, if computing them would take long. Only for reports."""
        return self.rules() if self._light() else self._rules

    def _light(self) -> bool:
        return self._policies.terms(self._namespace) <= PORTION

    def _stale(self) -> bool:
        known = self._known
        return known is None or known[0] != self._policies.version(self._namespace) or known[1] is not self.labels


class PodNetwork:
    """Implements `Attachment` (contract.py). Calls `changed` after each change of its labels, and `released` once, when it is fully closed."""

    def __init__(
        self,
        request: NetworkRequest,
        address: str,
        labels: Labels,
        proxy: EgressProxy,
        egress_slots: Slots,
        changed: Callable[[PodNetwork], None],
        released: Callable[[PodNetwork], None],
    ) -> None:
        self.request = request
        self._address = address
        self._labels = labels
        self._proxy = proxy
        self._egress_slots = egress_slots
        self._changed = changed
        self._released = released
        self._notes = unserved(request.ports)
        self._acceptors: list[Acceptor] = []
        self._closing: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._address

    @property
    def notes(self) -> tuple[str, ...]:
        rules = self._labels.last_rules()
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
        """Sets the labels; other policies may select the pod now."""
        self._labels.labels = dict(labels)
        self._changed(self)

    async def recheck(self) -> None:
        await self._proxy.recheck()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # closing continues even if the caller is cancelled

    async def _close(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.close()
        await self._proxy.close()
        self._released(self)


class Inbound:
    """Relays connections from the listener of a declared port to that port inside the sandbox."""

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
            log.debug("no listener inside the sandbox", port=self._port, cause=str(error))
            reset(client)
            return
        with contextlib.closing(inside), Idle(self._clock, self._options.idle_timeout) as idle:
            prompt(inside)
            await relay(client, inside, idle.touch, InTurn(self._turn, freely))
