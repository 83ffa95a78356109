"""What NetworkPolicies let a pod reach. Pure: Kubernetes' rules, with two differences that a single machine makes.

A pod that no policy with egress selects reaches nothing (Kubernetes: everything). Peers that name pods or namespaces never
match: pods of this machine do not reach each other. What cannot be read allows nothing: a policy with a selector that makes
no sense holds for all pods of its namespace. Named ports never match; only TCP is carried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import accumulate
from typing import Final

import msgspec

from sandpool.model.core import POLICY_ENTRIES, NetworkPolicy
from sandpool.model.metadata import Key, Model
from sandpool.model.selectors import EVERYTHING, LabelSelector, LabelSelectorStruct, SelectorError, from_struct
from sandpool.node.network.ceiling import UNLIMITED, Ceiling
from sandpool.node.network.forbidden import Address, faces, forbidden
from sandpool.node.network.rule import ALL_PORTS, Range, Rule

MOST_OF_POD: Final = 4096
"""Rules, blocks, exceptions and ports of all policies that hold for one pod: each connection that it opens is compared with all of them."""


ENTRY: Final = 64
"""Bytes of other work that looking at one of them takes as long as, for turns (base/turns.py)."""


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
    """The egress half of a NetworkPolicy, ready to be asked. `egress` is False for one that says nothing about it."""

    key: Key
    selector: LabelSelector = EVERYTHING
    egress: bool = True
    rules: tuple[Rule, ...] = ()
    wrong: str = ""  # why it allows nothing, if it could not be read
    exceeds: bool = False  # it asks for more than the ceiling lets it open
    entries: int = 0  # what it takes to ask it

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.egress and namespace == self.key.namespace and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Rules:
    """All policies that hold for one pod: what one allows is allowed."""

    policies: tuple[Policy, ...] = ()
    ceiling: Ceiling = UNLIMITED

    def exceeding(self) -> str:
        """The policies that ask for more than can be had."""
        return ", ".join(str(policy.key) for policy in self.policies if policy.exceeds)

    @property
    def entries(self) -> int:
        """What it takes to judge one address."""
        return sum(1 + policy.entries for policy in self.policies)

    def names(self) -> str:
        return ", ".join(str(policy.key) for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: str = ""  # one word, for counts
    message: str = ""  # what refuses it and what to do; names no address that the asker did not name


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


def selecting(
    policies: Mapping[Key, Policy], namespace: str, labels: Mapping[str, str], ceiling: Ceiling = UNLIMITED
) -> Rules:
    """In the order of their names, as many as one pod may have; what the others allow is not."""
    found = sorted(
        (policy for policy in policies.values() if policy.selects(namespace, labels)), key=lambda policy: policy.key
    )
    sizes = accumulate(1 + policy.entries for policy in found)
    return Rules(tuple(policy for policy, size in zip(found, sizes, strict=True) if size <= MOST_OF_POD), ceiling)


def port_verdict(rules: Rules, port: int) -> Verdict:
    """Whether anything at all may be reached on this port: asked before a name is looked up, because a look-up is a message
    to the outside, too."""
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
    """An address block, or nothing: a block with an exception that cannot be read would allow too much."""
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
