"""Stores a new object together with what its inline hook adds, in one commit. See kube/inline.py.

The commit holds the same revisions as separate writes would: the object as it was sent (the response to its creator, who can watch from that
revision), the changed objects, and the object with its status. A change takes the same steps as any other patch. If an object has changed since
the hook decided, or cannot be changed that way, the new object is created alone.

A client that records an object only when its POST returns must not see the object's final state before that. So a creator outside this process
continues `early`: its response is sent before a watch, a list or a read can show anything of this commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from sandpool.base.shares import Shares
from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.admission.metadata import annotations_fit
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.acknowledged import Acknowledged
from sandpool.controlplane.objects.change import Change
from sandpool.controlplane.objects.document import Document, decode, name_in
from sandpool.controlplane.objects.keys import key_of
from sandpool.controlplane.objects.patching import patched
from sandpool.controlplane.objects.typed import Typed
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import RequestTooLarge, TooManyRequests
from sandpool.kube.inline import Addition, Annotate, InlineHook, Refusal
from sandpool.model import codec
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.model.resource import Resource
from sandpool.telemetry.log import logger

log = logger(__name__)

Write = tuple[str, Revision, Document]
_REVISION = attrgetter("revision")


async def hold(
    hook: InlineHook[Any], resource: Resource[Any], namespace: str, body: Document, tenant: str, held: Shares
) -> None:
    """Delays a create for as long as the hook says. `held` limits how many requests are delayed at a time, shared between tenants. Above
    that limit a request that would have to wait gets TooManyRequests."""
    if held.room(tenant) <= 0:
        if (refusal := hook.overflow(namespace, body)) is not None:
            held.refused += 1
            raise refusals.try_again(resource, name_in(body), refusal.why, refusal.retry_after)
        return
    seconds = hook.delay(namespace, body)
    if seconds > 0.0:
        held.take(tenant)
        try:
            await asyncio.sleep(seconds)
        finally:
            held.take(tenant, -1)


class InlineCommit:
    """Commits new objects together with what their hooks add."""

    def __init__(self, store: Store, acknowledged: Acknowledged, typed: Typed) -> None:
        self._store = store
        self._log = acknowledged
        self._typed = typed
        self._unheard: set[asyncio.Task[None]] = set()  # for commits whose client disconnected before they were durable

    async def create(
        self, hook: InlineHook[Any], resource: Resource[Any], key: str, document: Document, tenant: str, early: bool
    ) -> Record | None:
        """Returns the object as it was created, once the whole commit is durable (with `early`: before anyone can read it). Returns None and
        writes nothing if the hook adds nothing; `document` then has the annotations that the hook wants. Raises TooManyRequests if the hook
        refuses the object, StoreError if the commit fails."""
        addition: Addition[Any] | None = None
        try:
            obj = codec.convert(resource, document)
            decision = hook.creating(obj)
            if decision is None:
                return None
            if isinstance(decision, Refusal):
                raise refusals.try_again(resource, obj.metadata.name, decision.why, decision.retry_after)
            if isinstance(decision, Annotate):
                _annotate(document["metadata"], decision.annotations)
                return None
            addition = decision
            records, durable = self._submit(addition, key, document, tenant, early)
        except TooManyRequests:
            raise
        except Exception as error:  # the object is created without the addition, and its reservation is released
            if addition is not None:
                addition.abandoned()
            log.info(
                "nothing added to the commit of a new object", object=key, error=f"{type(error).__name__}: {error}"
            )
            return None
        changed = tuple(map(_REVISION, records[1:-1]))
        addition.submitted(records[0].revision, changed, records[-1].revision)
        try:
            await durable
        except asyncio.CancelledError:
            task = asyncio.get_running_loop().create_task(self._settle(addition, resource, records))
            self._unheard.add(task)
            task.add_done_callback(self._unheard.discard)
            raise
        except StoreError:
            addition.abandoned()
            raise
        self._committed(addition, resource, records)
        return records[0]

    def _submit(
        self, addition: Addition[Any], key: str, document: Document, tenant: str, early: bool
    ) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """Builds and submits the commit. If it raises, nothing was written."""
        writes: list[Write] = [(key, NO_REVISION, document)]
        for inline in addition.changes:
            resource, (namespace, name) = inline.resource, inline.key
            record = self._store.newest(key_of(resource, namespace, name))
            if record is None or record.revision != inline.revision:
                raise refusals.conflict(resource, name)
            old = decode(record)
            change = Change(namespace, name, record, old, patched(resource, old, inline.patch), "", patched=True)
            changed, _ = change.admitted(resource, FieldValidation.IGNORE)
            writes.append((record.key, record.revision, changed))
        metadata = dict(document["metadata"])
        if addition.annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **addition.annotations}
            if not annotations_fit(metadata["annotations"]):
                raise RequestTooLarge("there is no room for more annotations")
        writes.append((key, NO_REVISION, {**document, "metadata": metadata, "status": addition.status}))
        return self._log.put_together(*writes, tenant=tenant, early=early)

    async def _settle(self, addition: Addition[Any], resource: Resource[Any], records: tuple[Record, ...]) -> None:
        """Reports the outcome to the hook after the client disconnected: the commit continues without it."""
        try:
            await self._store.durable(records[-1].revision)
        except StoreError:
            addition.abandoned()
        else:
            self._committed(addition, resource, records)

    def _committed(self, addition: Addition[Any], resource: Resource[Any], records: tuple[Record, ...]) -> None:
        typed, final = self._typed.object, records[-1]
        changed = []
        for change, record in zip(addition.changes, records[1:-1], strict=True):
            changed.append(typed(change.resource, record.value, record.revision))
        addition.committed(typed(resource, final.value, final.revision), changed)


def _annotate(metadata: Document, more: Mapping[str, str]) -> None:
    """Adds annotations if they fit. Leaving them out is safe: no invariant depends on them."""
    annotations = {**(metadata.get("annotations") or {}), **more}
    if more and annotations_fit(annotations):
        metadata["annotations"] = annotations
