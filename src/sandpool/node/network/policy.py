"""Evaluates which addresses NetworkPolicies let a pod reach. Pure. Follows Kubernetes' rules, with two differences.

A pod that no egress policy selects reaches nothing (in Kubernetes: everything). Peers that select pods or namespaces never match, because
pods on this machine cannot reach each other. What cannot be parsed allows nothing: a policy with an invalid selector applies to all pods
of its namespace. Named ports never match; only TCP is supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import accumulate
from typing import Final

import msgspec

from sandpool.base.turns import BYTES
from sandpool.model.core import POLICY_ENTRIES, NetworkPolicy
from sandpool.model.metadata import Key, Model
from sandpool.model.selectors import EVERYTHING, LabelSelector, LabelSelectorStruct, SelectorError, from_struct
from sandpool.node.network.egress_rules import ALL_PORTS, UNLIMITED, Ceiling, Range, Rule
from sandpool.node.network.forbidden import Address, faces, forbidden
from sandpool.telemetry.log import logger

MOST_OF_POD: Final = 4096
"""Maximum number of rules, blocks, exceptions and ports of all policies of one pod: each connection is compared with all of them."""


ENTRY: Final = 64
"""The cost of one such entry in the unit of turns (base/turns.py): it takes as long as this many bytes of other work."""
PORTION: Final = BYTES // ENTRY
"""How many policies, and terms of their selectors, are compared with a pod in one turn."""


class IPBlock(Model, frozen=True):
    cidr: str = ""
    except_: tuple[str, ...] = msgspec.field(default=(), name="except")


class Peer(Model, frozen=True):
    ip_block: IPBlock | None = None
    pod_selector: LabelSelectorStruct | None = None
    namespace_selector: LabelSelectorStruct | None = None


class PolicyPort(Model, frozen=True):
    protocol: str | None = None
    port: int | str | None = None
    end_port: int | None = None


class EgressRule(Model, frozen=True):
    to: tuple[Peer, ...] | None = None
    ports: tuple[PolicyPort, ...] | None = None


class PolicySpec(Model, frozen=True):
    pod_selector: LabelSelectorStruct | None = None
    policy_types: tuple[str, ...] | None = None
    egress: tuple[EgressRule, ...] | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The egress part of a NetworkPolicy, compiled. `egress` is False if it does not restrict egress."""

    key: Key
    selector: LabelSelector = EVERYTHING
    egress: bool = True
    rules: tuple[Rule, ...] = ()
    wrong: str = ""  # why it allows nothing, if it is invalid
    exceeds: bool = False  # it allows more than the ceiling permits
    entries: int = 0  # the cost of evaluating it

    @property
    def terms(self) -> int:
        """The cost of deciding whether it selects a pod."""
        return 1 + len(self.selector.requirements)

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.egress and namespace == self.key.namespace and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Rules:
    """All policies that select one pod. A connection is allowed if any of them allows it."""

    policies: tuple[Policy, ...] = ()
    ceiling: Ceiling = UNLIMITED

    def exceeding(self) -> str:
        """The policies that allow more than the ceiling permits."""
        return ", ".join(str(policy.key) for policy in self.policies if policy.exceeds)

    @property
    def entries(self) -> int:
        """The cost of checking one address."""
        return sum(1 + policy.entries for policy in self.policies)

    def names(self) -> str:
        return ", ".join(str(policy.key) for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a connection is allowed, and why not."""

    allowed: bool
    reason: str = ""  # one word, for metrics
    message: str = ""  # what refused it and what to do; contains no address that the client did not send


ALLOWED = Verdict(True)
_TOO_MUCH = Verdict(
    False,
    "Ceiling",
    "it lies outside of what the operator of this machine lets sandboxes reach (--allow-egress of sandpool up); no NetworkPolicy can "
    "allow that: choose another destination, or ask the operator",
)


def compiled(policy: NetworkPolicy, ceiling: Ceiling = UNLIMITED) -> Policy:
    key = policy.metadata.key
    if isinstance(policy.spec, msgspec.UnsetType):
        return Policy(key, egress=False)
    try:
        spec = msgspec.json.decode(policy.spec, type=PolicySpec)
        terms = _terms(spec.pod_selector)
        if terms > POLICY_ENTRIES:
            return Policy(
                key, wrong=f"its podSelector has {terms} labels and values; at most {POLICY_ENTRIES} are read"
            )
        selector = from_struct(spec.pod_selector or LabelSelectorStruct())
    except (msgspec.DecodeError, SelectorError) as error:
        return Policy(key, wrong=str(error))
    types = spec.policy_types or (("Egress",) if spec.egress else ())
    entries = sum(map(_entries, spec.egress or ()))
    if entries > POLICY_ENTRIES:
        wrong = f"it has {entries} rules, blocks, exceptions and ports to go out; at most {POLICY_ENTRIES} are read"
        return Policy(key, selector, "Egress" in types, wrong=wrong)
    rules = tuple(_rule(rule) for rule in spec.egress or ())
    return Policy(key, selector, "Egress" in types, rules, exceeds=not ceiling.holds(rules), entries=entries)


def _terms(selector: LabelSelectorStruct | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels) + sum([1 + len(each.values) for each in selector.match_expressions])


class Selection:
    """Collects the policies that select one pod, a portion at a time. Keeps the first MOST_OF_POD by name."""

    def __init__(self, namespace: str, labels: Mapping[str, str], ceiling: Ceiling = UNLIMITED) -> None:
        self._namespace = namespace
        self._labels = labels
        self._ceiling = ceiling
        self._found: list[Policy] = []

    def add(self, policies: Iterable[Policy]) -> None:
        self._found += [policy for policy in policies if policy.selects(self._namespace, self._labels)]
        self._found.sort(key=lambda policy: policy.key)
        del self._found[MOST_OF_POD:]  # each counts as one entry at least

    def rules(self) -> Rules:
        return _rules(self._found, self._ceiling)


def selecting(
    policies: Mapping[Key, Policy], namespace: str, labels: Mapping[str, str], ceiling: Ceiling = UNLIMITED
) -> Rules:
    """The policies that select a pod, by name, up to the limit of one pod. The others are ignored, so they allow nothing."""
    selection = Selection(namespace, labels, ceiling)
    selection.add(policies.values())
    return selection.rules()


def _rules(found: Sequence[Policy], ceiling: Ceiling) -> Rules:
    sizes = accumulate(1 + policy.entries for policy in found)
    return Rules(tuple(policy for policy, size in zip(found, sizes, strict=True) if size <= MOST_OF_POD), ceiling)


def port_verdict(rules: Rules, port: int) -> Verdict:
    """Whether any address may be reached on this port. Checked before a DNS lookup, because a lookup also sends data to the outside."""
    if not rules.policies:
        return Verdict(
            False,
            "NoPolicy",
            "no NetworkPolicy with egress rules selects this pod, so it reaches nothing outside of itself; "
            "create one in its namespace that selects it and allows this destination",
        )
    if not any(rule.opens(port) for policy in rules.policies for rule in policy.rules):
        return _denied(rules, f"port {port}")
    return ALLOWED if rules.ceiling.opens(port) else _TOO_MUCH


def verdict(rules: Rules, address: Address, port: int) -> Verdict:
    """Whether this address, exactly, may be connected to."""
    why = forbidden(address)
    if why:
        return Verdict(
            False, "Forbidden", f"it is {why}; no NetworkPolicy can allow that: choose a destination outside of it"
        )
    opened = port_verdict(rules, port)
    if not opened.allowed:
        return opened
    if not all(_reached(rules, face, port) for face in faces(address)):
        return _denied(rules, "this destination")
    return ALLOWED if all(rules.ceiling.reaches(face, port) for face in faces(address)) else _TOO_MUCH


def _reached(rules: Rules, address: Address, port: int) -> bool:
    return any(rule.reaches(address, port) for policy in rules.policies for rule in policy.rules)


def _denied(rules: Rules, what: str) -> Verdict:
    several = len(rules.policies) > 1
    wrong = "".join(f" ({policy.key} cannot be read: {policy.wrong})" for policy in rules.policies if policy.wrong)
    return Verdict(
        False,
        "Policy",
        f"{what} is not allowed by NetworkPolic{'ies' if several else 'y'} {rules.names()}{wrong}; "
        "add an egress rule for it there, or in the networkPolicy of the SandboxTemplate that made it",
    )


def _entries(rule: EgressRule) -> int:
    blocks = (peer.ip_block for peer in rule.to or ())
    return 1 + len(rule.to or ()) + len(rule.ports or ()) + sum(len(block.except_) for block in blocks if block)


def _rule(rule: EgressRule) -> Rule:
    ranges = None if not rule.to else tuple(found for peer in rule.to for found in _ranges(peer))
    ports = (ALL_PORTS,) if not rule.ports else tuple(_port(port) for port in rule.ports)
    return Rule(ranges, ports)


def _ranges(peer: Peer) -> tuple[Range, ...]:
    """The address block of a peer. Empty if the block or an exception is invalid: without the exception it would allow too much."""
    if peer.ip_block is None or peer.pod_selector is not None or peer.namespace_selector is not None:
        return ()
    try:
        block = ip_network(peer.ip_block.cidr, strict=False)
        but = tuple(ip_network(text, strict=False) for text in peer.ip_block.except_)
    except ValueError:
        return ()
    return (Range(block, but),)


def _port(port: PolicyPort) -> range:
    if (port.protocol or "TCP") != "TCP" or isinstance(port.port, str):
        return range(0)
    if port.port is None:
        return ALL_PORTS
    return range(port.port, (port.end_port or port.port) + 1)


log = logger(__name__)

Changed = Callable[[str], object]
"""Called with the namespace whose rules may have changed."""


class Policies:
    """The NetworkPolicies of this cluster as they are now. The kubelet's watch updates them; subscribers are called after each change."""

    def __init__(self, ceiling: Ceiling = UNLIMITED) -> None:
        self._ceiling = ceiling
        self._policies: dict[str, dict[Key, Policy]] = {}
        self._subscribers: list[Changed] = []
        self._changes = 0
        self.versions: dict[str, int] = {}  # by namespace with policies
        self._terms: dict[str, int] = {}  # by namespace with policies: the cost of comparing all of them with one pod

    def put(self, policy: NetworkPolicy) -> None:
        """Adds or replaces a policy."""
        found = compiled(policy, self._ceiling)
        known = self._policies.setdefault(found.key.namespace, {})
        if known.get(found.key) == found:
            return
        if found.wrong:
            log.warning("network policy is invalid and allows nothing", policy=str(found.key), cause=found.wrong)
        elif found.exceeds:
            log.warning("network policy allows more than --allow-egress permits", policy=str(found.key))
        before = known.get(found.key)
        known[found.key] = found
        self._weigh(found.key.namespace, found.terms - (before.terms if before is not None else 0))
        self._notify(found.key.namespace)

    def remove(self, namespace: str, name: str) -> None:
        known = self._policies.get(namespace, {})
        gone = known.pop(Key(namespace, name), None)
        if gone is not None:
            self._weigh(namespace, -gone.terms)
            if not known:
                del self._policies[namespace]
            self._notify(namespace)

    def rules_of(self, namespace: str, labels: Mapping[str, str]) -> Rules:
        return selecting(self._policies.get(namespace, {}), namespace, labels, self._ceiling)

    def version(self, namespace: str) -> int:
        """A number that changes whenever the policies of this namespace do. Changes in other namespaces do not affect it."""
        return self.versions.get(namespace, 0)

    def terms(self, namespace: str) -> int:
        """The cost of finding the policies of this namespace that select one pod."""
        return self._terms.get(namespace, 0)

    def selection(self, namespace: str, labels: Mapping[str, str]) -> Selection:
        return Selection(namespace, labels, self._ceiling)

    def portions(self, namespace: str) -> Iterator[list[Policy]]:
        """The namespace's current policies, in portions of what is compared in one turn."""
        part: list[Policy] = []
        size = 0
        for policy in tuple(self._policies.get(namespace, {}).values()):
            if part and size + policy.terms > PORTION:
                yield part
                part, size = [], 0
            part.append(policy)
            size += policy.terms
        yield part

    def _weigh(self, namespace: str, more: int) -> None:
        left = self._terms.get(namespace, 0) + more
        if left:
            self._terms[namespace] = left
        else:
            self._terms.pop(namespace, None)

    def subscribe(self, changed: Changed) -> Callable[[], None]:
        """Calls `changed` after each change. Returns a function that unsubscribes."""
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    def _notify(self, namespace: str) -> None:
        self._changes += 1
        if namespace in self._policies:
            self.versions[namespace] = self._changes
        else:
            self.versions.pop(namespace, None)
        for changed in tuple(self._subscribers):
            changed(namespace)
