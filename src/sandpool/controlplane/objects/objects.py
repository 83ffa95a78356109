"""The service behind every request: one method per verb, on JSON documents and records.

A write reads the newest state, decides and puts without an await in between, so no update is lost and none needs a
retry. Then it waits until the write is durable. An error is returned only once the state that it was derived from is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from sandpool.controlplane.admission.admit import admit
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.acknowledged import Acknowledged, unavailable
from sandpool.controlplane.objects.change import Change, differs
from sandpool.controlplane.objects.deletion import Leave, Mark, Remove, emptied, judge
from sandpool.controlplane.objects.disk_full import DiskFullGuard
from sandpool.controlplane.objects.document import (
    Document,
    Malformed,
    decode,
    headed,
    metadata_of,
    owning,
    revision_of,
    text_of,
)
from sandpool.controlplane.objects.holdings import MADE, HoldingLimits, Holdings
from sandpool.controlplane.objects.inline import InlineCommit
from sandpool.controlplane.objects.keys import key_of
from sandpool.controlplane.objects.listing import Listing, list_in_portions, list_objects, list_work
from sandpool.controlplane.objects.matching import Memo
from sandpool.controlplane.objects.namespaces import Namespaces
from sandpool.controlplane.objects.options import (
    Deleted,
    DeleteOptions,
    Listed,
    ListQuery,
    WatchQuery,
    WriteOptions,
    Written,
)
from sandpool.controlplane.objects.patching import check_type, patched
from sandpool.controlplane.objects.placing import Placing, bound
from sandpool.controlplane.objects.prepare import (
    ATTEMPTS,
    check_kind,
    check_names,
    check_subresource,
    check_uid,
    generated,
    random_suffix,
    settle_namespace,
    settle_owners,
    stamp,
)
from sandpool.controlplane.objects.quota.ledger import Quotas
from sandpool.controlplane.objects.scaling import scale_of, scale_record, scaled
from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.controlplane.objects.typed import Typed
from sandpool.controlplane.objects.watching import Departed, RawEvent, Watch
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import ApiError
from sandpool.kube.inline import InlineHooks
from sandpool.model import kinds
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

__all__ = ["AnyResource", "Objects", "RawEvent", "RawWatch"]

AnyResource = Resource[Any]
RawWatch = Watch


class Objects:
    """The verbs for objects of any kind. Subresources: "" (the object itself), "status", "scale" if the kind has it, and
    "finalize" for namespaces."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        new_uid: Callable[[], str],
        new_suffix: Callable[[], str] = random_suffix,
        limits: HoldingLimits = HoldingLimits(),
        storage_class: str = "",
        hooks: InlineHooks | None = None,
    ) -> None:
        """`storage_class` is the default storage class; empty: there is none. `hooks`: see kube/inline.py."""
        self._store = store
        self._now, self._new_uid, self._new_suffix = now, new_uid, new_suffix
        self._storage_class = storage_class
        self._namespaces = Namespaces(store)
        self._placing = Placing(store)
        self.holdings = Holdings(store, limits, now)
        self._log = Acknowledged(store, self.holdings)
        self._memo, self._departed = Memo(), Departed()
        self.room = DiskFullGuard()
        self.typed = Typed()  # for servers in this process
        self.hooks = InlineHooks() if hooks is None else hooks
        self._inline = InlineCommit(store, self._log, self.typed)
        self.quotas = Quotas(store)

    # Reading.

    def get(self, resource: AnyResource, namespace: str, name: str, subresource: str = "") -> Record:
        record = self._store.get(key_of(resource, namespace, name))
        if record is None:
            raise refusals.not_found(resource, name)
        check_subresource(resource, subresource)
        return scale_record(resource, record) if subresource == "scale" else record

    def list(self, resource: AnyResource, namespace: str, query: ListQuery = ListQuery()) -> Listed:
        return list_objects(self._store, resource, namespace, query)

    def size(self, resource: AnyResource, namespace: str, name: str) -> int:
        """Bytes of an object; 0 if it does not exist."""
        record = self._store.get(key_of(resource, namespace, name))
        return 0 if record is None else len(record.value)

    def list_in_portions(self, resource: AnyResource, namespace: str, query: ListQuery) -> Listing:
        """Like `list`, but in portions, so that other requests get a turn."""
        return list_in_portions(self._store, resource, namespace, query)

    def list_work(self, resource: AnyResource, namespace: str, query: ListQuery = ListQuery()) -> int:
        """The cost of the scan of a list, in the bytes that base/turns.py counts."""
        return list_work(self._store, resource, namespace, query)

    def watch(self, resource: AnyResource, namespace: str, query: WatchQuery = WatchQuery()) -> RawWatch:
        return Watch(self._store, resource, namespace, query, self._memo, self._departed)

    @property
    def revision(self) -> Revision:
        return self._store.revision

    # Creating.

    async def create(
        self, resource: AnyResource, namespace: str, body: Document, options: WriteOptions = WriteOptions()
    ) -> Written:
        try:
            check_kind(resource, body)
            metadata = dict(metadata_of(body))
            namespace = settle_namespace(resource, metadata, namespace)
            name, prefix = text_of(metadata, "name"), text_of(metadata, "generateName")
            refusal = self._namespaces.refusal(resource, name or prefix, namespace) if resource.namespaced else None
            if refusal is not None:
                await self._log.settled(key_of(kinds.NAMESPACES, "", namespace))
                raise refusal
            if prefix and not name:
                metadata["name"] = self._free_name(resource, namespace, prefix)
            document, warnings = self._made(resource, body, metadata, options)
            name = document["metadata"]["name"]
            if resource.kind == "Pod" and (refusal := self._placing.runtime_refusal(document)) is not None:
                await self._log.settled(key_of(kinds.RUNTIME_CLASSES, "", document["spec"].get("runtimeClassName", "")))
                raise refusal
            ledger = self.quotas.ledgers.get(namespace)
            refusal = None if ledger is None else ledger.refusal(resource, name, document)
            if ledger is not None and refusal is not None:
                await self._log.durable(ledger.revision)
                raise refusal
            key = key_of(resource, namespace, name)
            present = self._store.newest(key)
            if present is not None:
                leaving = "deletionTimestamp" in decode(present)["metadata"]
                await self._log.durable(present.revision)
                raise refusals.already_exists(resource, name, leaving=leaving)
            if resource.namespaced:
                self.holdings.check_new(resource, namespace, name, options.tenant)
            if options.dry_run:
                value = msgspec.json.encode(document)
                return Written(Record(key, NO_REVISION, NO_REVISION, value), warnings, created=True)
            if self.room.why:
                self.room.check_new()
            if resource.kind == "ResourceQuota":
                self.quotas.expect()
            hook = self.hooks.by_name.get((resource.group, resource.plural))
            if hook is not None:
                made = await self._inline.create(hook, resource, key, document, options.tenant, options.early)
                if made is not None:
                    return Written(made, warnings, created=True)
            return Written(await self._log.put(key, None, document, options.tenant), warnings, created=True)
        except Malformed:
            admit(resource, body, None, validation=options.validation)  # raises the message of a kube-apiserver
            raise
        except StoreError as error:
            raise unavailable(error) from error

    def _free_name(self, resource: AnyResource, namespace: str, prefix: str) -> str:
        name = ""
        for _ in range(ATTEMPTS):
            name = generated(prefix, self._new_suffix())
            if self._store.newest(key_of(resource, namespace, name)) is None:
                return name
        raise refusals.no_name_left(resource, name)

    def _made(
        self, resource: AnyResource, body: Document, metadata: Document, options: WriteOptions
    ) -> tuple[Document, tuple[str, ...]]:
        """The admitted document of a new object, with its own metadata dict, and warnings."""
        if "resourceVersion" in metadata:
            if text_of(metadata, "resourceVersion").isdigit() and revision_of(metadata):
                raise refusals.revision_on_create()
            del metadata["resourceVersion"]
        document = headed(resource.api_version, resource.kind, metadata, body)
        admitted = admit(resource, document, None, validation=options.validation)
        document = owning(admitted.body)
        now = self._now()
        stamp(strategy_of(resource), document["metadata"], uid=self._new_uid(), now=now)
        if resource.kind == "Pod":
            document = self._placing.place(document, now)
        elif self._storage_class and resource is kinds.PERSISTENT_VOLUME_CLAIMS:
            spec = document["spec"]
            if spec.get("storageClassName") is None:  # an empty one means: no class
                document["spec"] = {**spec, "storageClassName": self._storage_class}
        return document, admitted.warnings + settle_owners(document["metadata"])

    # Changing.

    async def update(
        self,
        resource: AnyResource,
        namespace: str,
        name: str,
        body: Document,
        options: WriteOptions = WriteOptions(),
        subresource: str = "",
    ) -> Written:
        check_subresource(resource, subresource)
        try:
            check_names(resource, metadata_of(body), namespace, name)
        except Malformed:
            admit(resource, body, None, validation=options.validation)
            raise
        record = self._store.newest(key_of(resource, namespace, name))
        if record is None:
            if strategy_of(resource).put_creates and not subresource:
                return await self._put_new(resource, namespace, name, body, options)
            raise await self._absent(resource, namespace, name)
        try:
            old = decode(record)
            check_uid(resource, name, old, body)
            if subresource == "scale":
                new = scaled(resource, old, body, name, patched=False)
            else:
                check_kind(resource, body)
                new = body
            change = Change(namespace, name, record, old, new, subresource)
            written, warnings = self._replace(resource, change, options)
            return Written(await written, warnings)
        except ApiError:
            await self._log.durable(record.revision)
            raise
        except StoreError as error:
            raise unavailable(error) from error

    async def _put_new(
        self, resource: AnyResource, namespace: str, name: str, body: Document, options: WriteOptions
    ) -> Written:
        """A PUT that creates. Its resourceVersion is ignored, but a uid names an object that no longer exists: Conflict."""
        metadata = dict(metadata_of(body))
        uid = text_of(metadata, "uid")
        if uid:
            raise refusals.other_uid(resource, name, uid, "")
        metadata.pop("resourceVersion", None)
        return await self.create(resource, namespace, {**body, "metadata": metadata}, options)

    async def patch(
        self,
        resource: AnyResource,
        namespace: str,
        name: str,
        patch: Patch,
        options: WriteOptions = WriteOptions(),
        subresource: str = "",
    ) -> Written:
        if subresource:
            check_subresource(resource, subresource)
        check_type(resource, patch, subresource)
        record = self._store.newest(key_of(resource, namespace, name))
        if record is None:
            raise await self._absent(resource, namespace, name)
        try:
            old = decode(record)
            if subresource == "scale":
                scale = patched(resource, scale_of(resource, old), patch)
                new = scaled(resource, old, scale, name, patched=True)
            else:
                new = patched(resource, old, patch)
            change = Change(namespace, name, record, old, new, subresource, patched=True)
            written, warnings = self._replace(resource, change, options)
            return Written(await written, warnings)
        except ApiError:
            await self._log.durable(record.revision)
            raise
        except StoreError as error:
            raise unavailable(error) from error

    def _replace(
        self, resource: AnyResource, change: Change, options: WriteOptions
    ) -> tuple[Awaitable[Record], tuple[str, ...]]:
        """Replaces the old document by the new one: every change of an object takes this path. Returns an awaitable of
        the response, which resolves once it is durable, and warnings."""
        record, old = change.record, change.old
        document, warnings = change.admitted(resource, options.validation)
        written: Awaitable[Record]
        ledger = self.quotas.ledgers.get(change.namespace)
        refusal = None if ledger is None else ledger.change_refusal(resource, change, document)
        if ledger is not None and refusal is not None:
            written = self._refused(refusal, ledger.revision)
        elif not differs(old, document):
            written = self._answer(record)
        elif "deletionTimestamp" in old["metadata"] and emptied(resource, document):
            written = self._released(record, document, options)
        elif options.dry_run:
            written = self._answer(_preview(record, document))
        else:
            if self.room.why:
                self.room.check_change(record, document, change.subresource)
            made = change.namespace if resource.plural in MADE and not change.subresource else ""
            written = self._log.put(record.key, record, document, options.tenant, made)
        return self._windowed(resource, written) if change.subresource == "scale" else written, warnings

    async def _refused(self, refusal: ApiError, derived_from: Revision) -> Record:
        await self._log.durable(derived_from)
        raise refusal

    async def _answer(self, record: Record) -> Record:
        await self._log.durable(record.revision)
        return record

    async def _released(self, record: Record, document: Document, options: WriteOptions) -> Record:
        """Removes an object whose last finalizer is gone. The response is its last state at its previous revision, so that the
        DELETED event is newer for a client that caches it."""
        answer = _preview(record, document)
        if not options.dry_run:
            await self._log.remove(record, document)
        return answer

    async def _windowed(self, resource: AnyResource, written: Awaitable[Record]) -> Record:
        return scale_record(resource, await written)

    async def bind(self, namespace: str, pod: str, binding: Document, options: WriteOptions = WriteOptions()) -> None:
        """Binds a pod to a node. Raises Conflict if it is already bound."""
        record = self._store.newest(key_of(kinds.PODS, namespace, pod))
        if record is None:
            raise await self._absent(kinds.PODS, namespace, pod)
        try:
            document = bound(decode(record), binding, self._now())
        except ApiError:
            await self._log.durable(record.revision)
            raise
        if not options.dry_run:
            try:
                await self._log.put(record.key, record, document, options.tenant)
            except StoreError as error:
                raise unavailable(error) from error

    # Deleting.

    async def delete(
        self, resource: AnyResource, namespace: str, name: str, options: DeleteOptions = DeleteOptions()
    ) -> Deleted:
        record = self._store.newest(key_of(resource, namespace, name))
        if record is None:
            raise await self._absent(resource, namespace, name)
        try:
            verdict = judge(resource, decode(record), options, self._now())
            match verdict:
                case Leave():
                    return Deleted(await self._answer(record), finished=False)
                case Mark(document):
                    return Deleted(await self._mark(record, document, options), finished=False)
                case Remove(document):
                    gone = self._answer(record) if options.dry_run else self._log.remove(record, document)
                    return Deleted(await gone, finished=True)
        except ApiError:
            await self._log.durable(record.revision)
            raise
        except StoreError as error:
            raise unavailable(error) from error

    def _mark(self, record: Record, document: Document, options: DeleteOptions) -> Awaitable[Record]:
        if options.dry_run:
            return self._answer(_preview(record, document))
        return self._log.mark(record, document)

    async def _absent(self, resource: AnyResource, namespace: str, name: str) -> ApiError:
        await self._log.settled(key_of(resource, namespace, name))
        return refusals.not_found(resource, name)


def _preview(record: Record, document: Document) -> Record:
    return Record(record.key, record.revision, record.created, msgspec.json.encode(document))
