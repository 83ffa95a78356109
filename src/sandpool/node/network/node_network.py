"""The network of all pods on this machine: implements `Network` (contract.py). Assigns addresses, limits connections, rechecks policies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from ipaddress import IPv4Network
from typing import Protocol

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.turns import Turns
from sandpool.node.network.addresses import AddressPool, Listening, Occupied, listen
from sandpool.node.network.contract import Dial, NetworkOptions, NetworkRequest, Port
from sandpool.node.network.egress.destination import AskRoute
from sandpool.node.network.egress.outside import Connect, Lookups, LookupSlots, Resolve, connect, resolve
from sandpool.node.network.egress.proxy import Counts, EgressLog, EgressProxy, ProxyContext
from sandpool.node.network.pod import Labels, PodNetwork
from sandpool.node.network.policy import Policies
from sandpool.node.network.route import route
from sandpool.node.network.slots import AllSlots, Slots


class Rechecked(Protocol):
    """A pod network whose open connections can be checked again."""

    async def recheck(self) -> None: ...


class PolicyRechecks:
    """Checks open connections again when policies or labels change: soon, once for many changes, in turns of the tenant that wrote them.

    Each namespace has at most one task that goes through its pods, and each pod waits for its tenant's turn (base/turns.py). A tenant that
    writes policies faster than its connections can be checked delays only the checks of its own connections. New connections never wait
    for this: they are checked against the policies as they are now.
    """

    def __init__(self) -> None:
        self.due: dict[str, dict[Rechecked, None]] = {}  # by namespace, in the order of the requests
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, namespace: str, pods: Iterable[Rechecked]) -> None:
        """Schedules rechecks. A pod that is already due is checked once."""
        asked = dict.fromkeys(pods)
        if namespace in self.tasks:
            self.due[namespace].update(asked)
        elif asked:
            self.due[namespace] = asked
            self.tasks[namespace] = asyncio.create_task(self._run(namespace, asked))

    async def _run(self, namespace: str, due: dict[Rechecked, None]) -> None:
        try:
            while due:
                pod = next(iter(due))
                del due[pod]  # before the check: a change meanwhile makes it due again
                await pod.recheck()
        finally:
            del self.tasks[namespace], self.due[namespace]

    async def close(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_LOOPBACK = IPv4Network("127.0.0.0/8")
_SPECIAL = IPv4Network(
    "127.0.0.0/16"
)  # localhost, 127.0.1.1 (a Debian machine's own name), 127.0.0.53 (a local resolver)
_TRIES = 4  # addresses to try if another program listens on one of the ports
_OUTCOMES = (
    "connected",
    "NoPolicy",
    "Policy",
    "Ceiling",
    "Forbidden",
    "Malformed",
    "Slow",
    "Lookup",
    "Unreachable",
    "Origin",
)


class NodeNetwork:
    """Implements `Network`. Only `resolve`, `connect` and `ask_route` reach the outside; tests replace them."""

    def __init__(
        self,
        policies: Policies,
        clock: Clock,
        options: NetworkOptions = NetworkOptions(),
        *,
        resolve: Resolve = resolve,
        connect: Connect = connect,
        ask_route: AskRoute = route,
    ) -> None:
        pods = IPv4Network(options.pods)
        if not pods.subnet_of(_LOOPBACK) or pods.overlaps(_SPECIAL):
            raise NodeError(
                "BadOptions", f"choose a range in {_LOOPBACK} and outside of {_SPECIAL} for pods, not {pods}"
            )
        self._policies = policies
        self._clock = clock
        self._options = options
        self._proxy_context = ProxyContext(clock, options, connect, ask_route)
        self._addresses = AddressPool(options.pods)
        self._slots = AllSlots(options.connections)
        self._lookup_slots = LookupSlots(resolve, options.total_lookups)
        self._turns = Turns()  # of tenants, for the bytes that their pods relay
        self._pods: dict[str, PodNetwork] = {}
        self._by_namespace: dict[str, dict[PodNetwork, None]] = {}
        self._rechecks = PolicyRechecks()
        self._counts: Counts = Counter(dict.fromkeys(_OUTCOMES, 0))
        self._unsubscribe = policies.subscribe(self._changed)

    def counts(self) -> Mapping[str, int]:
        """Requests to the proxies since the start, by outcome."""
        return dict(self._counts)

    async def attach(self, request: NetworkRequest, dial: Dial) -> PodNetwork:
        address, listening = self._listening(request.ports, request.address)
        options = self._options
        turn = partial(self._turns.take, request.namespace)
        labels = Labels(self._policies, request.namespace, dict(request.labels), turn)
        lookups = Lookups(self._lookup_slots, options.lookups, options.lookup_timeout, request.namespace)
        egress_log = EgressLog(f"{request.namespace}/{request.name}", self._counts, self._clock)
        proxy = EgressProxy(self._proxy_context, labels.rules_in_turn, lookups, egress_log, turn)
        slots = self._slots.of(request.namespace)
        egress_slots = Slots(options.egress_connections, slots)
        pod = PodNetwork(request, address, labels, proxy, egress_slots, self._relabelled, self._released)
        pod.listen(listening, dial, Slots(options.pod_connections, slots), self._clock, options, turn)
        self._pods[address] = pod
        self._by_namespace.setdefault(request.namespace, {})[pod] = None
        return pod

    async def close(self) -> None:
        await asyncio.gather(*(pod.close() for pod in tuple(self._pods.values())))
        await self._lookup_slots.close()
        self._unsubscribe()
        self._unsubscribe = _nothing
        await self._rechecks.close()

    def _listening(self, ports: tuple[Port, ...], before: str) -> tuple[str, tuple[Listening, ...]]:
        """Finds an address and opens the listeners. Another installation on this machine may use the same range, so an address on which one of
        the ports is taken is skipped. If a port is taken on several addresses, some program listens on all addresses, and the port is
        replaced."""
        tried: list[str] = []
        kept = ""
        try:
            for _ in range(_TRIES):
                tried.append(self._addresses.take(before if not tried else ""))
                try:
                    made = listen(tried[-1], ports, replace=False)
                except Occupied:
                    continue
                kept = tried[-1]
                return kept, made
            made = listen(tried[0], ports, replace=True)
            kept = tried[0]
            return kept, made
        finally:
            for address in tried:
                if address != kept:
                    self._addresses.give_back(address)

    def _changed(self, namespace: str) -> None:
        self._rechecks.ask(namespace, self._by_namespace.get(namespace, ()))

    def _relabelled(self, pod: PodNetwork) -> None:
        self._rechecks.ask(pod.request.namespace, (pod,))

    def _released(self, pod: PodNetwork) -> None:
        del self._pods[pod.address]
        neighbours = self._by_namespace[pod.request.namespace]
        del neighbours[pod]
        if not neighbours:
            del self._by_namespace[pod.request.namespace]
        self._addresses.give_back(pod.address)


def _nothing() -> None: ...
