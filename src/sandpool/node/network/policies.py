"""The NetworkPolicies of this cluster, as they are now. Whoever watches them tells what changed; whoever enforces them is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandpool.model.core import NetworkPolicy
from sandpool.model.metadata import Key
from sandpool.node.network.ceiling import UNLIMITED, Ceiling
from sandpool.node.network.policy import Policy, Rules, compiled, selecting
from sandpool.telemetry.log import logger

log = logger(__name__)

Changed = Callable[[str], object]
"""Called with the namespace in which another answer may now be given."""


class Policies:
    def __init__(self, ceiling: Ceiling = UNLIMITED) -> None:
        self._ceiling = ceiling
        self._policies: dict[str, dict[Key, Policy]] = {}
        self._subscribers: list[Changed] = []
        self._changes = 0
        self._versions: dict[str, int] = {}  # of namespaces that have policies

    def put(self, policy: NetworkPolicy) -> None:
        """A policy that is new or has changed."""
        found = compiled(policy, self._ceiling)
        known = self._policies.setdefault(found.key.namespace, {})
        if known.get(found.key) == found:
            return
        if found.wrong:
            log.warning("a network policy cannot be read and allows nothing", policy=str(found.key), cause=found.wrong)
        elif found.exceeds:
            log.warning(
                "a network policy asks for more than --allow-egress lets sandboxes reach", policy=str(found.key)
            )
        known[found.key] = found
        self._tell(found.key.namespace)

    def remove(self, namespace: str, name: str) -> None:
        known = self._policies.get(namespace, {})
        if known.pop(Key(namespace, name), None) is not None:
            if not known:
                del self._policies[namespace]
            self._tell(namespace)

    def rules_of(self, namespace: str, labels: Mapping[str, str]) -> Rules:
        return selecting(self._policies.get(namespace, {}), namespace, labels, self._ceiling)

    def version(self, namespace: str) -> int:
        """As long as this number is the same, so are the answers for this namespace: others may write as they like."""
        return self._versions.get(namespace, 0)

    def count(self, namespace: str) -> int:
        return len(self._policies.get(namespace, ()))

    def subscribe(self, changed: Changed) -> Callable[[], None]:
        """Calls back after each change; what it returns ends that."""
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    def _tell(self, namespace: str) -> None:
        self._changes += 1
        if namespace in self._policies:
            self._versions[namespace] = self._changes
        else:
            self._versions.pop(namespace, None)
        for changed in tuple(self._subscribers):
            changed(namespace)
