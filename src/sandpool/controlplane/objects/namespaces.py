"""Checks whether a namespace accepts new objects. Every create asks, so the answer is cached by the namespace's revision."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import decode
from sandpool.controlplane.objects.keys import key_of
from sandpool.controlplane.store.port import Store
from sandpool.kube.errors import ApiError
from sandpool.model import kinds
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

_REMEMBERED = 10_000


class Namespaces:
    """Refuses new objects in missing and terminating namespaces."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._terminating: dict[str, tuple[Revision, bool]] = {}

    def refusal(self, resource: Resource[Any], name: str, namespace: str) -> ApiError | None:
        """404 if the namespace does not exist, 403 while it is terminating. Based on its newest state: return the error once that is durable."""
        record = self._store.newest(key_of(kinds.NAMESPACES, "", namespace))
        if record is None:
            return refusals.not_found(kinds.NAMESPACES, namespace)
        known = self._terminating.get(namespace)
        if known is None or known[0] != record.revision:
            if len(self._terminating) >= _REMEMBERED:
                self._terminating.clear()
            known = (record.revision, "deletionTimestamp" in decode(record)["metadata"])
            self._terminating[namespace] = known
        return refusals.terminating(resource, name, namespace) if known[1] else None
