"""The network of this machine's pods (Network, see port.py): who has which address, and what holds for all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from ipaddress import IPv4Network

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.turns import Turns
from sandpool.node.network.addresses import Addresses
from sandpool.node.network.egress.account import Account, Counts
from sandpool.node.network.egress.destination import AskRoute
from sandpool.node.network.egress.lookups import Lookups, Places
from sandpool.node.network.egress.outside import Connect, Resolve, connect, resolve
from sandpool.node.network.egress.proxy import EgressProxy, Surroundings
from sandpool.node.network.options import NetworkOptions
from sandpool.node.network.pod import Labels, PodNetwork
from sandpool.node.network.policies import Policies
from sandpool.node.network.port import Dial, Port, Wanted
from sandpool.node.network.ports import Listening, Occupied, listen
from sandpool.node.network.rechecks import Rechecks
from sandpool.node.network.route import route
from sandpool.node.network.slots import AllSlots, Slots

_LOOPBACK = IPv4Network("127.0.0.0/8")
_SPECIAL = IPv4Network("127.0.0.0/16")  # localhost, a Debian host's own name, a local resolver
_TRIES = 4  # addresses, when another program listens on one of the ports
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


class LocalNetwork:
    """`resolve`, `connect` and `ask_route` are all that ever touches the outside; tests bring their own."""

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
        self._around = Surroundings(clock, options, connect, ask_route)
        self._addresses = Addresses(options.pods)
        self._slots = AllSlots(options.connections)
        self._places = Places(resolve, options.total_lookups)
        self._turns = Turns()  # of tenants, for what their pods carry
        self._pods: dict[str, PodNetwork] = {}
        self._by_namespace: dict[str, dict[PodNetwork, None]] = {}
        self._rechecks = Rechecks()
        self._counts: Counts = Counter(dict.fromkeys(_OUTCOMES, 0))
        self._unsubscribe = policies.subscribe(self._changed)

    def counts(self) -> Mapping[str, int]:
        """What became of requests to the proxies, by outcome, since the start."""
        return dict(self._counts)

    async def attach(self, wanted: Wanted, dial: Dial) -> PodNetwork:
        address, listening = self._listening(wanted.ports, wanted.address)
        options = self._options
        turn = partial(self._turns.take, wanted.namespace)
        labels = Labels(self._policies, wanted.namespace, dict(wanted.labels), turn)
        lookups = Lookups(self._places, options.lookups, options.lookup_timeout, wanted.namespace)
        account = Account(f"{wanted.namespace}/{wanted.name}", self._counts, self._clock)
        proxy = EgressProxy(self._around, labels.rules_in_turn, lookups, account, turn)
        slots = self._slots.of(wanted.namespace)
        egress_slots = Slots(options.egress_connections, slots)
        pod = PodNetwork(wanted, address, labels, proxy, egress_slots, self._relabelled, self._released)
        pod.listen(listening, dial, Slots(options.pod_connections, slots), self._clock, options, turn)
        self._pods[address] = pod
        self._by_namespace.setdefault(wanted.namespace, {})[pod] = None
        return pod

    async def close(self) -> None:
        await asyncio.gather(*(pod.close() for pod in tuple(self._pods.values())))
        await self._places.close()
        self._unsubscribe()
        self._unsubscribe = _nothing
        await self._rechecks.close()

    def _listening(self, ports: tuple[Port, ...], before: str) -> tuple[str, tuple[Listening, ...]]:
        """Another installation on this machine may use the same range: an address on which one of the ports is taken is left
        alone. If that is so on each, somebody listens everywhere, and the port is replaced."""
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
        self._rechecks.ask(pod.wanted.namespace, (pod,))

    def _released(self, pod: PodNetwork) -> None:
        del self._pods[pod.address]
        neighbours = self._by_namespace[pod.wanted.namespace]
        del neighbours[pod]
        if not neighbours:
            del self._by_namespace[pod.wanted.namespace]
        self._addresses.give_back(pod.address)


def _nothing() -> None: ...
